/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of prefix paths, which all programs that forward by them share, and what is a port's
 * own: fw_route_next, fw_route_here. The engine maps the former: engine/routes.h. */
#ifndef FW_ROUTE_MAPS_H
#define FW_ROUTE_MAPS_H

#include "abi.h"
#include "prefix4.h"
#include "prefix6.h"
#include "routing.h"

/* The fast path. */
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
struct fw_route_here fw_route_here[FW_TARGET_IS_TC ? 1 : FW_ROUTE_VLANS] SEC(".data.here") = {};
/* The engine's alone. */
struct fw_route_entrance fw_route_entrances[FW_ROUTE_ENTRANCES] SEC(".data.entrances") = {};
/* Resized before loading. */
struct fw_route_count fw_route_counts[1] SEC(".data.counts") = {};

static __always_inline const struct fw_prefix4 *fw_prefix4_get(void)
{
	return &fw_prefixes4;
}

static __always_inline const struct fw_prefix6 *fw_prefix6_get(void)
{
	return &fw_prefixes6;
}

static __always_inline struct fw_routes *fw_routes_get(void)
{
	return &fw_routes;
}

/* Of a leaf, by who forwards. */
static __always_inline struct fw_route_count *fw_route_count_get(__u32 leaf)
{
	struct fw_route_count *base = fw_route_counts;
	__u64 index = fw_cpu_id() * FW_LEAVES + leaf;

	index &= fw_route_cfg.count_mask;
	/* hide the array's nominal size of one */
	asm volatile("" : "+r"(base), "+r"(index));
	__builtin_assume(base + index != NULL);
	return base + index;
}

/* Programs run under RCU: what they have read stays what it was until they have ended. */
static __always_inline const struct fw_hop *fw_hop_hold(const struct fw_hop *hop,
							struct fw_hop *held, __u32 seq)
{
	(void)held;
	(void)seq;
	return hop;
}

#endif
