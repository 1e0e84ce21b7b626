// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A port that takes frames no faster than a wire of some rate: it holds its poll until a frame's
 * time on the wire is over, so that the ring of whoever sends to it fills. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Preamble, frame check sequence and gap between frames (IEEE 802.3). */
enum {
	WIRE_OVERHEAD = 24,
	LOOKS_MAX = 1 << 16,
};

/* Picoseconds for an octet. */
const volatile __u64 octet_ps;

static __u64 free_ns;

static long wait(__u32 look, void *until_ns)
{
	return bpf_ktime_get_ns() >= *(__u64 *)until_ns;
}

SEC("xdp")
int rate(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns(), until = free_ns;

	if ((__s64)(until - now) < 0)
		until = now;
	until += (ctx->data_end - ctx->data + WIRE_OVERHEAD) * octet_ps / 1000;
	free_ns = until;
	bpf_loop(LOOKS_MAX, wait, &until, 0);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
