/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the two BPF targets share: maps, clock, counters, events. */
#ifndef FW_TARGET_BPF_H
#define FW_TARGET_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bytes.h"
#include "../abi.h"

/* What closes a connection is judged here, not left to the kernel. */
#define FW_TARGET_JUDGES 1

/* The XDP and the tc object each define the maps; the loader makes them one. */
#define FW_MAP(name) name SEC(".maps")

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, FW_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} FW_MAP(fw_ports);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FW_OLISTS);
	__type(key, __u32);
	__type(value, struct fw_olist);
} FW_MAP(fw_olists);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_PORTS_MAX);
	__type(key, struct fw_framing);
	__type(value, struct fw_framed);
} FW_MAP(fw_framings);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FW_SLOTS);
	__type(key, __u32);
	__type(value, struct fw_slot);
} FW_MAP(fw_slots);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FW_OFFER_SETS);
	__type(key, __u32);
	__type(value, struct fw_offer_set);
} FW_MAP(fw_offers);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FW_OFFER_SETS);
	__type(key, __u32);
	__type(value, struct fw_observation_set);
} FW_MAP(fw_observations);

/* Resized before loading: a byte for each flow. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_seen);
} FW_MAP(fw_seen_flows);

/* Resized before loading: one for each flow. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_kept);
} FW_MAP(fw_kept_flows);

/* Resized before loading. The least recently used makes room: those of long idle or ended ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct fw_edge);
} FW_MAP(fw_edges);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_cpu);
} FW_MAP(fw_cpus);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FW_REASONS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} FW_MAP(fw_reasons);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FW_REASONS_MAX);
	__type(key, __u32);
	__type(value, struct fw_policer);
} FW_MAP(fw_policers);

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FW_EVENTS_SIZE);
} FW_MAP(fw_events);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_watch);
} FW_MAP(fw_watches);

struct fw_control fw_ctl SEC(".data.control") = {.epoch = 1};
const volatile struct fw_config fw_cfg SEC(".rodata.config") = {.hz = 250};

/*
 * The arrays that a hit reads are global data, resized before loading to a
 * power of two: an access is arithmetic and a mask that the verifier knows,
 * without a helper call, a NULL check or a way over the stack.
 */
struct fw_flow fw_flows[1] SEC(".data.flows");
struct fw_nexthop fw_nexthops[1] SEC(".data.nexthops");
struct fw_hop fw_hops[1] SEC(".data.hops") = {};

#define FW_ELEMENT(name, type, array, mask)                                                        \
	static __always_inline type *name(__u64 index)                                             \
	{                                                                                          \
		type *base = (type *)(array);                                                      \
                                                                                                   \
		index &= (mask);                                                                   \
		/* hide the array's nominal size of one */                                         \
		asm volatile("" : "+r"(base), "+r"(index));                                        \
		__builtin_assume(base + index != NULL);                                            \
		return base + index;                                                               \
	}
FW_ELEMENT(fw_flow_get, struct fw_flow, fw_flows, fw_cfg.flow_mask)
FW_ELEMENT(fw_nexthop_get, struct fw_nexthop, fw_nexthops, fw_cfg.nexthop_mask)
FW_ELEMENT(fw_hop_get, struct fw_hop, fw_hops, fw_cfg.hop_mask)
#undef FW_ELEMENT

/* Ahead of a frame: no mark of a copy, nor a driver's metadata. */
static __always_inline __u32 fw_route_magic(void)
{
	return ~fw_cfg.copy_magic;
}

/* In this kernel the call is one load of jiffies, inlined by the verifier. */
static __always_inline __u32 fw_now(void)
{
	return bpf_jiffies64();
}

#define FW_GETTER(name, type, map)                                                                 \
	static __always_inline struct type *name(__u32 index)                                      \
	{                                                                                          \
		return bpf_map_lookup_elem(&map, &index);                                          \
	}
FW_GETTER(fw_slot_get, fw_slot, fw_slots)
FW_GETTER(fw_offer_get, fw_offer_set, fw_offers)
FW_GETTER(fw_observation_get, fw_observation_set, fw_observations)
FW_GETTER(fw_seen_get, fw_seen, fw_seen_flows)
FW_GETTER(fw_kept_get, fw_kept, fw_kept_flows)
FW_GETTER(fw_policer_get, fw_policer, fw_policers)
FW_GETTER(fw_olist_get, fw_olist, fw_olists)
#undef FW_GETTER

static __always_inline struct fw_edge *fw_edge_get(__u64 key)
{
	return bpf_map_lookup_elem(&fw_edges, &key);
}

static __always_inline struct fw_cpu *fw_cpu_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&fw_cpus, &zero);
}

static __always_inline const struct fw_watch *fw_watch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&fw_watches, &zero);
}

static __always_inline void fw_count(enum fw_reason reason)
{
	__u32 index = reason;
	__u64 *count = bpf_map_lookup_elem(&fw_reasons, &index);

	if (count)
		(*count)++;
}

static __always_inline __u32 fw_cpu_id(void)
{
	return bpf_get_smp_processor_id();
}

/* Half of the ring waits for its reader. */
static __always_inline int fw_events_crowded(void)
{
	return bpf_ringbuf_query(&fw_events, BPF_RB_AVAIL_DATA) >= FW_EVENTS_SIZE / 2;
}

static __always_inline void *fw_event_reserve(__u32 size)
{
	switch (size) {
	case sizeof(struct fw_event):
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_event), 0);
	case sizeof(struct fw_watch_event):
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_watch_event), 0);
	case sizeof(struct fw_dropped):
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_dropped), 0);
	case sizeof(struct fw_strayed):
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_strayed), 0);
	case sizeof(struct fw_crossed):
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_crossed), 0);
	default:
		return bpf_ringbuf_reserve(&fw_events, sizeof(struct fw_candidate), 0);
	}
}

/*
 * Waking the reader costs an interrupt, much more than the event: each CPU does so for
 * its first event of a tick, and the reader looks again when that tick is over.
 */
static __always_inline void fw_event_submit(void *event)
{
	struct fw_cpu *cpu = fw_cpu_get();
	__u64 wake = BPF_RB_FORCE_WAKEUP;
	__u32 next = fw_now() + 1;

	if (cpu && cpu->woken == next)
		wake = BPF_RB_NO_WAKEUP;
	else if (cpu)
		cpu->woken = next;
	bpf_ringbuf_submit(event, wake);
}

#endif
