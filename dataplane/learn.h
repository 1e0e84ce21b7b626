/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tc egress of the slow path: the difference between what came in (the slot) and what leaves is the
 * flow's action, once it is proven that nothing else changed. Two equal ones are offered.
 */
#ifndef FW_LEARN_H
#define FW_LEARN_H

#include "abi.h"
#include "fit.h"
#include "known.h"
#include "offer.h"
#include "parse.h"
#include "prove.h"

static __always_inline void fw_candidate_fill(struct fw_candidate *c, const struct fw_slot *slot,
					      const struct fw_out *out, const void *data,
					      const struct fw_pkt *p, const struct fw_conn *conn)
{
	const fw_u64_any *from;
	fw_u64_any *to;

	c->key = slot->key;
	from = (const void *)slot->l2;
	to = (void *)c->l2_in;
	to[0] = from[0];
	to[1] = from[1];
	to[2] = 0;
	to[3] = 0;
	to = (void *)c->l2_out;
	fw_link_copy(to, data);
	to[2] = 0;
	to[3] = 0;
	/* two bytes too many were copied */
	*(fw_u16_any *)(c->l2_in + FW_ETH_LEN) = 0;
	*(fw_u16_any *)(c->l2_out + FW_ETH_LEN) = 0;
	for (int i = 0; i < 4; i++) {
		c->saddr_be[i] = out->t.saddr_be[i];
		c->daddr_be[i] = out->t.daddr_be[i];
	}
	c->sport_be = out->t.sport_be;
	c->dport_be = out->t.dport_be;
	c->l2_in_len = slot->l2_len;
	c->l2_out_len = p->l2_len;
	c->len_l3 = slot->len_l3;
	c->l3_delta = out->l3_delta;
	c->l4_delta = out->l4_delta;
	c->family = slot->family;
	c->tos_in = slot->tos;
	c->tos_out = p->tos;
	c->ttl_in = slot->ttl;
	c->ttl_out = p->ttl;
	c->nat = out->nat;
	for (int i = 0; i < 2; i++)
		c->pad[i] = 0;
	c->epoch = slot->epoch;
	c->flow_label_be = slot->flow_label_be;
	c->conn = *conn;
}

/* The whole of learning for one frame that leaves under a token. */
static __always_inline enum fw_reason fw_learn(fw_ctx *ctx, __u32 token, struct fw_pkt *p)
{
	const void *data, *end;
	struct fw_slot *slot = fw_slot_get(token - 1);
	__u32 now = fw_now(), first_tick = 0;
	struct fw_offer *offer = NULL;
	struct fw_candidate *c;
	struct fw_cpu *cpu;
	struct fw_out out = {};
	enum fw_reason reason;
	struct fw_offer_key key;
	__u32 copy;
	int group;
	__u64 hash;

	if (!slot || now - slot->tick > fw_cfg.hz)
		return FW_R_LEARN_STALE_TOKEN;
	group = fw_is_group(slot->key.daddr_be[0], slot->family);
	copy = slot->egress++;
	if (copy && !group)
		return FW_R_LEARN_COPIES;
	reason = fw_prove(ctx, token, &out, p);
	if (reason)
		return reason;
	reason = fw_known(ctx, token, &out, p);
	if (reason)
		return reason;
	if (out.proof)
		return out.proof;
	/* all copies of a packet are offered, or none */
	if (copy && !slot->offered)
		return FW_R_LEARN_COPIES;
	if (fw_gso_size(ctx) && !slot->tc_alone)
		return FW_R_LEARN_GSO;
	if (slot->epoch != fw_ctl.epoch)
		return FW_R_LEARN_EPOCH;
	cpu = fw_cpu_get();
	if (!cpu)
		return FW_R_LEARN_BUDGET;
	fw_conn_read(ctx, &cpu->conn, &out.t, p);
	reason = fw_conn_fit(&cpu->conn, slot, &out, p);
	if (reason)
		return reason;
	/* reading the connection may have moved the packet */
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (data + FW_ETH_LEN + 2 > end)
		return FW_R_LEARN_FRAME;
	if (!copy) {
		key.hash = fw_slot_hash(token - 1);
		key.set = fw_slot_set(token - 1);
		/* what becomes of a group's packets the manager compares, of which it has all
		 * copies */
		hash = group ? fw_mix(key.hash, slot->epoch)
			     : fw_hash_action(ctx, key.hash, slot, &out, data, p);
		reason = fw_offer(&key, hash, fw_source_had(slot->key.saddr_be, slot->family, now),
				  token, now, &offer, &first_tick);
		if (reason || !offer)
			return reason;
		slot->offered = group;
		slot->first_tick = first_tick;
	}
	c = fw_event_reserve(sizeof(*c));
	if (!c)
		return FW_R_LEARN_RING;
	c->ev.kind = out.state ? FW_EV_CHANGED : FW_EV_CANDIDATE;
	c->ev.reason = FW_R_LEARNED;
	c->ev.state = out.state;
	/* what changed while it waited for a neighbour came after the decision that it shows */
	c->ev.tick = group ? now : slot->tick;
	c->port_out = fw_port(ctx);
	c->mark = fw_mark(ctx);
	c->priority = fw_priority(ctx);
	c->token = token;
	c->unwired = out.unwired;
	c->first_tick = slot->first_tick;
	c->copy = copy;
	if (offer)
		fw_offer_made(offer, now);
	fw_candidate_fill(c, slot, &out, data, p, &cpu->conn);
	fw_event_submit(c);
	return out.state ? FW_R_CONTRADICTED : FW_R_LEARNED;
}

#endif
