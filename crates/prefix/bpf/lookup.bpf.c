/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The lookups in programs of their own, for the test that the verifier takes them and that they
 * answer alike. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "prefix4.h"
#include "prefix6.h"

#define TABLE(NAME, TYPE)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__uint(max_entries, 1);                                                            \
		__type(key, __u32);                                                                \
		__type(value, TYPE);                                                               \
	} NAME SEC(".maps")

TABLE(prefixes4, struct fw_prefix4);
TABLE(prefixes6, struct fw_prefix6);

/* As bpf_fib_lookup() would be called: a packet's address, in the first octets of what is given. */
SEC("xdp")
int lookup4(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct fw_prefix4 *table;
	__u32 first = 0;

	if (data + sizeof(__u32) > end)
		return -1;
	table = bpf_map_lookup_elem(&prefixes4, &first);
	return table ? (int)fw_prefix4_lookup(table, *(const __u32 *)data) : -1;
}

/* Of IPv6, in network order. */
SEC("xdp")
int lookup6(struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct fw_prefix6 *table;
	const __u64 *halves = data;
	__u32 first = 0;

	if (data + 2 * sizeof(__u64) > end)
		return -1;
	table = bpf_map_lookup_elem(&prefixes6, &first);
	return table ? (int)fw_prefix6_lookup(table, bpf_be64_to_cpu(halves[0]),
					      bpf_be64_to_cpu(halves[1]))
		     : -1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
