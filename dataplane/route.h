/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefix paths: a plain packet to the port itself leaves by the kernel's route of its destination,
 * if the kernel has lately sent another one by that next hop. The daemon has seen to it that at
 * this port nothing but the destination decides. Anything else goes on to the fast path.
 *
 * The target says by which next hops it sends and how the kernel is asked, and what of a packet is
 * not in its octets: route.bpf.c, route_tc.bpf.c, engine/routes.h.
 */
#ifndef FW_ROUTE_H
#define FW_ROUTE_H

#include "abi.h"
#include "csum.h"
#include "framing.h"
#include "parse.h"
#include "routing.h"

/* What decides on a packet. */
struct fw_routed {
	__u32 leaf;
	__u32 len;         /* L3 */
	__u32 len_segment; /* the same, of a segment of a merged frame; else len */
	__u32 block;       /* of fw_routes.due_tick */
};

/* Sources that the kernel refuses wherever they come from, or judges by what is not known here. */
static __always_inline int fw_source_refused4(__u32 saddr_be)
{
	__u32 bit = (saddr_be * FW_GOLDEN) >> (32 - FW_OWN_BITS);
	__u32 block = fw_ntohl(saddr_be) >> 24;

	/* 0/8, multicast, class E and broadcast; loopback */
	return block - 1 > 222 || block == 127 || (fw_routes_get()->own[bit / 32] >> bit % 32 & 1);
}

/* fib_validate_source(): is there a way back, and if it must be this port, is it? */
static __always_inline int fw_source_unrouted4(const struct fw_route_here *here, __u32 saddr_be)
{
	__u32 leaf;

	if (here->rp_filter == FW_RP_OFF)
		return 0;
	leaf = fw_prefix4_lookup(fw_prefix4_get(), fw_ntohl(saddr_be));
	if (here->rp_filter == FW_RP_LOOSE)
		return !leaf;
	return fw_hop_get(fw_routes_get()->record[leaf & (FW_LEAVES - 1)])->port != here->port;
}

/*
 * Sources that ip6_rcv_core() or ip6_forward() treats apart: none, loopback and IPv4-mapped ones,
 * groups, and those of a link. More of the first 80 bits' zeroes are the kernel's than need be.
 */
static __always_inline int fw_source_refused6(__u64 high)
{
	return !high || high >> 56 == 0xff || high >> 54 == 0xfe80 >> 6;
}

/* 0 if the frame is for this port, and of the type. `l2`: with the header as the port shows it,
 * which ends with the type; tags that come before are not of it. */
static __always_inline __u64 fw_route_elsewhere(const struct fw_route_here *here, const void *l2,
						const __u32 tags_len, __u16 type_be)
{
	const fw_u16_any *mac = l2 - tags_len, *own = (const void *)here->mac;
	const fw_u16_any *type = l2 + FW_ETH_MAC2;

	return (mac[0] ^ own[0]) | (mac[1] ^ own[1]) | (mac[2] ^ own[2]) | (*type ^ type_be);
}

/* Is the frame a plain one, which the kernel would look up a route for? And what decides on it? */
static __always_inline int fw_route_read4(fw_ctx *ctx, const struct fw_route_here *here,
					  const void *l2, const __u32 tags_len, __u32 now,
					  struct fw_routed *packet)
{
	const struct fw_ip4 *ip = l2 + FW_ETH_LEN;
	__u32 len = fw_ntohs(ip->tot_len_be), room = fw_ctl.deadline_tick - now - 1;
	__u64 differs = fw_route_elsewhere(here, l2, tags_len, fw_htons(FW_ETH_IP));
	__u32 daddr = fw_ntohl(ip->daddr_be);

