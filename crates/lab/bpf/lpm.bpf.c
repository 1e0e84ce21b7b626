// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Routes in an LPM trie, asked from XDP: what a router costs that keeps a table of its own in the
 * map that BPF has for that, and next hops with all that a frame gets in an array. IPv4 only; it
 * translates nothing; no filter, connection or queueing discipline sees what it has.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "peer.h"

enum {
	ROUTES_MAX = 1000000,
	NEXT_HOPS_MAX = 256,
};

struct prefix {
	__u32 len;
	__u32 address;
};

struct next_hop {
	__u32 macs[3]; /* destination and source, as in the frame */
	__u32 port;
};

/* The number of each route's next hop. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, ROUTES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NEXT_HOPS_MAX);
	__type(key, __u32);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

SEC("xdp")
int xdp_lpm(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct prefix to = {.len = 32};
	struct next_hop *hop;
	__u32 *number;

	if (data + V4_L4 > end || U16(data, ETHERTYPE) != bpf_htons(TYPE_IPV4) ||
	    U8(data, ETH_LEN) != V4_NO_OPTIONS || U8(data, V4_TTL) <= 1)
		return pass();
	to.address = U32(data, V4_DADDR);
	number = bpf_map_lookup_elem(&routes, &to);
	if (!number)
		return pass();
	hop = bpf_map_lookup_elem(&next_hops, number);
	if (!hop)
		return pass();
	decrease_ttl(data, U16(data, V4_CSUM));
	U32(data, 0) = hop->macs[0];
	U32(data, 4) = hop->macs[1];
	U32(data, 8) = hop->macs[2];
	return bpf_redirect_map(&ports, hop->port, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
