// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The receiving end of a stream: counts and drops its frames, and notes how long those took that
 * have the time in their payload. All else is left to the stack. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

enum {
	/* 64 buckets for each power of two, up to 2^37 ns. */
	SUB_BITS = 6,
	BUCKETS = 2048,
};

struct meter_counts {
	__u64 frames;
	__u64 bytes; /* frame memory, without FCS */
	__u64 other; /* left to the stack */
	__u64 early; /* the time in them had not come yet */
	__u64 max_ns;
	__u64 buckets[BUCKETS];
};

struct meter_config {
	__u8 v6;
	__u8 only; /* whole frames to the addresses and port below; others are left to the stack */
	__u16 dport_be;
	__u16 mac_be[3];
	__u32 daddr_be[4];
	__u8 frags; /* frames may have several pages */
};

const volatile struct meter_config config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meter_counts);
} counts SEC(".maps");

/* The bucket of a value: itself below 128, then the seven highest bits and how many follow. */
static __always_inline __u32 bucket(__u64 value)
{
	__u32 shift = 0;

#pragma unroll
	for (int step = 32; step; step /= 2)
		if (value >> shift >> (SUB_BITS + step))
			shift += step;
	__u32 index = (shift << SUB_BITS) + (value >> shift);

	return index < BUCKETS ? index : BUCKETS - 1;
}

/* Whether a frame is whole and goes where those go that are wanted: not what a switch floods, nor
 * what a router has cut in pieces. */
static __always_inline int wanted(void *data, const int v6)
{
	const int daddr = v6 ? V6_DADDR : V4_DADDR;
	__u32 differs = U16(data, (v6 ? V6_L4 : V4_L4) + 2) ^ config.dport_be;

	if (!v6)
		differs |= U16(data, V4_FRAG) & bpf_htons(V4_FRAG_PART);
	for (int i = 0; i < 3; i++)
		differs |= U16(data, i * 2) ^ config.mac_be[i];
	for (int i = 0; i < (v6 ? 4 : 1); i++)
		differs |= U32(data, daddr + i * 4) ^ config.daddr_be[i];
	return !differs;
}

SEC("xdp")
int meter(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	const int v6 = config.v6;
	const int payload = (v6 ? V6_L4 : V4_L4) + UDP_LEN;
	__u32 zero = 0;
	struct meter_counts *count = bpf_map_lookup_elem(&counts, &zero);
	__u64 stamp, took_ns, now_ns;

	if (!count)
		return XDP_ABORTED;
	if (data + payload + 8 > end ||
	    U16(data, ETHERTYPE) != bpf_htons(v6 ? TYPE_IPV6 : TYPE_IPV4) ||
	    U8(data, v6 ? V6_NEXT : V4_PROTO) != PROTO_UDP || (config.only && !wanted(data, v6))) {
		count->other++;
		return XDP_PASS;
	}
	count->frames++;
	count->bytes += config.frags ? bpf_xdp_get_buff_len(ctx) : end - data;
	stamp = bpf_be64_to_cpu(U64(data, payload));
	if (!stamp)
		return XDP_DROP;
	now_ns = bpf_ktime_get_ns();
	if (now_ns < stamp) {
		count->early++;
		return XDP_DROP;
	}
	took_ns = now_ns - stamp;
	if (took_ns > count->max_ns)
		count->max_ns = took_ns;
	count->buckets[bucket(took_ns) & (BUCKETS - 1)]++;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
