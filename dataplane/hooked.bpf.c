/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who is hooked into the way of packets where netlink does not tell: the function that takes a
 * device's frames (rx_handler: a macvlan, ipvlan or bridge, in whatever network namespace), and
 * those on netfilter's hooks. Asked once a second; nothing is attached.
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

struct netns_nf {
	struct nf_hook_entries *hooks_ipv4[FW_HOOKS];
	struct nf_hook_entries *hooks_ipv6[FW_HOOKS];
	struct nf_hook_entries *hooks_bridge[FW_HOOKS];
} FW_CORE;

struct net___hooked {
	struct hlist_head *dev_index_head;
	struct netns_nf nf;
} FW_CORE;

struct net_device___hooked {
	int ifindex;
	struct hlist_node index_hlist;
	void *rx_handler;
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

/* 0: there is no such device, or too many have its hash. */
SEC("syscall")
int freeway_rx_handler(struct fw_hooked_at *asked)
{
	const struct net___hooked *net = net_here();
	__u32 ifindex = asked->ifindex;
	const struct hlist_head *heads = BPF_CORE_READ(net, dev_index_head);
	const struct hlist_node *node = NULL;

	fw_hooked.count = 0;
	bpf_probe_read_kernel(&node, sizeof(node), heads + (ifindex & (DEV_HASH - 1)));
	for (int i = 0; i < DEV_CHAIN_MAX && node; i++) {
		const struct net_device___hooked *dev =
			(const void *)node -
			bpf_core_field_offset(struct net_device___hooked, index_hlist);

		if (BPF_CORE_READ(dev, ifindex) == (int)ifindex) {
			const void *function = BPF_CORE_READ(dev, rx_handler);

			if (function) {
				name(0, function);
				fw_hooked.count = 1;
			}
			return 1;
		}
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

static __always_inline const struct nf_hook_entries *entries_of(const struct net___hooked *net,
								__u32 family, __u32 hook)
{
	const struct nf_hook_entries *entries = NULL;
	const void *at = NULL;

	if (hook >= FW_HOOKS)
		return NULL;
	if (family == FW_NF_IPV4)
		at = __builtin_preserve_access_index(&net->nf.hooks_ipv4);
	else if (family == FW_NF_IPV6)
		at = __builtin_preserve_access_index(&net->nf.hooks_ipv6);
	else if (family == FW_NF_BRIDGE && bpf_core_field_exists(net->nf.hooks_bridge))
		at = __builtin_preserve_access_index(&net->nf.hooks_bridge);
	if (at)
		bpf_probe_read_kernel(&entries, sizeof(entries), at + hook * sizeof(entries));
	return entries;
}

/* 1: of a hook without functions as well. */
SEC("syscall")
int freeway_nf_hooks(struct fw_hooked_at *asked)
{
	const struct nf_hook_entries *entries = entries_of(net_here(), asked->family, asked->hook);
	__u32 count;

	fw_hooked.count = 0;
	if (!entries)
		return 1;
	count = BPF_CORE_READ(entries, num_hook_entries);
	for (__u32 i = 0; i < FW_HOOKED_MAX && i < count; i++) {
		const struct nf_hook_entry *entry =
			__builtin_preserve_access_index(&entries->hooks[0]);

		name(i, BPF_CORE_READ(entry + i, hook));
	}
	fw_hooked.count = count;
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
