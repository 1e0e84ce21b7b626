/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP ahead of everything else at a port with limits of what sources may send. One object for each
 * such port, which share the buckets; other ports have nothing of it.
 */
#include "target/ahead.h"

/* Each port's own. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_ratelimit_next);

const volatile struct fw_ratelimit_config fw_ratelimit_cfg SEC(".rodata.ratelimit") = {.shift = 63};
struct fw_ratelimit fw_ratelimit SEC(".data.ratelimit") = {};
struct fw_ratelimit_here fw_ratelimit_here SEC(".data.here") = {};
/* Resized before loading. */
struct fw_ratelimit_bucket fw_ratelimit_buckets[1] SEC(".data.buckets") = {};
struct fw_ratelimit_count fw_ratelimit_counts[1] SEC(".data.counts") = {};

/* the verifier sees by the shift how many there are */
FW_ELEMENT(fw_ratelimit_bucket_get, struct fw_ratelimit_bucket, fw_ratelimit_buckets, )
FW_ELEMENT(fw_ratelimit_count_get, struct fw_ratelimit_count, fw_ratelimit_counts,
	   index &= fw_ratelimit_cfg.count_mask)

/* In ticks, and never wraps. */
static __always_inline __u64 fw_now_long(void)
{
	return bpf_jiffies64();
}

#include "ratelimit.h"

SEC("xdp")
int freeway_limit(struct xdp_md *ctx)
{
	if (fw_ratelimit_drops((void *)(long)ctx->data, (void *)(long)ctx->data_end))
		return XDP_DROP;
	bpf_tail_call(ctx, &fw_ratelimit_next, 0);
	/* the daemon has gone, and the kernel has emptied the map */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
