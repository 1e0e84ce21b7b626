/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tc ingress of the slow path: what came in goes to a slot, and the slot's
 * number, the token, into skb->tc_index, which survives routing, NAT and
 * tunnels up to tc egress. Whatever can never be a flow writes nothing.
 */
#ifndef FW_NOTE_H
#define FW_NOTE_H

#include "abi.h"
#include "closing.h"
#include "fresh.h"
#include "guard.h"
#include "offer.h"
#include "parse.h"

/* Could the kernel ever forward this, unmodified but for headers? */
static __always_inline int fw_learnable(const void *data, const void *end, const struct fw_pkt *p)
{
	__u32 daddr_be;

	if (p->family == FW_AF_INET6 && data + FW_ETH_LEN + FW_IP6_LEN > end)
		return 0;
	daddr_be =
		p->family == FW_AF_INET6 ? fw_ip6_at(data)->daddr_be[0] : fw_ip4_at(data)->daddr_be;
	if (fw_is_group(daddr_be, p->family)) {
		if (!fw_ctl.multicast || p->proto != FW_PROTO_UDP || FW_TARGET_IS_RAW ||
		    !fw_is_routed_group(daddr_be, p->family))
			return 0;
	} else if (fw_link_multicast(data)) {
		return 0;
	}
	return p->ttl > 1 && !fw_tcp_closes(p) && fw_tcp_plain(p);
}

static __always_inline void fw_note_fill(struct fw_slot *slot, const void *data, const void *end,
					 const struct fw_pkt *p)
{
	const struct fw_l4 *l4 = fw_l4_at(data, p->family);

	fw_link_copy(slot->l2, data);
	/* XDP finds it where tc does not look */
	if (FW_TARGET_IS_RAW)
		*(fw_u16_any *)(slot->l2 + FW_ETH_MAC2) = fw_ethertype_be(data, end);
	slot->l2_len = p->l2_len;
	slot->len_l3 = p->len_l3;
	slot->l4_csum = p->l4_check;
	slot->ttl = p->ttl;
	slot->tos = p->tos;
	slot->tcp_flags = p->tcp_flags;
	slot->seq_be = 0;
	slot->ack_be = 0;
	if ((void *)l4 + FW_L4_MIN <= end)
		slot->seq_be = fw_l4_serial(l4, p->proto);
	if (p->proto == FW_PROTO_TCP && (void *)l4 + FW_TCP_LEN <= end)
		slot->ack_be = l4->tcp.ack_be;
	if (p->family == FW_AF_INET) {
		const struct fw_ip4 *ip = fw_ip4_at(data);

		slot->ip_id_be = ip->id_be;
		slot->frag_be = ip->frag_be;
		slot->flow_label_be = 0;
	} else {
		slot->ip_id_be = 0;
		slot->frag_be = 0;
		slot->flow_label_be = fw_ip6_at(data)->word0_be & fw_htonl(0x000fffff);
	}
}

static __always_inline int fw_note_quiet(fw_ctx *ctx, const void *data, const void *end, __u32 now)
{
	__u16 ethertype_be;
	struct fw_offer_key key;
	struct fw_words4 key4;
	struct fw_words6 key6;

	if (data + FW_ETH_LEN + FW_IP4_LEN + FW_UDP_LEN > end)
		return 0;
	ethertype_be = fw_ethertype_be(data, end);
	if (ethertype_be == fw_htons(FW_ETH_IP)) {
		key4 = fw_key4_of(data, fw_port(ctx), fw_ip4_at(data)->proto);
		key = fw_offer_key4(&key4, &fw_cfg);
		return fw_offer_quiet(&key, now);
	}
	if (ethertype_be != fw_htons(FW_ETH_IP6) ||
	    data + FW_ETH_LEN + FW_IP6_LEN + FW_UDP_LEN > end)
		return 0;
	key6 = fw_key6_of(data, fw_port(ctx), fw_ip6_at(data)->next_header);
	key = fw_offer_key6(&key6, &fw_cfg);
	return fw_offer_quiet(&key, now);
}

/*
 * Silent flows are told by their key, before all else: they cost the kernel's path
 * least. While a tuple is watched, every packet is looked at to the end.
 */
