// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The kernel's FIB from XDP: what a router costs that asks the kernel for each packet's route and
 * neighbour and does the rest itself, after the kernel's own sample xdp_fwd. It
 * translates nothing; no filter, connection or queueing discipline sees what it has.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "peer.h"

enum {
	FAMILY_IPV4 = 2, /* AF_INET */
	FAMILY_IPV6 = 10,
	V6_HOP_LIMIT = ETH_LEN + 7,
};

SEC("xdp")
int xdp_fib(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct bpf_fib_lookup fib = {.ifindex = ctx->ingress_ifindex};
	__u16 type;

	if (data + V4_L4 > end)
		return pass();
	type = U16(data, ETHERTYPE);
	if (type == bpf_htons(TYPE_IPV4)) {
		if (U8(data, ETH_LEN) != V4_NO_OPTIONS || U8(data, V4_TTL) <= 1)
			return pass();
		fib.family = FAMILY_IPV4;
		fib.tos = U8(data, ETH_LEN + 1);
		fib.l4_protocol = U8(data, V4_PROTO);
		fib.tot_len = bpf_ntohs(U16(data, V4_TOT_LEN));
		fib.ipv4_src = U32(data, V4_SADDR);
		fib.ipv4_dst = U32(data, V4_DADDR);
	} else if (type == bpf_htons(TYPE_IPV6)) {
		if (data + V6_L4 > end || U8(data, V6_HOP_LIMIT) <= 1)
			return pass();
		fib.family = FAMILY_IPV6;
		fib.flowinfo = U32(data, ETH_LEN) & bpf_htonl(0x0fffffff);
		fib.l4_protocol = U8(data, V6_NEXT);
		fib.tot_len = bpf_ntohs(U16(data, V6_PAYLOAD_LEN)) + IPV6_LEN;
		__builtin_memcpy(fib.ipv6_src, data + V6_SADDR, 16);
		__builtin_memcpy(fib.ipv6_dst, data + V6_DADDR, 16);
	} else {
		return pass();
	}
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS ||
	    !bpf_map_lookup_elem(&ports, &fib.ifindex))
		return pass();
	if (type == bpf_htons(TYPE_IPV4)) {
		decrease_ttl(data, U16(data, V4_CSUM));
	} else {
		U8(data, V6_HOP_LIMIT)--;
	}
	__builtin_memcpy(data, fib.dmac, 6);
	__builtin_memcpy(data + 6, fib.smac, 6);
	return bpf_redirect_map(&ports, fib.ifindex, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
