/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel is given a packet that would have left by a next hop (route.h). Here ingress notes it
 * under a token, by which egress finds it again (answered.h).
 */
#ifndef FW_ASKED_H
#define FW_ASKED_H

#include "abi.h"
#include "fresh.h"
#include "parse.h"

/* A packet without a payload has none of these. */
static __always_inline __u32 fw_asked_word(const void *payload, const void *end, __u32 len,
					   __u32 at)
{
	const fw_u32_any *word = payload + at;

	return (const void *)(word + 1) > end || len < at + 4 ? 0 : *word;
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

/* What of a packet is not to change, and its TTL. */
static __always_inline int fw_asked_note4(struct fw_slot *slot, const void *data, const void *end)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	__u32 len;

	if ((const void *)(ip + 1) > end)
		return 0;
	len = fw_ntohs(ip->tot_len_be);
	slot->family = FW_AF_ROUTED;
	slot->key.saddr_be[0] = ip->saddr_be;
	slot->key.daddr_be[0] = ip->daddr_be;
	slot->key.port_proto = ip->proto;
	*(fw_u32_any *)&slot->key.sport_be = fw_asked_word(ip + 1, end, len - FW_IP4_LEN, 0);
	slot->seq_be = fw_asked_word(ip + 1, end, len - FW_IP4_LEN, 4);
	slot->len_l3 = len;
	slot->ip_id_be = ip->id_be;
	slot->frag_be = ip->frag_be;
	slot->ttl = ip->ttl;
	slot->tos = ip->tos;
	return 1;
}

static __always_inline int fw_asked_note6(struct fw_slot *slot, const void *data, const void *end)
{
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	__u32 len;

	if ((const void *)(ip + 1) > end)
		return 0;
	len = fw_ntohs(ip->payload_len_be);
	slot->family = FW_AF_ROUTED6;
	__builtin_memcpy(slot->key.saddr_be, ip->saddr_be, 16);
	__builtin_memcpy(slot->key.daddr_be, ip->daddr_be, 16);
	slot->key.port_proto = ip->next_header;
	*(fw_u32_any *)&slot->key.sport_be = fw_asked_word(ip + 1, end, len, 0);
	slot->seq_be = fw_asked_word(ip + 1, end, len, 4);
	slot->len_l3 = len + FW_IP6_LEN;
	slot->flow_label_be = ip->word0_be;
	slot->ttl = ip->hop_limit;
	return 1;
}

/* `merged`: it may be, for it is noted as what would have left. */
static __always_inline __u32 fw_asked_note(struct __sk_buff *ctx, __u32 record, int merged)
{
	const void *data, *end;
	struct fw_slot *slot;
	struct fw_cpu *cpu;
	__u32 now = fw_now(), index;

	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if ((ctx->gso_size && !merged) || ctx->vlan_present)
		return 0;
	cpu = fw_budget(now);
	if (!cpu)
		return 0;
	index = fw_slot_next(cpu);
	slot = fw_slot_get(index);
	if (!slot || !(ctx->protocol == fw_htons(FW_ETH_IP6) ? fw_asked_note6(slot, data, end)
							     : fw_asked_note4(slot, data, end)))
		return 0;
	cpu->slot++;
	slot->served = record;
	slot->tc_alone = merged;
	slot->epoch = fw_ctl.epoch;
	slot->tick = now;
	slot->egress = 0;
	return index + 1;
}

#endif