static __always_inline int fw_note_silent(fw_ctx *ctx, __u32 now)
{
	if (fw_unlikely(fw_ctl.watch))
		return 0;
	fw_pull(ctx);
	if (!fw_note_quiet(ctx, fw_data(ctx), fw_data_end(ctx), now))
		return 0;
	fw_count(FW_R_LEARN_OFFERED);
	return 1;
}

/* The token of a packet that is not silent, or 0 if it is not worth one. */
static __always_inline __u32 fw_note(fw_ctx *ctx, struct fw_pkt *p, const int tc_alone)
{
	const void *data, *end;
	struct fw_slot *slot;
	struct fw_cpu *cpu;
	__u32 now = fw_now(), index, gso;

	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (fw_parse(data, end, fw_frame_len(ctx), p) ||
	    data + FW_ETH_LEN + FW_IP4_LEN + FW_UDP_LEN > end)
		return 0;
	gso = fw_gso_size(ctx);
	if (!fw_learnable(data, end, p) || fw_merged_otherwise(ctx, p->proto))
		return 0;
	cpu = fw_budget(now);
	if (!cpu)
		return 0;
	index = fw_slot_next(cpu);
	slot = fw_slot_get(index);
	if (!slot)
		return 0;
	if (p->family == FW_AF_INET) {
		struct fw_words4 key = fw_key4_of(data, fw_port(ctx), p->proto);

		slot->key.saddr_be[0] = fw_ip4_at(data)->saddr_be;
		slot->key.daddr_be[0] = fw_ip4_at(data)->daddr_be;
		*(fw_u64_any *)&slot->key.sport_be = key.ports;
		for (int i = 1; i < 4; i++) {
			slot->key.saddr_be[i] = 0;
			slot->key.daddr_be[i] = 0;
		}
	} else {
		struct fw_words6 key;
		fw_u64_any *to = (void *)slot->key.saddr_be;

		if (data + FW_ETH_LEN + FW_IP6_LEN + FW_UDP_LEN > end)
			return 0;
		key = fw_key6_of(data, fw_port(ctx), p->proto);
		to[0] = key.addresses[0];
		to[1] = key.addresses[1];
		to[2] = key.addresses[2];
		to[3] = key.addresses[3];
		to[4] = key.ports;
	}
	slot->family = p->family;
	cpu->slot++;
	fw_note_fill(slot, data, end, p);
	slot->gso = !!gso;
	slot->tc_alone = tc_alone;
	if (gso)
		slot->len_l3 = fw_segment_len(data, end, p, gso);
	slot->epoch = fw_ctl.epoch;
	slot->tick = now;
	slot->egress = 0;
	slot->served = 0;
	slot->offered = 0;
	slot->mark = fw_mark(ctx);
	return index + 1;
}

/* What a plain segment says whose connection has edges, and which the kernel gets. */
static __noinline FW_UNUSED void fw_edge_note(fw_ctx *ctx)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const __u8 *ip = data + FW_ETH_LEN;
	struct fw_pkt p = {};
	const struct fw_l4 *l4;
	struct fw_edge *edge;
	__u32 len_ip;

	/* most are something else */
	if (data + FW_ETH_LEN + FW_IP4_LEN > end ||
	    (ip[9] != FW_PROTO_TCP && ip[6] != FW_PROTO_TCP))
		return;
	if (fw_parse(data, end, fw_frame_len(ctx), &p) || p.proto != FW_PROTO_TCP ||
	    fw_tcp_closes(&p) || !fw_tcp_plain(&p))
		return;
	if (p.family == FW_AF_INET6) {
		len_ip = FW_IP6_LEN;
		if (data + FW_ETH_LEN + FW_IP6_LEN + FW_TCP_LEN > end)
			return;
		l4 = data + FW_ETH_LEN + FW_IP6_LEN;
		edge = fw_edge_get(fw_edge_key_of(data, 1));
	} else {
		len_ip = FW_IP4_LEN;
		if (data + FW_ETH_LEN + FW_IP4_LEN + FW_TCP_LEN > end)
			return;
		l4 = data + FW_ETH_LEN + FW_IP4_LEN;
		edge = fw_edge_get(fw_edge_key_of(data, 0));
	}
	if (!edge)
		return;
	edge->seq_be = l4->tcp.seq_be;
	edge->ack_be = l4->tcp.ack_be;
	edge->len_data = p.len_l3 - len_ip - (l4->tcp.doff >> 4) * 4;
	edge->tick = fw_now();
}

#endif
