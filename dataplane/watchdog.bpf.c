/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Drivers drop redirected frames after XDP was told of success. Only the xdp
 * tracepoints know; this counts them by egress port. And the clock.
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "target/bytes.h"
#include "target/kernel.h"
#include "abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct fw_port_fault);
} fw_faults SEC(".maps");

struct bpf_prog;

/* The daemon's network namespace, as its inode is numbered; 0: it is not known. */
const volatile __u32 fw_netns SEC(".rodata.netns") = 0;

/* Other namespaces have ports of the same numbers, and tell of them here, too. */
static int is_ours(const struct net_device *dev)
{
	return !fw_netns || fw_netns_of(dev) == fw_netns;
}

static void fault(__u32 ifindex, __u32 frames, int error)
{
	/* Not the driver's: the port went down or its MTU shrank a moment ago, and
	 * netlink tells the daemon so; or there was no memory for a copy. */
	if (error == -ENETDOWN || error == -EMSGSIZE || error == -ENOMEM)
		return;
	/* Only ports that the daemon has entered are watched. */
	struct fw_port_fault *f = bpf_map_lookup_elem(&fw_faults, &ifindex);

	if (!f)
		return;
	__sync_fetch_and_add(&f->failed, frames);
	f->error = error;
}

static void overflow(__u32 ifindex, __u32 frames)
{
	struct fw_port_fault *f = bpf_map_lookup_elem(&fw_faults, &ifindex);

	if (f)
		__sync_fetch_and_add(&f->overflowed, frames);
}

/* A full ring drops too, but without an error: that is overload, not a fault. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(freeway_devmap_xmit, const struct net_device *from, const struct net_device *to,
	     int sent, int drops, int err)
{
	if (drops <= 0 || !to || !is_ours(to))
		return 0;
	if (err < 0)
		fault(to->ifindex, drops, err);
	else
		overflow(to->ifindex, drops);
	return 0;
}

/* Raw: before 6.13 the verifier takes an argument of type const void * for no type at all. */
SEC("raw_tp/xdp_redirect_err")
int BPF_PROG(freeway_redirect_err, const struct net_device *dev, const struct bpf_prog *prog,
	     const void *target, int err)
{
	/* The target is a device in a devmap's element: the first member. */
	const struct net_device *to = NULL;

	if (!target)
		return 0;
	bpf_probe_read_kernel(&to, sizeof(to), target);
	if (to && is_ours(to))
		fault(BPF_CORE_READ(to, ifindex), 1, err);
	return 0;
}

SEC("syscall")
int freeway_clock(struct fw_clock *clock)
{
	clock->tick = bpf_jiffies64();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