	FW_GATHER(differs, (ip->version_ihl ^ 0x45) | (ip->frag_be & fw_htons(0x3fff)));
	FW_GATHER(differs, fw_csum_differs(ip));
	FW_GATHER(room, fw_frame_len(ctx) - tags_len - FW_ETH_LEN - len);
	FW_GATHER(room, len - FW_IP4_LEN);
	FW_GATHER(room, (__u32)ip->ttl - 2);
	if (differs | room >> 31 || !(fw_routes_get()->valid & here->families & FW_ROUTES_IPV4) ||
	    fw_source_refused4(ip->saddr_be))
		return 0;
	packet->leaf = fw_prefix4_lookup(fw_prefix4_get(), daddr) & (FW_LEAVES6 - 1);
	packet->len = len;
	packet->block = daddr >> 24;
	return 1;
}

/*
 * Does an extension header follow: hop-by-hop options, which each router is to read, or one behind
 * which a fragment's may be, for conntrack puts fragments together (ipv6_ext_hdr(),
 * find_prev_fhdr())?
 */
static __always_inline __u64 fw_route_extended(__u8 next_header)
{
	const __u64 extensions = 1 | 1ull << FW_PROTO_ROUTING | 1ull << FW_PROTO_FRAG6 |
				 1ull << FW_PROTO_AH | 1ull << FW_PROTO_DSTOPTS;

	return next_header < 64 ? extensions >> next_header & 1 : 0;
}

/* Likewise of IPv6. */
static __always_inline int fw_route_read6(fw_ctx *ctx, const struct fw_route_here *here,
					  const void *l2, const __u32 tags_len, __u32 now,
					  struct fw_routed *packet)
{
	const struct fw_ip6 *ip = l2 + FW_ETH_LEN;
	__u32 len = fw_ntohs(ip->payload_len_be) + FW_IP6_LEN;
	__u32 room = fw_ctl.deadline_tick - now - 1;
	__u64 differs = fw_route_elsewhere(here, l2, tags_len, fw_htons(FW_ETH_IP6));
	__u64 high, low;

	FW_GATHER(differs, (ip->word0_be ^ fw_htonl(6u << 28)) & fw_htonl(15u << 28));
	FW_GATHER(differs, fw_route_extended(ip->next_header));
	FW_GATHER(room, fw_frame_len(ctx) - tags_len - FW_ETH_LEN - len);
	FW_GATHER(room, (__u32)ip->hop_limit - 2);
	high = (__u64)fw_ntohl(ip->saddr_be[0]) << 32 | fw_ntohl(ip->saddr_be[1]);
	if (differs | room >> 31 || !(fw_routes_get()->valid & here->families & FW_ROUTES_IPV6) ||
	    fw_source_refused6(high))
		return 0;
	high = (__u64)fw_ntohl(ip->daddr_be[0]) << 32 | fw_ntohl(ip->daddr_be[1]);
	low = (__u64)fw_ntohl(ip->daddr_be[2]) << 32 | fw_ntohl(ip->daddr_be[3]);
	packet->leaf = fw_prefix6_lookup(fw_prefix6_get(), high, low) & (FW_LEAVES - 1);
	packet->len = len;
	packet->block = FW_ROUTE_BLOCKS6 + ((__u32)(high >> 32) * FW_GOLDEN >> 24);
	return 1;
}

/*
 * Is it time to ask? A next hop that had no answer is asked for sooner, and then no longer used.
 * Whoever put it off has a clock that may be FW_CLOCKS_DIFFER ahead.
 */
static __always_inline int fw_route_due(struct fw_hop *hop, __u32 block, __u32 now)
{
	__u32 *due = &fw_routes_get()->due_tick[block & (FW_ROUTE_BLOCKS - 1)];

	if (fw_unlikely(fw_due(now, hop->due_tick, fw_cfg.hz + FW_CLOCKS_DIFFER))) {
		if (++hop->misses > FW_MISSES_MAX)
			hop->epoch = 0;
		hop->due_tick = now + fw_cfg.hz / 4;
		*due = now + fw_cfg.hz;
		return 1;
	}
	if (fw_likely(!fw_due(now, *due, fw_cfg.hz + FW_CLOCKS_DIFFER)))
		return 0;
	*due = now + fw_cfg.hz;
	return 1;
}

