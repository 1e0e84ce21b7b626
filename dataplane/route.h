/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefix paths in XDP: a plain IPv4 packet to the port itself leaves by the kernel's route of its
 * destination, if the kernel has lately sent another one by that next hop. The daemon has seen to
 * it that at this port nothing but the destination decides. Anything else goes on to the fast path.
 */
#ifndef FW_ROUTE_H
#define FW_ROUTE_H

#include "abi.h"
#include "csum.h"
#include "parse.h"
#include "prefix4.h"

enum fw_routing {
	FW_ROUTING_NOT,   /* the fast path has it next */
	FW_ROUTING_SENDS, /* it is rewritten, and leaves */
	FW_ROUTING_ASKS,  /* the kernel has it, and what it does with it is compared */
};

/* Sources that the kernel refuses wherever they come from, or judges by what is not known here. */
static __always_inline int fw_source_refused(__u32 saddr_be)
{
	__u32 bit = (saddr_be * 0x9e3779b1U) >> (32 - FW_OWN_BITS);
	__u32 block = fw_ntohl(saddr_be) >> 24;

	/* 0/8, multicast, class E and broadcast; loopback */
	return block - 1 > 222 || block == 127 || (fw_routes.own[bit / 32] >> bit % 32 & 1);
}

/* fib_validate_source(): is there a way back, and if it must be this port, is it? */
static __always_inline int fw_source_unrouted(__u32 saddr_be)
{
	__u32 leaf;

	if (fw_route_here.rp_filter == FW_RP_OFF)
		return 0;
	leaf = fw_prefix4_lookup(&fw_prefixes, fw_ntohl(saddr_be));
	if (fw_route_here.rp_filter == FW_RP_LOOSE)
		return !leaf;
	return fw_hop_get(fw_routes.record[leaf & (FW_LEAVES - 1)])->port != fw_route_here.port;
}

/* 0 if the frame is a plain one to this port, which the kernel would look up a route for. */
static __always_inline __u64 fw_route_plain(struct xdp_md *ctx, const void *data, __u32 now)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	const fw_u16_any *mac = data, *own = (const void *)fw_route_here.mac;
	__u32 len = fw_ntohs(ip->tot_len_be), room = fw_ctl.deadline_tick - now - 1;
	__u64 differs;

	differs = (mac[0] ^ own[0]) | (mac[1] ^ own[1]) | (mac[2] ^ own[2]);
	FW_GATHER(differs, mac[FW_ETH_MAC2 / 2] ^ fw_htons(FW_ETH_IP));
	FW_GATHER(differs, (ip->version_ihl ^ 0x45) | (ip->frag_be & fw_htons(0x3fff)));
	FW_GATHER(differs, fw_csum_differs(ip));
	FW_GATHER(room, fw_frame_len(ctx) - FW_ETH_LEN - len);
	FW_GATHER(room, len - FW_IP4_LEN);
	FW_GATHER(room, (__u32)ip->ttl - 2);
	return differs | room >> 31;
}

/* The kernel is given the packet with a word ahead of it, if the driver has room for one. */
static __always_inline enum fw_routing fw_route_ask(struct xdp_md *ctx, __u32 record)
{
	struct fw_route_hint *hint;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*hint)))
		return FW_ROUTING_NOT;
	hint = (void *)(long)ctx->data_meta;
	if ((void *)(hint + 1) > fw_data(ctx))
		return FW_ROUTING_NOT;
	hint->magic = fw_route_magic();
	hint->hop = record;
	fw_count(FW_R_ROUTE_ASKED);
	return FW_ROUTING_ASKS;
}

/* Is it time to ask? A next hop that had no answer is asked for sooner, and then no longer used. */
static __always_inline int fw_route_due(struct fw_hop *hop, __u32 block, __u32 now)
{
	__u32 *due = &fw_routes.due_tick[block & (FW_ROUTE_BLOCKS - 1)];

	if (fw_unlikely(fw_reached(now, hop->due_tick))) {
		if (++hop->misses > FW_MISSES_MAX)
			hop->epoch = 0;
		hop->due_tick = now + fw_cfg.hz / 4;
		*due = now + fw_cfg.hz;
		return 1;
	}
	if (fw_likely(!fw_reached(now, *due)))
		return 0;
	*due = now + fw_cfg.hz;
	return 1;
}

/* As ip_decrease_ttl() does it. */
static __always_inline void fw_route_rewrite(void *data, const struct fw_hop *hop)
{
	struct fw_ip4 *ip = data + FW_ETH_LEN;
	__u32 check = (__u32)ip->check + fw_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
	fw_link_write(data, hop->l2);
}

static __always_inline enum fw_routing fw_route(struct xdp_md *ctx, const struct fw_hop **out)
{
	void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	struct fw_route_count *count;
	__u32 now, leaf, record, len, daddr;
	const fw_u64_any *on, *status;
	struct fw_hop *hop;

	if (data + FW_ETH_LEN + FW_IP4_LEN > end)
		return FW_ROUTING_NOT;
	now = fw_now();
	if (fw_route_plain(ctx, data, now) || !fw_routes.valid || fw_source_refused(ip->saddr_be))
		return FW_ROUTING_NOT;
	daddr = fw_ntohl(ip->daddr_be);
	leaf = fw_prefix4_lookup(&fw_prefixes, daddr) & (FW_LEAVES - 1);
	record = fw_routes.record[leaf];
	hop = fw_hop_get(record);
	len = fw_ntohs(ip->tot_len_be);
	if (hop->status != FW_ST_ACTIVE || len > hop->len_max || hop->port == fw_route_here.port ||
	    fw_source_unrouted(ip->saddr_be))
		return FW_ROUTING_NOT;
	on = (const void *)&fw_ctl.on;
	status = (const void *)&hop->status;
	if (fw_unlikely(*status ^ *on)) {
		if (!fw_ctl.on || !fw_reached(now, hop->due_tick))
			return FW_ROUTING_NOT;
		hop->due_tick = now + 1;
		return fw_route_ask(ctx, record);
	}
	if (fw_unlikely(fw_route_due(hop, daddr >> 24, now)))
		return fw_route_ask(ctx, record);
	len += FW_ETH_LEN;
	/* without its padding it is the kernel's as well */
	if (!fw_trim(ctx, &data, &end, len) || data + FW_ETH_LEN + FW_IP4_LEN > end)
		return FW_ROUTING_NOT;
	fw_route_rewrite(data, hop);
	count = fw_route_count_get(fw_cpu_id() * FW_LEAVES + leaf);
	count->packets++;
	count->bytes += len;
	*out = hop;
	return FW_ROUTING_SENDS;
}

#endif
