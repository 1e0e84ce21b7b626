/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The lookup in a program of its own, for the test that the verifier takes it and that it answers
 * alike. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "prefix4.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_prefix4);
} prefixes SEC(".maps");

/* As bpf_fib_lookup() would be called: a packet's address, in the first octets of what is given. */
SEC("xdp")
int lookup(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct fw_prefix4 *table;
	__u32 first = 0;

	if (data + sizeof(__u32) > end)
		return -1;
	table = bpf_map_lookup_elem(&prefixes, &first);
	return table ? (int)fw_prefix4_lookup(table, *(const __u32 *)data) : -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
