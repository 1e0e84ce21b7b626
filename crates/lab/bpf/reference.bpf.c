// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a router's port costs at the very least: programs to measure against. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

static __always_inline void count(void)
{
	__u32 zero = 0;
	__u64 *seen = bpf_map_lookup_elem(&frames, &zero);

	if (seen)
		++*seen;
}

SEC("xdp")
int xdp_drop(struct xdp_md *ctx)
{
	count();
	return XDP_DROP;
}

SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int xdp_redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

SEC("tc")
int tc_drop(struct __sk_buff *skb)
{
	count();
	return 2; /* TC_ACT_SHOT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
