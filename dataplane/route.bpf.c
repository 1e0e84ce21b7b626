/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP ahead of the fast path at a port where the destination alone decides. One object for each
 * such port, which share the tables; other ports have the fast path alone.
 */
#include "target/xdp.h"
#include "prefix4.h"
#include "prefix6.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_route_next);

const volatile struct fw_route_config fw_route_cfg SEC(".rodata.route") = {};
/* Of zeroes, which take no place in the object. */
struct fw_prefix4 fw_prefixes4 SEC(".bss.prefixes4");
struct fw_prefix6 fw_prefixes6 SEC(".bss.prefixes6");
struct fw_routes fw_routes SEC(".data.routes") = {};
struct fw_route_here fw_route_here SEC(".data.here") = {};
/* Resized before loading. */
struct fw_route_count fw_route_counts[1] SEC(".data.counts") = {};

static __always_inline struct fw_route_count *fw_route_count_get(__u64 index)
{
	struct fw_route_count *base = fw_route_counts;

	index &= fw_route_cfg.count_mask;
	/* hide the array's nominal size of one */
	asm volatile("" : "+r"(base), "+r"(index));
	__builtin_assume(base + index != NULL);
	return base + index;
}

#include "route.h"

SEC("xdp")
int freeway_route(struct xdp_md *ctx)
{
	const struct fw_hop *hop = NULL;
	enum fw_routing routing = fw_route(ctx, &hop);

	if (fw_likely(routing == FW_ROUTING_SENDS && hop))
		return bpf_redirect_map(&fw_ports, hop->devmap_slot, XDP_PASS);
	if (routing == FW_ROUTING_ASKS)
		return XDP_PASS;
	bpf_tail_call(ctx, &fw_route_next, 0);
	/* the daemon has gone, and the kernel has emptied the map */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
