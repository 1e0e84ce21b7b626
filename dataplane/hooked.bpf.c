/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What decides on packets and netlink does not tell: the function that takes a device's frames
 * (rx_handler: a macvlan, ipvlan or bridge, in whatever network namespace), those on netfilter's
 * hooks, and whether IPv4 looks up every source. Programs that user space runs when it wants to
 * know; nothing is attached.
 */
#include "target/bytes.h"
#include "target/kernel.h"
#include "abi.h"

struct hlist_node {
	struct hlist_node *next;
} FW_CORE;

struct hlist_head {
	struct hlist_node *first;
} FW_CORE;

struct nf_hook_entry {
	void *hook;
	void *priv;
} FW_CORE;

struct nf_hook_entries {
	__u16 num_hook_entries;
	struct nf_hook_entry hooks[1];
} FW_CORE;

struct netns_ipv4 {
	_Bool fib_has_custom_local_routes;
} FW_CORE;

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[FW_HOOKS];
	struct nf_hook_entries *hooks_ipv6[FW_HOOKS];
	struct nf_hook_entries *hooks_bridge[FW_HOOKS];
} FW_CORE;

struct net___hooked {
	struct hlist_head *dev_index_head;
	struct netns_ipv4 ipv4;
	struct netns_nf nf;
} FW_CORE;

struct net_device___hooked {
	int ifindex;
	struct hlist_node index_hlist;
	void *rx_handler;
	struct nf_hook_entries *nf_hooks_ingress;
	struct nf_hook_entries *nf_hooks_egress;
} FW_CORE;

struct nsproxy {
	struct net___hooked *net_ns;
} FW_CORE;

struct task_struct {
	struct nsproxy *nsproxy;
} FW_CORE;

enum {
	/* NETDEV_HASHENTRIES */
	DEV_HASH = 256,
	/* Devices of one hash that are looked at. */
	DEV_CHAIN_MAX = 64,
};

/* One question at a time. */
struct fw_hooked fw_hooked SEC(".data.hooked") = {};

static __always_inline const struct net___hooked *net_here(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, nsproxy, net_ns);
}

/* By the name of whoever has such a function, which is hidden from those who read addresses. */
static __always_inline void name(__u32 at, const void *function)
{
	__u64 args[] = {(__u64)function};

	if (at < FW_HOOKED_MAX)
		bpf_snprintf((char *)fw_hooked.names[at], FW_HOOKED_NAME, "%ps", args,
			     sizeof(args));
}

static __always_inline const struct net_device___hooked *device_at(const struct net___hooked *net,
								   __u32 ifindex)
{
	const struct hlist_head *heads = BPF_CORE_READ(net, dev_index_head);
	const struct hlist_node *node = NULL;

	bpf_probe_read_kernel(&node, sizeof(node), heads + (ifindex & (DEV_HASH - 1)));
	for (int i = 0; i < DEV_CHAIN_MAX && node; i++) {
		const struct net_device___hooked *dev =
			(const void *)node -
			bpf_core_field_offset(struct net_device___hooked, index_hlist);

		if (BPF_CORE_READ(dev, ifindex) == (int)ifindex)
			return dev;
		node = BPF_CORE_READ(node, next);
	}
	return NULL;
}

/* 0: there is no such device, or too many have its hash. */
SEC("syscall")
int freeway_rx_handler(struct fw_hooked_at *asked)
{
	const struct net_device___hooked *dev = device_at(net_here(), asked->ifindex);
	const void *function;

	fw_hooked.count = 0;
	if (!dev)
		return 0;
	function = BPF_CORE_READ(dev, rx_handler);
	if (function) {
		name(0, function);
		fw_hooked.count = 1;
	}
	return 1;
}

/* Where the kernel has the functions of a hook, or NULL: it has no such hook. */
static __always_inline const void *place_of(const struct fw_hooked_at *asked)
{
	const struct net___hooked *net = net_here();
	__u64 at = asked->hook * sizeof(void *);

	if (asked->hook >= FW_HOOKS)
		return NULL;
	if (asked->family == FW_NF_IPV4)
		return (void *)__builtin_preserve_access_index(&net->nf.hooks_ipv4) + at;
	if (asked->family == FW_NF_IPV6)
		return (void *)__builtin_preserve_access_index(&net->nf.hooks_ipv6) + at;
	if (asked->family == FW_NF_BRIDGE && bpf_core_field_exists(net->nf.hooks_bridge))
		return (void *)__builtin_preserve_access_index(&net->nf.hooks_bridge) + at;
	return NULL;
}

static __always_inline int tell(const void *place)
{
	const struct nf_hook_entries *entries = NULL, *then = NULL;
	__u32 count = 0;

	fw_hooked.count = 0;
	if (!place)
		return 1;
	bpf_probe_read_kernel(&entries, sizeof(entries), place);
	if (entries)
		count = BPF_CORE_READ(entries, num_hook_entries);
	for (__u32 i = 0; i < FW_HOOKED_MAX && i < count; i++) {
		const struct nf_hook_entry *entry =
			__builtin_preserve_access_index(&entries->hooks[0]);

		name(i, BPF_CORE_READ(entry + i, hook));
	}
	fw_hooked.count = count;
	/* others are put in place as a whole, and these may have been freed */
	bpf_probe_read_kernel(&then, sizeof(then), place);
	return then == entries;
}

/* 0: they changed meanwhile. */
SEC("syscall")
int freeway_nf_hooks(struct fw_hooked_at *asked)
{
	return tell(place_of(asked));
}

/* The same of a device's own hooks: 0 is ingress, 1 egress. */
SEC("syscall")
int freeway_netdev_hooks(struct fw_hooked_at *asked)
{
	const struct net_device___hooked *dev = device_at(net_here(), asked->ifindex);
	const void *place = NULL;

	if (!dev)
		return 0;
	if (asked->hook == 0 && bpf_core_field_exists(dev->nf_hooks_ingress))
		place = __builtin_preserve_access_index(&dev->nf_hooks_ingress);
	if (asked->hook == 1 && bpf_core_field_exists(dev->nf_hooks_egress))
		place = __builtin_preserve_access_index(&dev->nf_hooks_egress);
	return tell(place);
}

/* fib_validate_source(): 1, sources are looked up, whatever rp_filter says; 2: they are not. */
SEC("syscall")
int freeway_source_check(struct fw_hooked_at *asked)
{
	const struct net___hooked *net = net_here();

	return BPF_CORE_READ(net, ipv4.fib_has_custom_local_routes) ? 1 : 2;
}

char LICENSE[] SEC("license") = "GPL";
