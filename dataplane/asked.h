/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefix paths in tc: XDP has given the kernel a packet with the next hop by which it would have
 * left (route.h). Ingress notes the packet under a token, egress compares what the kernel sends.
 */
#ifndef FW_ASKED_H
#define FW_ASKED_H

#include "abi.h"
#include "csum.h"
#include "fresh.h"
#include "guard.h"
#include "parse.h"

/* A packet without a payload has none of these. */
static __always_inline __u32 fw_asked_word(const struct fw_ip4 *ip, const void *end, __u32 at)
{
	const fw_u32_any *word = (const void *)(ip + 1) + at;

	if ((const void *)(word + 1) > end || fw_ntohs(ip->tot_len_be) < FW_IP4_LEN + at + 4)
		return 0;
	return *word;
}

/* The record that is asked for with this packet, or none. */
static __always_inline __u32 fw_asked(const struct __sk_buff *ctx)
{
	const struct fw_route_hint *hint = (void *)(long)ctx->data_meta;

	if (FW_TARGET_IS_RAW || (const void *)(hint + 1) > (void *)(long)ctx->data ||
	    hint->magic != fw_route_magic())
		return FW_INDEX_NONE;
	return hint->hop;
}

static __noinline __u32 fw_asked_note(struct __sk_buff *ctx, __u32 record)
{
	const void *data, *end;
	const struct fw_ip4 *ip;
	struct fw_slot *slot;
	struct fw_cpu *cpu;
	__u32 now = fw_now(), index;

	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	ip = data + FW_ETH_LEN;
	if ((const void *)(ip + 1) > end || ctx->gso_size || ctx->vlan_present)
		return 0;
	cpu = fw_budget(now);
	if (!cpu)
		return 0;
	index = fw_slot_next(cpu);
	slot = fw_slot_get(index);
	if (!slot)
		return 0;
	cpu->slot++;
	slot->family = FW_AF_ROUTED;
	slot->served = record;
	slot->key.saddr_be[0] = ip->saddr_be;
	slot->key.daddr_be[0] = ip->daddr_be;
	slot->key.port_proto = fw_port(ctx) << 8 | ip->proto;
	*(fw_u32_any *)&slot->key.sport_be = fw_asked_word(ip, end, 0);
	slot->seq_be = fw_asked_word(ip, end, 4);
	slot->len_l3 = fw_ntohs(ip->tot_len_be);
	slot->ip_id_be = ip->id_be;
	slot->frag_be = ip->frag_be;
	slot->ttl = ip->ttl;
	slot->tos = ip->tos;
	slot->epoch = fw_ctl.epoch;
	slot->tick = now;
	slot->egress = 0;
	return index + 1;
}

/* Has nothing changed but the TTL, and that by one? */
static __always_inline int fw_asked_same(const struct fw_slot *slot, const struct fw_ip4 *ip,
					 const void *end)
{
	return ip->version_ihl == 0x45 && ip->tos == slot->tos &&
	       fw_ntohs(ip->tot_len_be) == slot->len_l3 && ip->id_be == slot->ip_id_be &&
	       ip->frag_be == slot->frag_be && ip->ttl == slot->ttl - 1 &&
	       ip->proto == (slot->key.port_proto & 0xff) &&
	       ip->saddr_be == slot->key.saddr_be[0] && ip->daddr_be == slot->key.daddr_be[0] &&
	       fw_csum_ip(ip) == 0xffff &&
	       fw_asked_word(ip, end, 0) == *(const fw_u32_any *)&slot->key.sport_be &&
	       fw_asked_word(ip, end, 4) == slot->seq_be;
}

/* Does it leave where, and as what, the record says? */
static __always_inline int fw_asked_exit(const struct __sk_buff *ctx, const struct fw_hop *hop,
					 const void *data)
{
	return !FW_TARGET_IS_RAW && hop->port == fw_port(ctx) && !fw_mark(ctx) &&
	       fw_l2_equal(data, hop->l2);
}

static __noinline enum fw_reason fw_asked_left(struct __sk_buff *ctx, __u32 token)
{
	struct fw_slot *slot = fw_slot_get(token - 1);
	struct fw_strayed *strayed;
	const void *data, *end;
	const struct fw_ip4 *ip;
	struct fw_hop *hop;
	__u32 now = fw_now(), changed;

	if (!slot || now - slot->tick > fw_cfg.hz)
		return FW_R_LEARN_STALE_TOKEN;
	if (slot->egress++)
		return FW_R_LEARN_COPIES;
	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	ip = data + FW_ETH_LEN;
	if ((const void *)(ip + 1) > end || ctx->gso_size || ctx->vlan_present)
		return FW_R_LEARN_FRAME;
	hop = fw_hop_get(slot->served);
	if (slot->epoch != fw_ctl.epoch || hop->status != FW_ST_ACTIVE)
		return FW_R_LEARN_EPOCH;
	changed = !fw_asked_same(slot, ip, end);
	if (!changed && fw_asked_exit(ctx, hop, data)) {
		hop->misses = 0;
		hop->due_tick = now + fw_cfg.hz;
		hop->confirmed_tick = now;
		FW_WRITE_ONCE(hop->epoch, slot->epoch);
		return FW_R_ROUTE_CONFIRMED;
	}
	FW_WRITE_ONCE(hop->epoch, 0);
	strayed = fw_event_reserve(sizeof(*strayed));
	if (!strayed)
		return FW_R_LEARN_RING;
	strayed->ev.kind = FW_EV_STRAYED;
	strayed->ev.reason = FW_R_ROUTE_CONTRADICTED;
	strayed->ev.state = slot->served;
	strayed->ev.tick = now;
	strayed->saddr_be = slot->key.saddr_be[0];
	strayed->daddr_be = slot->key.daddr_be[0];
	strayed->port_out = fw_port(ctx);
	strayed->changed = changed;
	fw_link_copy(strayed->l2_out, data);
	fw_event_submit(strayed);
	return FW_R_ROUTE_CONTRADICTED;
}

#endif
