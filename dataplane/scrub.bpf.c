/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP ahead of the fast path at a port with rules that drop by sets. One object for each such port,
 * which share the tables; other ports have the fast path alone.
 */
#include "target/ahead.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_scrub_next);

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 24);
	__type(key, struct fw_scrub_net4);
	__type(value, struct fw_scrub_net);
} FW_MAP(fw_scrub_nets4);

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 24);
	__type(key, struct fw_scrub_net6);
	__type(value, struct fw_scrub_net);
} FW_MAP(fw_scrub_nets6);

const volatile struct fw_scrub_config fw_scrub_cfg SEC(".rodata.scrub") = {.hz = 250};
struct fw_scrub fw_scrub SEC(".data.scrub") = {};
struct fw_scrub_here fw_scrub_here SEC(".data.here") = {};
/* Resized before loading. */
struct fw_scrub4 fw_scrub_table4[1] SEC(".data.scrub4") = {};
struct fw_scrub_side4 fw_scrub_sides4[1] SEC(".data.sides4") = {};
struct fw_scrub6 fw_scrub_table6[1] SEC(".data.scrub6") = {};
struct fw_scrub_count fw_scrub_counts[1] SEC(".data.counts") = {};

/* from an address's home on: the verifier sees by the shift how many there are */
FW_ELEMENT(fw_scrub4_get, struct fw_scrub4, fw_scrub_table4, )
FW_ELEMENT(fw_scrub_side4_get, struct fw_scrub_side4, fw_scrub_sides4, )
FW_ELEMENT(fw_scrub6_get, struct fw_scrub6, fw_scrub_table6, index &= fw_scrub_cfg.mask6)
FW_ELEMENT(fw_scrub_count_get, struct fw_scrub_count, fw_scrub_counts,
	   index &= fw_scrub_cfg.count_mask)

static __always_inline __u32 fw_now(void)
{
	return bpf_jiffies64();
}

static __always_inline struct fw_scrub_net *fw_scrub_net4_get(__u32 addr_be)
{
	struct fw_scrub_net4 key = {.len = 32, .addr_be = addr_be};

	return bpf_map_lookup_elem(&fw_scrub_nets4, &key);
}

static __always_inline struct fw_scrub_net *fw_scrub_net6_get(const __u64 addr[2])
{
	struct fw_scrub_net6 key = {.len = 128};

	__builtin_memcpy(key.addr_be, addr, sizeof(key.addr_be));
	return bpf_map_lookup_elem(&fw_scrub_nets6, &key);
}

#include "scrub.h"

SEC("xdp")
int freeway_scrub(struct xdp_md *ctx)
{
	if (fw_scrub_drops((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_DROP;
	bpf_tail_call(ctx, &fw_scrub_next, 0);
	/* the daemon has gone, and the kernel has emptied the map */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
