/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc target: an skb, after GRO, on any device with an Ethernet header; target/raw.h: without
 * one. */
#ifndef FW_TARGET_TC_H
#define FW_TARGET_TC_H

#include "bpf.h"
#include "kernel.h"
#include "../parse.h"

#define FW_TARGET_IS_TC      1
#define FW_TARGET_OWNS       FW_FLOW_TC
#define FW_TARGET_HANDS      0
#define FW_TARGET_NOTES(ctx) 1
typedef struct __sk_buff fw_ctx;

#ifndef FW_TC_LINK_LEN
#define FW_TC_LINK_LEN FW_ETH_LEN
#endif

/* Where the link layer's header is, or would be: all offsets are as with one. */
static __always_inline void *fw_data(const fw_ctx *ctx)
{
	return (void *)(long)ctx->data + FW_TC_LINK_LEN - FW_ETH_LEN;
}

static __always_inline void *fw_data_end(const fw_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

static __always_inline __u32 fw_frame_len(const fw_ctx *ctx)
{
	return ctx->len + FW_ETH_LEN - FW_TC_LINK_LEN;
}

static __always_inline __u32 fw_port(const fw_ctx *ctx)
{
	return ctx->ifindex;
}

static __always_inline __u32 fw_gso_size(const fw_ctx *ctx)
{
	return ctx->gso_size;
}

/*
 * Merged frames whose segments are not known by their headers: of other protocols than TCP and UDP,
 * tunnels in UDP of what is merged (skb_gso_transport_seglen()), and UDP that is chained, whose
 * headers but the first one a program does not reach. Of 32-bit kernels all UDP.
 */
static __always_inline int fw_merged_otherwise(fw_ctx *ctx, __u8 proto)
{
	const struct sk_buff *skb = (void *)ctx;
	const struct skb_shared_info *shared;
	const void *head;
	__u32 end, type;

	if (fw_likely(!ctx->gso_size || proto == FW_PROTO_TCP))
		return 0;
	if (proto != FW_PROTO_UDP || bpf_core_field_size(skb->head) != sizeof(head) ||
	    bpf_core_read(&head, sizeof(head), &skb->head) ||
	    bpf_core_read(&end, sizeof(end), &skb->end))
		return 1;
	shared = head + end;
	return bpf_core_read(&type, sizeof(type), &shared->gso_type) ||
	       (type & ~FW_GSO_DODGY) != FW_GSO_UDP_L4;
}

static __always_inline __u32 fw_mark(const fw_ctx *ctx)
{
	return ctx->mark;
}

static __always_inline __u32 fw_priority(const fw_ctx *ctx)
{
	return ctx->priority;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_session_at);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FW_SESSIONS_MAX);
	__type(key, __u32);
	__type(value, struct fw_session);
} FW_MAP(fw_sessions);

/* Headers into the linear part; what does not fit is no flow. */
static __always_inline void fw_pull(fw_ctx *ctx)
{
	__u32 len = FW_ETH_LEN + FW_IP6_LEN + FW_TCP_LEN;
	__u64 linear = (__u64)ctx->data_end - (__u64)ctx->data;

	/* a length from here on: the verifier forbids 32-bit arithmetic on pointers */
	asm volatile("" : "+r"(linear));
	if (linear >= len || linear >= ctx->len)
		return;
	bpf_skb_pull_data(ctx, ctx->len < len ? ctx->len : len);
}

/* XDP alone copies. */
static __always_inline int fw_copy_mark(fw_ctx *ctx, __u32 olist, __u32 kind, void **data,
					void **end)
{
	(void)ctx;
	(void)olist;
	(void)kind;
	(void)data;
	(void)end;
	return 0;
}

/* Devices tag, and take tags off, for tc. */
static __always_inline int fw_adjust_head(fw_ctx *ctx, int delta)
{
	(void)ctx;
	return delta;
}

/* Is there what the parser would not see, or would see otherwise than the kernel? */
static __always_inline int fw_hidden(fw_ctx *ctx)
{
	if (ctx->vlan_present)
		return 1;
	if (!FW_TARGET_IS_RAW)
		return 0;
	fw_pull(ctx);
	return ctx->protocol != fw_ethertype_be(fw_data(ctx), fw_data_end(ctx));
}

/* Cut the sender's padding, as ip_rcv() and ipv6_rcv() do. */
static __always_inline int fw_trim(fw_ctx *ctx, void **data, void **end, __u32 len)
{
	__u32 len_real = len + FW_TC_LINK_LEN - FW_ETH_LEN;

	if (ctx->len != len_real && (ctx->gso_size || bpf_skb_change_tail(ctx, len_real, 0)))
		return 0;
	*data = fw_data(ctx);
	*end = fw_data_end(ctx);
	return *data + FW_ETH_LEN <= *end;
}