/* The engine's ports are TAPs, at which tc asks the kernel for it. */
static __always_inline int fw_hop_wanted(const struct fw_hop *hop)
{
	return FW_TARGET_IS_TC && fw_unlikely(hop->wanted);
}

/*
 * While a next hop waits the kernel is asked once a tick: at once if it waits because of a new
 * epoch, for however long it was confirmed; when its time has come if the kernel did otherwise, or
 * nothing.
 */
static __always_inline int fw_hop_asks(struct fw_hop *hop, __u32 now)
{
	__u32 rests = hop->misses > FW_MISSES_MAX ? fw_cfg.hz : 0;

	if (!fw_ctl.on ||
	    (!fw_hop_wanted(hop) && hop->due_tick - now - 1 <= rests + FW_CLOCKS_DIFFER))
		return 0;
	hop->due_tick = now + 1;
	return 1;
}

static __always_inline enum fw_routing fw_route_asks(fw_ctx *ctx, struct fw_hop *hop, __u32 record)
{
	enum fw_routing routing = fw_route_ask(ctx, record);

	if (routing != FW_ROUTING_ASKS)
		return routing;
	if (FW_TARGET_IS_TC)
		hop->wanted = 0;
	fw_count(FW_R_ROUTE_ASKED);
	return routing;
}

/* Of a merged frame each segment counts: skb_gso_validate_network_len(). */
static __always_inline int fw_route_measure(fw_ctx *ctx, const void *data, const void *end,
					    struct fw_routed *packet, int is_ip6)
{
	__u32 gso = fw_gso_size(ctx);
	struct fw_pkt p = {.len_l3 = packet->len};

	packet->len_segment = packet->len;
	if (!gso)
		return 1;
	p.family = is_ip6 ? FW_AF_INET6 : FW_AF_INET;
	p.proto = is_ip6 ? ((const struct fw_ip6 *)(data + FW_ETH_LEN))->next_header
			 : ((const struct fw_ip4 *)(data + FW_ETH_LEN))->proto;
	if (fw_merged_otherwise(ctx, p.proto))
		return 0;
	packet->len_segment = fw_segment_len(data, end, &p, gso);
	return packet->len_segment > gso && packet->len > packet->len_segment - gso;
}

/* As ip_forward() and ip6_forward() do it. */
static __always_inline void fw_route_step(fw_ctx *ctx, void *l3, int is_ip6)
{
	if (is_ip6) {
		struct fw_ip6 *ip = l3;

		fw_route_resum(ctx, ip->hop_limit);
		ip->hop_limit--;
	} else {
		struct fw_ip4 *ip = l3;
		__u32 check = (__u32)ip->check + fw_htons(0x0100);

		fw_route_class(ctx, ip->tos);
		ip->check = check + (check >= 0xffff);
		ip->ttl--;
	}
}

/* Rewrites a frame that has `tags_len` octets of tags. Without room for what is to be around it, it
 * is as it was. */
static __always_inline enum fw_routing fw_route_rewrite(fw_ctx *ctx, const struct fw_hop *hop,
							const __u32 tags_len, int is_ip6)
{
	const fw_u16_any *type_be = (const void *)(hop->l2 + FW_ETH_MAC2);
	__u32 len_l3 = is_ip6 ? FW_IP6_LEN : FW_IP4_LEN;
	int tagged = !FW_TARGET_IS_TC && hop->tag.tpid_be;
	void *data, *end;

	if (!tagged) {
		if (tags_len && fw_adjust_head(ctx, (int)tags_len))
			return FW_ROUTING_NOT;
		data = fw_data(ctx);
		end = fw_data_end(ctx);
		if (data + FW_ETH_LEN + len_l3 > end)
			return tags_len ? FW_ROUTING_LOST : FW_ROUTING_NOT;
		fw_route_step(ctx, data + FW_ETH_LEN, is_ip6);
		fw_link_write(data, hop->l2);
		return FW_ROUTING_SENDS;
	}
	if (!tags_len && fw_adjust_head(ctx, -FW_TAG_LEN))
		return FW_ROUTING_NOT;
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (data + FW_ETH_LEN + FW_TAG_LEN + len_l3 > end)
		return tags_len ? FW_ROUTING_NOT : FW_ROUTING_LOST;
	fw_route_step(ctx, data + FW_ETH_LEN + FW_TAG_LEN, is_ip6);
	fw_head_write(data, hop->l2, &hop->tag, FW_TAG_LEN);
	*(fw_u16_any *)(data + FW_ETH_MAC2 + FW_TAG_LEN) = *type_be;
	return FW_ROUTING_SENDS;
}

