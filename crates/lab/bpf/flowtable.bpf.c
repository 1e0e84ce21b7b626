// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The kernel's flow table from XDP: bpf_xdp_flow_lookup() (Linux 6.13) says what a packet's tuple
 * becomes, the kernel's FIB where it goes, and the program does the rest. What ends a connection
 * is the kernel's, as in nf_flow_offload_ip_hook().
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "peer.h"

enum {
	FAMILY_IPV4 = 2, /* AF_INET */
	FAMILY_IPV6 = 10,
	V6_HOP_LIMIT = ETH_LEN + 7,
	V4_FRAGMENT = 0x3fff, /* IP_OFFSET | IP_MF */
	UDP_CSUM = 6,
	TCP_CSUM = 16,
	TCP_FLAGS = 13,
	TCP_ENDS = 0x05, /* FIN, RST */
};

/* Of the kernel's, what is used. */
struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
} __attribute__((preserve_access_index));

struct flow_offload_tuple {
	struct in6_addr src_v6;
	__u8 dir : 2;
} __attribute__((preserve_access_index));

struct flow_offload_tuple_rhash {
	struct flow_offload_tuple tuple;
} __attribute__((preserve_access_index));

struct bpf_flowtable_opts {
	__s32 error;
};

struct flow_offload_tuple_rhash *bpf_xdp_flow_lookup(struct xdp_md *ctx, struct bpf_fib_lookup *key,
						     struct bpf_flowtable_opts *opts,
						     __u32 opts_size) __ksym;

/* Addresses and ports as struct flow_offload_tuple begins; an IPv4 address is the first word. */
struct tuple {
	__be32 src[4], dst[4];
	__be16 sport, dport;
};

/* The other direction's tuple is the packet's as it leaves, turned round; they lie side by side. */
static __always_inline bool translated(struct flow_offload_tuple_rhash *found, struct tuple *out)
{
	__u64 size = bpf_core_type_size(struct flow_offload_tuple_rhash);
	__u64 src = bpf_core_field_offset(struct flow_offload_tuple_rhash, tuple) +
		    bpf_core_field_offset(struct flow_offload_tuple, src_v6);
	void *other = (void *)found;
	struct tuple back;

	if (BPF_CORE_READ_BITFIELD_PROBED(&found->tuple, dir))
		other -= size;
	else
		other += size;
	if (bpf_probe_read_kernel(&back, sizeof(back), other + src))
		return false;
	__builtin_memcpy(out->src, back.dst, 16);
	__builtin_memcpy(out->dst, back.src, 16);
	out->sport = back.dport;
	out->dport = back.sport;
	return true;
}

static __always_inline __u16 update(__u16 csum, __u32 difference)
{
	return ~csum_fold((__u16)~csum + csum_fold(difference));
}

SEC("xdp")
int xdp_flowtable(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct bpf_fib_lookup fib = {.ifindex = ctx->ingress_ifindex};
	struct bpf_flowtable_opts opts = {};
	struct flow_offload_tuple_rhash *found;
	struct tuple in = {}, out;
	__u32 words, addrs, sums, csum;
	bool v4;
	void *l4;

	if (data + V4_L4 > end)
		return pass();
	v4 = U16(data, ETHERTYPE) == bpf_htons(TYPE_IPV4);
	if (v4) {
		if (U8(data, ETH_LEN) != V4_NO_OPTIONS || U8(data, V4_TTL) <= 1 ||
		    U16(data, V4_FRAG) & bpf_htons(V4_FRAGMENT))
			return pass();
		fib.family = FAMILY_IPV4;
		fib.tos = U8(data, ETH_LEN + 1);
		fib.l4_protocol = U8(data, V4_PROTO);
		fib.tot_len = bpf_ntohs(U16(data, V4_TOT_LEN));
		in.src[0] = U32(data, V4_SADDR);
		in.dst[0] = U32(data, V4_DADDR);
		l4 = data + V4_L4;
	} else {
		if (U16(data, ETHERTYPE) != bpf_htons(TYPE_IPV6) || data + V6_L4 > end ||
		    U8(data, V6_HOP_LIMIT) <= 1)
			return pass();
		fib.family = FAMILY_IPV6;
		fib.flowinfo = U32(data, ETH_LEN) & bpf_htonl(0x0fffffff);
		fib.l4_protocol = U8(data, V6_NEXT);
		fib.tot_len = bpf_ntohs(U16(data, V6_PAYLOAD_LEN)) + IPV6_LEN;
		__builtin_memcpy(in.src, data + V6_SADDR, 16);
		__builtin_memcpy(in.dst, data + V6_DADDR, 16);
		l4 = data + V6_L4;
	}
	if (l4 + UDP_LEN > end)
		return pass();
	csum = UDP_CSUM;
	if (fib.l4_protocol == PROTO_TCP) {
		if (l4 + TCP_LEN > end || U8(l4, TCP_FLAGS) & TCP_ENDS)
			return pass();
		csum = TCP_CSUM;
	} else if (fib.l4_protocol != PROTO_UDP) {
		return pass();
	}
	in.sport = U16(l4, 0);
	in.dport = U16(l4, 2);
	fib.sport = in.sport;
	fib.dport = in.dport;
	__builtin_memcpy(fib.ipv6_src, in.src, 16);
	__builtin_memcpy(fib.ipv6_dst, in.dst, 16);
	found = bpf_xdp_flow_lookup(ctx, &fib, &opts, sizeof(opts));
	if (!found || !translated(found, &out))
		return pass();
	__builtin_memcpy(fib.ipv6_src, out.src, 16);
	__builtin_memcpy(fib.ipv6_dst, out.dst, 16);
	fib.sport = out.sport;
	fib.dport = out.dport;
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS ||
	    !bpf_map_lookup_elem(&ports, &fib.ifindex))
		return pass();

	words = v4 ? 4 : 16;
	addrs = bpf_csum_diff(in.src, words, out.src, words, 0);
	addrs = bpf_csum_diff(in.dst, words, out.dst, words, addrs);
	sums = bpf_csum_diff((__be32 *)&in.sport, 4, (__be32 *)&out.sport, 4, addrs);
	if (fib.l4_protocol == PROTO_TCP || U16(l4, csum)) {
		__u16 sum = update(csum == TCP_CSUM ? U16(l4, TCP_CSUM) : U16(l4, UDP_CSUM), sums);

		if (csum == TCP_CSUM)
			U16(l4, TCP_CSUM) = sum;
		else
			U16(l4, UDP_CSUM) = sum ?: 0xffff;
	}
	U16(l4, 0) = out.sport;
	U16(l4, 2) = out.dport;
	if (v4) {
		__u32 sum = update(U16(data, V4_CSUM), addrs);

		U32(data, V4_SADDR) = out.src[0];
		U32(data, V4_DADDR) = out.dst[0];
		decrease_ttl(data, sum);
	} else {
		__builtin_memcpy(data + V6_SADDR, out.src, 16);
		__builtin_memcpy(data + V6_DADDR, out.dst, 16);
		U8(data, V6_HOP_LIMIT)--;
	}
	__builtin_memcpy(data, fib.dmac, 6);
	__builtin_memcpy(data + 6, fib.smac, 6);
	return bpf_redirect_map(&ports, fib.ifindex, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