/* What the addresses add to a sum; 0 if they stay. */
static __always_inline __u32 fw_addresses_delta(const struct fw_flow *f, __u8 family)
{
	__u64 sum = 0;
	__u32 differs = 0;

	if (family == FW_AF_INET) {
		differs = (f->key.saddr_be ^ f->saddr_be) | (f->key.daddr_be ^ f->daddr_be);
		sum = fw_csum_diff(f->key.saddr_be, f->saddr_be) +
		      fw_csum_diff(f->key.daddr_be, f->daddr_be);
		return differs ? fw_csum_fold(sum) : 0;
	}
	for (int i = 0; i < 4; i++) {
		differs |= (f->key_saddr6_be[i] ^ f->saddr6_be[i]) |
			   (f->key_daddr6_be[i] ^ f->daddr6_be[i]);
		sum += fw_csum_diff(f->key_saddr6_be[i], f->saddr6_be[i]) +
		       fw_csum_diff(f->key_daddr6_be[i], f->daddr6_be[i]);
	}
	return differs ? fw_csum_fold(sum) : 0;
}

/*
 * The L4 checksum ahead of the rewriting: finished, or of the pseudo header alone
 * (CHECKSUM_PARTIAL); and the skb's own sum from the network header on, where a
 * driver gave one (CHECKSUM_COMPLETE). Which it is the kernel's helpers know:
 * inet_proto_csum_replace_by_diff() in net/core/utils.c. Of external linkage, so that the BPF
 * verifier looks once at what follows.
 */
int fw_resum_frame(fw_ctx *ctx, const struct fw_flow *f, struct fw_pkt *p);

__noinline int fw_resum_frame(fw_ctx *ctx, const struct fw_flow *f, struct fw_pkt *p)
{
	const fw_u32_any *ports, *to_ports;
	__u32 header = 0, addresses, at;
	__u64 flags = 0;

	if (!f || !p)
		return 0;
	ports = (const void *)&f->key.sport_be;
	to_ports = (const void *)&f->sport_be;
	at = FW_ETH_LEN + (p->family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN);
	/* The port where it leaves may want a header; one without takes it off again:
	 * __bpf_redirect_no_mac() in net/core/filter.c. */
	if (FW_TARGET_IS_RAW) {
		if (bpf_skb_change_head(ctx, FW_ETH_LEN, 0))
			return 0;
		p->framed = 1;
	}
	/* an IPv4 header sums up to the same before and after */
	if (p->family == FW_AF_INET6)
		header = fw_csum_fold(
			fw_csum_diff(fw_htons(p->ttl), fw_htons(f->ttl_out)) +
			fw_csum_diff(fw_htons(f->dscp_in << 4), fw_htons(f->dscp_out << 4)));
	if (f->flags & FW_FLOW_NAT) {
		at += fw_check_at(p->proto);
		if (p->proto == FW_PROTO_UDP)
			flags = BPF_F_MARK_MANGLED_0;
		addresses = fw_addresses_delta(f, p->family);
		if (addresses && fw_sums_addresses(p->proto) &&
		    bpf_l4_csum_replace(ctx, at, 0, addresses, flags | BPF_F_PSEUDO_HDR))
			return 0;
		/* icmp_manip_pkt() sums up an echo's identifier, changed or not: 0xffff becomes 0
		 */
		if ((*ports != *to_ports || p->proto == FW_PROTO_ICMP) &&
		    bpf_l4_csum_replace(ctx, at, 0, fw_csum_fold(fw_csum_diff(*ports, *to_ports)),
					flags))
			return 0;
		/* the helper takes them out of the sum, where only the L4 header lost them */
		if (p->family == FW_AF_INET6)
			header += addresses;
	}
	if (header)
		bpf_csum_update(ctx, header);
	return 1;
}

static __always_inline int fw_resum(fw_ctx *ctx, void **data, void **end, const struct fw_flow *f,
				    struct fw_pkt *p)
{
	if (!fw_resum_frame(ctx, f, p))
		return 0;
	*data = (void *)(long)ctx->data;
	*end = fw_data_end(ctx);
	return *data + FW_ETH_LEN <= *end;
}

static __always_inline struct nf_conn *fw_conn_find(fw_ctx *ctx, struct bpf_sock_tuple *tuple,
						    __u32 len, struct bpf_ct_opts *opts)
{
	return bpf_skb_ct_lookup(ctx, tuple, len, opts, sizeof(*opts));
}

#endif