static __always_inline void fw_route_count(fw_ctx *ctx, const struct fw_hop *hop,
					   const struct fw_routed *packet)
{
	struct fw_route_count *count = fw_route_count_get(packet->leaf);
	__u32 gso = fw_gso_size(ctx), len_headers = packet->len_segment - gso;
	__u32 len_data = packet->len - len_headers;
	__u32 frames = gso ? (len_data + gso - 1) / gso : 1;
	__u32 l2_len = FW_ETH_LEN + (!FW_TARGET_IS_TC && hop->tag.tpid_be ? FW_TAG_LEN : 0);

	count->packets += frames;
	count->bytes += len_data + frames * (l2_len + len_headers);
}

/*
 * Of a frame with `tags_len` octets of tags, which is `here`'s without them. `seq`: fw_routes.seq
 * as it was before anything was read, for who has no RCU.
 */
static __always_inline enum fw_routing fw_route(fw_ctx *ctx, const struct fw_route_here *here,
						const __u32 tags_len, __u32 seq, __u32 *out)
{
	void *data = fw_data(ctx), *end = fw_data_end(ctx), *l2 = data + tags_len;
	const fw_u16_any *type = l2 + FW_ETH_MAC2;
	const struct fw_hop *exit;
	struct fw_hop *hop, held;
	struct fw_routed packet;
	enum fw_routing routing;
	__u32 now, record;
	int is_ip6;

	if (l2 + FW_ETH_LEN + FW_IP4_LEN > end)
		return FW_ROUTING_NOT;
	now = fw_now();
	is_ip6 = *type == fw_htons(FW_ETH_IP6);
	if (is_ip6) {
		if (l2 + FW_ETH_LEN + FW_IP6_LEN > end ||
		    !fw_route_read6(ctx, here, l2, tags_len, now, &packet))
			return FW_ROUTING_NOT;
	} else if (!fw_route_read4(ctx, here, l2, tags_len, now, &packet)) {
		return FW_ROUTING_NOT;
	}
	record = fw_routes_get()->record[packet.leaf];
	hop = fw_hop_get(record);
	if (!fw_hop_serves(hop, here) || !fw_route_measure(ctx, l2, end, &packet, is_ip6) ||
	    packet.len_segment > hop->len_max || hop->port == here->port)
		return FW_ROUTING_NOT;
	if (!is_ip6) {
		const struct fw_ip4 *ip = l2 + FW_ETH_LEN;

		if (fw_source_unrouted4(here, ip->saddr_be))
			return FW_ROUTING_NOT;
	}
	if (fw_unlikely(fw_hop_waits(hop)))
		return fw_hop_asks(hop, now) ? fw_route_asks(ctx, hop, record) : FW_ROUTING_NOT;
	if (fw_unlikely(fw_hop_wanted(hop) || fw_route_due(hop, packet.block, now)))
		return fw_route_asks(ctx, hop, record);
	exit = fw_hop_hold(hop, &held, seq);
	/* without its padding it is the kernel's as well */
	if (!exit || !fw_trim(ctx, &data, &end, tags_len + FW_ETH_LEN + packet.len))
		return FW_ROUTING_NOT;
	routing = fw_route_rewrite(ctx, exit, tags_len, is_ip6);
	if (routing == FW_ROUTING_SENDS) {
		fw_route_count(ctx, exit, &packet);
		*out = fw_exit_of(exit);
	}
	return routing;
}

#endif
