/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tc egress of the slow path: the difference between what came in (the slot)
 * and what leaves is the flow's action, once it is proven that nothing else
 * changed.
 */
#ifndef FW_LEARN_H
#define FW_LEARN_H

#include "abi.h"
#include "csum.h"
#include "flow.h"
#include "fresh.h"
#include "guard.h"
#include "lookup.h"
#include "offer.h"
#include "parse.h"

/* The frame that leaves, as far as it may differ from the slot. */
struct fw_out {
	struct fw_tuple t;
	__u16 l3_delta;
	__u16 l4_delta;
	__u16 addresses_delta; /* their part of both */
	__u8 nat;
	__u8 unwired; /* merged, or its checksum is unfinished */
	__u32 proof;  /* enum fw_reason: what else changed, or FW_R_NONE */
	__u32 state;  /* of the flow that is to be replaced */
};

static __always_inline int fw_out_read(struct fw_out *out, const struct fw_slot *slot,
				       const void *data, const void *end, const struct fw_pkt *p)
{
	__u32 need = FW_ETH_LEN + FW_UDP_LEN;
	__u64 l3 = 0, l4;

	need += p->family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN;
	if (data + need > end)
		return 0;
	fw_tuple_fill(&out->t, data, p->family, p->proto);
	for (int i = 0; i < 4; i++) {
		l3 += fw_csum_diff(slot->key.saddr_be[i], out->t.saddr_be[i]);
		l3 += fw_csum_diff(slot->key.daddr_be[i], out->t.daddr_be[i]);
	}
	out->addresses_delta = fw_csum_fold(l3);
	l4 = fw_sums_addresses(p->proto) ? l3 : 0;
	l4 += fw_csum_diff(slot->key.sport_be, out->t.sport_be) +
	      fw_csum_diff(slot->key.dport_be, out->t.dport_be);
	out->l4_delta = fw_csum_fold(l4);
	/* TTL shares its word with the protocol, TOS with the version */
	l3 += fw_csum_diff(fw_htons(slot->ttl << 8), fw_htons(p->ttl << 8));
	l3 += fw_csum_diff(fw_htons(slot->tos), fw_htons(p->tos));
	out->l3_delta = fw_csum_fold(l3);
	out->nat = 0;
	for (int i = 0; i < 4; i++)
		out->nat |= slot->key.saddr_be[i] != out->t.saddr_be[i] ||
			    slot->key.daddr_be[i] != out->t.daddr_be[i];
	out->nat |= slot->key.sport_be != out->t.sport_be || slot->key.dport_be != out->t.dport_be;
	return 1;
}

/* Nothing but addresses, ports, TTL and DSCP changed: headers first. */
static __always_inline enum fw_reason fw_prove_headers(const struct fw_slot *slot, const void *data,
						       const void *end, const struct fw_pkt *p)
{
	const void *l4 = fw_l4_at(data, p->family);

	if (slot->family != p->family || (slot->key.port_proto & 0xff) != p->proto)
		return FW_R_LEARN_CHANGED;
	if ((slot->tos ^ p->tos) & FW_TOS_ECN || slot->tcp_flags != p->tcp_flags)
		return FW_R_LEARN_CHANGED;
	if (p->family == FW_AF_INET) {
		const struct fw_ip4 *ip = fw_ip4_at(data);

		if (ip->id_be != slot->ip_id_be || ip->frag_be != slot->frag_be)
			return FW_R_LEARN_CHANGED;
	} else if ((fw_ip6_at(data)->word0_be & fw_htonl(0x000fffff)) != slot->flow_label_be) {
		return FW_R_LEARN_CHANGED;
	}
	if (l4 + FW_L4_MIN > end)
		return FW_R_LEARN_FRAME;
	if (fw_l4_serial(l4, p->proto) != slot->seq_be)
		return FW_R_LEARN_CHANGED;
	if (p->proto == FW_PROTO_TCP) {
		if (l4 + FW_TCP_LEN > end)
			return FW_R_LEARN_FRAME;
		if (((const struct fw_l4 *)l4)->tcp.ack_be != slot->ack_be)
			return FW_R_LEARN_CHANGED;
	}
	return FW_R_NONE;
}

/* Of what has no ports only an echo's identifier may change. */
static __always_inline int fw_id_differs(const struct fw_slot *slot, const struct fw_out *out,
					 __u8 proto)
{
	if (fw_has_ports(proto))
		return 0;
	return slot->key.dport_be != out->t.dport_be ||
	       (!fw_is_icmp(proto) && slot->key.sport_be != out->t.sport_be);
}

/*
 * The L4 checksum covers all the rest. An unfinished one, as of a merged frame, is
 * that of addresses and length: that the kernel changes no data without being told
 * to is then the ruleset's to prove, as of what has none.
 */
static __always_inline enum fw_reason fw_prove_checksum(const struct fw_slot *slot,
							const struct fw_pkt *p,
							const struct fw_out *out, int unfinished)
{
	__u16 want = slot->l4_csum;

	if (!fw_has_check(p->proto))
		return FW_R_NONE;
	if (unfinished)
		want = out->nat ? fw_csum_fold((__u64)want + out->addresses_delta) : want;
	else if (out->nat)
		want = p->proto == FW_PROTO_UDP ? fw_csum_apply_udp(want, out->l4_delta)
						: fw_csum_apply(want, out->l4_delta);
	return want == p->l4_check ? FW_R_NONE : FW_R_LEARN_CHECKSUM;
}

/*
 * Reads the frame that leaves. A reason says that it cannot be compared; what is wrong with
 * it in comparison is out->proof. Of external linkage, as are all of these, so that the BPF
 * verifier looks at it once, and not once for each way that leads here.
 */
enum fw_reason fw_prove(fw_ctx *ctx, __u32 token, struct fw_out *out, struct fw_pkt *p);

__noinline enum fw_reason fw_prove(fw_ctx *ctx, __u32 token, struct fw_out *out, struct fw_pkt *p)
{
	const struct fw_slot *slot = fw_slot_get(token - 1);
	const void *data, *end;
	__u32 gso, len_l3;

	if (!slot || !out || !p)
		return FW_R_LEARN_STALE_TOKEN;
	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (fw_parse(data, end, fw_frame_len(ctx), p) || data + FW_ETH_LEN + 2 > end)
		return FW_R_LEARN_FRAME;
	if (!fw_out_read(out, slot, data, end, p))
		return FW_R_LEARN_FRAME;
	/* what was translated into a group's is copied by routes that its key does not name */
	if (fw_is_group(out->t.daddr_be[0], p->family) !=
	    fw_is_group(slot->key.daddr_be[0], slot->family))
		return FW_R_LEARN_TUPLE;
	gso = fw_gso_size(ctx);
	len_l3 = gso ? fw_segment_len(data, end, p, gso) : p->len_l3;
	out->unwired = gso || fw_unfinished(ctx);
	out->proof = fw_prove_headers(slot, data, end, p);
	if (!out->proof &&
	    (!gso != !slot->gso || len_l3 != slot->len_l3 || fw_id_differs(slot, out, p->proto)))
		out->proof = FW_R_LEARN_CHANGED;
	if (!out->proof)
		out->proof = fw_prove_checksum(slot, p, out, out->unwired);
	return FW_R_NONE;
}

/* conntrack's tuples of ESP and GRE have addresses alone (PPTP's are not learned). */
static __always_inline int fw_tuple_is_key(const struct fw_tuple *t, const struct fw_key6 *key,
					   __u8 proto)
{
	for (int i = 0; i < 4; i++)
		if (t->saddr_be[i] != key->saddr_be[i] || t->daddr_be[i] != key->daddr_be[i])
			return 0;
	if (!fw_has_check(proto))
		return !t->sport_be && !t->dport_be;
	return t->sport_be == key->sport_be && t->dport_be == key->dport_be;
}

static __always_inline int fw_tuple_inverts(const struct fw_tuple *a, const struct fw_tuple *b,
					    __u8 proto)
{
	for (int i = 0; i < 4; i++)
		if (a->saddr_be[i] != b->daddr_be[i] || a->daddr_be[i] != b->saddr_be[i])
			return 0;
	if (!fw_has_check(proto))
		return !b->sport_be && !b->dport_be;
	if (proto == FW_PROTO_ICMP)
		return a->sport_be == b->sport_be &&
		       (a->dport_be ^ b->dport_be) == fw_htons(FW_ICMP_ECHO << 8);
	if (proto == FW_PROTO_ICMP6)
		return a->sport_be == b->sport_be &&
		       (a->dport_be ^ b->dport_be) ==
			       fw_htons((FW_ICMP6_ECHO ^ FW_ICMP6_ECHO_REPLY) << 8);
	return a->sport_be == b->dport_be && a->dport_be == b->sport_be;
}

/* Both ends take part. Only some protocols have a word for more than one answer. */
static __always_inline int fw_conn_answered(__u32 status, __u8 proto)
{
	return status & (proto == FW_PROTO_UDP ? FW_IPS_ASSURED : FW_IPS_SEEN_REPLY);
}

/* May this connection be taken out of the kernel's sight? A function of its own, as above. */
static __noinline enum fw_reason fw_conn_fit(const struct fw_conn *c, const struct fw_slot *slot,
					     const struct fw_out *out, const struct fw_pkt *p)
{
	const __u8 proto = p->proto;
	const __u32 never = FW_IPS_DYING | FW_IPS_NAT_CLASH | FW_IPS_SEQ_ADJUST |
			    FW_IPS_FIXED_TIMEOUT | FW_IPS_TEMPLATE | FW_IPS_OFFLOAD |
			    FW_IPS_HW_OFFLOAD;

	if (!c->present) {
		if (out->nat)
			return FW_R_LEARN_TUPLE;
		/* what the kernel does to it, it does not do to the others */
		if (!(c->status & FW_IPS_UNTRACKED) &&
		    (p->family == FW_AF_INET ? fw_ctl.tracks4 : fw_ctl.tracks6))
			return FW_R_LEARN_INVALID;
		return FW_R_NONE;
	}
	if (!(c->status & FW_IPS_CONFIRMED) || (c->status & never))
		return FW_R_LEARN_CONN_STATUS;
	if (c->helper || (c->status & FW_IPS_HELPER))
		return FW_R_LEARN_HELPER;
	if (c->seqadj)
		return FW_R_LEARN_SEQADJ;
	if (proto == FW_PROTO_TCP && c->tcp_state != FW_CT_ESTABLISHED)
		return FW_R_LEARN_CONN_STATE;
	/* picked up in its midst (nf_conntrack_tcp_loose): rules see each of its packets as NEW */
	if (proto == FW_PROTO_TCP && !(c->status & FW_IPS_SEEN_REPLY))
		return FW_R_LEARN_NO_REPLY;
	/* one way; of what was expected rules see RELATED packets, and their analysis NEW ones */
	if (proto != FW_PROTO_TCP && !fw_conn_answered(c->status, proto) &&
	    (proto != FW_PROTO_UDP || !fw_ctl.udp_one_way ||
	     (c->status & (FW_IPS_SEEN_REPLY | FW_IPS_EXPECTED))))
		return FW_R_LEARN_NO_REPLY;
	/* nf_nat_packet() makes the inverse of the other direction's tuple */
	if (!fw_tuple_is_key(c->dir ? &c->reply : &c->orig, &slot->key, proto) ||
	    !fw_tuple_inverts(&out->t, c->dir ? &c->orig : &c->reply, proto))
		return FW_R_LEARN_TUPLE;
	return FW_R_NONE;
}

static __always_inline __u64 fw_hash_action(const fw_ctx *ctx, __u64 hash,
					    const struct fw_slot *slot, const struct fw_out *out,
					    const void *data, const struct fw_pkt *p)
{
	__u32 port = fw_port(ctx);
	const fw_u64_any *word = (const void *)&out->t;

	for (int i = 0; i < 4; i++)
		hash = fw_mix(hash, word[i]);
	hash = fw_mix(hash, (__u64)out->t.sport_be << 16 | out->t.dport_be);
	hash = fw_mix(hash, *(const fw_u64_any *)slot->l2);
	hash = fw_mix(hash, *(const fw_u64_any *)(slot->l2 + 6));
	if (!FW_TARGET_IS_RAW) {
		hash = fw_mix(hash, *(const fw_u64_any *)data);
		hash = fw_mix(hash, *(const fw_u64_any *)(data + 6));
	}
	hash = fw_mix(hash, (__u64)fw_priority(ctx) << 32 | fw_mark(ctx));
	hash = fw_mix(hash, (__u64)port << 32 | (__u32)slot->ttl << 24 | (__u32)p->ttl << 16 |
				    (slot->tos & FW_TOS_DSCP) << 8 | (p->tos & FW_TOS_DSCP));
	return fw_mix(hash, (__u64)slot->flow_label_be << 32 | slot->epoch);
}

/* Does the flow leave where, and as what, the kernel's frame has just left? */
static __always_inline int fw_exit_equal(const fw_ctx *ctx, const struct fw_flow *f,
					 const struct fw_nexthop *nh, const void *data)
{
	if (nh->valid != FW_NH_PORT || nh->port != fw_port(ctx) || !fw_link_equal(data, nh->l2))
		return 0;
	if (nh->mark != fw_mark(ctx))
		return 0;
	return !(f->flags & FW_FLOW_TC) || nh->priority == fw_priority(ctx);
}

/* No leg. */
enum { FW_LEG_NONE = FW_OLIST_MAX };

/* By which leg of the list the kernel's frame has left, or FW_LEG_NONE. */
static __always_inline __u32 fw_leg_of(const fw_ctx *ctx, const struct fw_olist *list,
				       const void *data)
{
	for (__u32 i = 0; i < FW_OLIST_MAX && i < list->count; i++) {
		const struct fw_nexthop *leg = &list->leg[i];

		if (leg->port == fw_port(ctx) && leg->mark == fw_mark(ctx))
			return fw_link_equal(data, leg->l2) ? i : FW_LEG_NONE;
	}
	return FW_LEG_NONE;
}

/* Notes that the leg had its copy; false if it is none, or had one before. */
static __always_inline int fw_leg_served(struct fw_slot *slot, __u32 leg)
{
	__u32 bit;

	if (leg >= FW_LEG_NONE)
		return 0;
	bit = 1u << leg;
	if (slot->served & bit)
		return 0;
	slot->served |= bit;
	return 1;
}

/* Did each leg have one? */
static __always_inline int fw_legs_done(const struct fw_slot *slot, const struct fw_olist *list)
{
	return slot->served == (1u << (list->count & FW_OLIST_MAX)) - 1;
}

/* Does the table's flow say what the kernel has just done within the packet? */
static __always_inline int fw_action_equal(const struct fw_flow *f, const struct fw_out *out,
					   const struct fw_pkt *p)
{
	if (f->ttl_out != p->ttl || f->dscp_out != (p->tos & FW_TOS_DSCP))
		return 0;
	if (f->sport_be != out->t.sport_be || f->dport_be != out->t.dport_be)
		return 0;
	if (p->family == FW_AF_INET)
		return f->saddr_be == out->t.saddr_be[0] && f->daddr_be == out->t.daddr_be[0];
	for (int i = 0; i < 4; i++)
		if (f->saddr6_be[i] != out->t.saddr_be[i] || f->daddr6_be[i] != out->t.daddr_be[i])
			return 0;
	return 1;
}

static __always_inline int fw_guard_equal(const struct fw_flow *f, const struct fw_slot *slot)
{
	return fw_l2_equal(slot->l2, f->l2_in) && slot->ttl == f->ttl_in &&
	       (slot->tos & FW_TOS_DSCP) == f->dscp_in &&
	       (slot->family != FW_AF_INET6 || !fw_label_differs(f, slot->flow_label_be));
}

/* The kernel's window tracking is as strict as ever once it sees a packet. */
static __always_inline void fw_mark_seen(__u32 index)
{
	struct fw_seen *seen = fw_seen_get(index / FW_SEEN_FLOWS);

	if (seen)
		FW_WRITE_ONCE(seen->flow[index % FW_SEEN_FLOWS], 1);
}

/* The kernel did it again: the flow is good for another interval. */
static __always_inline enum fw_reason fw_confirm(struct fw_state *st, const struct fw_slot *slot,
						 __u32 now)
{
	if (slot->epoch != fw_ctl.epoch)
		return FW_R_LEARN_EPOCH;
	st->misses = 0;
	if (st->pending || st->epoch != slot->epoch || slot->len_l3 > st->len_max) {
		/* a revalidation, or a confirmation after a change (of the MTU,
		 * perhaps), proves no more than its own length */
		st->len_max = slot->len_l3;
		st->pending = 0;
	}
	st->confirmed_tick = now;
	st->reval_tick = now + st->interval;
	FW_WRITE_ONCE(st->epoch, slot->epoch);
	if ((slot->key.port_proto & 0xff) == FW_PROTO_TCP)
		fw_mark_seen(st->index);
	return FW_R_CONFIRMED;
}

static __always_inline struct fw_words4 fw_slot_key4(const struct fw_slot *slot)
{
	const fw_u64_any *ports = (const void *)&slot->key.sport_be;

	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return (struct fw_words4){
			(__u64)slot->key.saddr_be[0] << 32 | slot->key.daddr_be[0], *ports};
	return (struct fw_words4){(__u64)slot->key.daddr_be[0] << 32 | slot->key.saddr_be[0],
				  *ports};
}

static __always_inline struct fw_words6 fw_slot_key6(const struct fw_slot *slot)
{
	const fw_u64_any *word = (const void *)&slot->key;

	return (struct fw_words6){{word[0], word[1], word[2], word[3]}, word[4]};
}

static __always_inline struct fw_offer_key fw_slot_offer_key(const struct fw_slot *slot)
{
	struct fw_words4 key4;
	struct fw_words6 key6;

	if (slot->family == FW_AF_INET6) {
		key6 = fw_slot_key6(slot);
		return fw_offer_key6(&key6, &fw_cfg);
	}
	key4 = fw_slot_key4(slot);
	return fw_offer_key4(&key4, &fw_cfg);
}

__u64 fw_slot_hash(__u32 slot_index);
__u32 fw_slot_set(__u32 slot_index);

__noinline __u64 fw_slot_hash(__u32 slot_index)
{
	const struct fw_slot *slot = fw_slot_get(slot_index);

	return slot ? fw_slot_offer_key(slot).hash : 0;
}

__noinline __u32 fw_slot_set(__u32 slot_index)
{
	const struct fw_slot *slot = fw_slot_get(slot_index);

	return slot ? fw_slot_offer_key(slot).set : 0;
}

/* The place of the flow that the table holds for what a slot saw come in, or none. */
__u32 fw_slot_flow(__u32 slot_index);

__noinline __u32 fw_slot_flow(__u32 slot_index)
{
	const struct fw_slot *slot = fw_slot_get(slot_index);
	struct fw_words4 key4;
	struct fw_words6 key6;

	if (!slot)
		return FW_INDEX_NONE;
	if (slot->family == FW_AF_INET6) {
		key6 = fw_slot_key6(slot);
		return fw_search6(&key6, fw_home6(&key6, &fw_cfg));
	}
	key4 = fw_slot_key4(slot);
	return fw_search4(key4.addresses, key4.ports, fw_home4(&key4, &fw_cfg));
}

/* Hits within the last second. */
static __always_inline int fw_in_use(const struct fw_state *st, __u32 now)
{
	return st->status == FW_ST_ACTIVE && st->epoch == fw_ctl.epoch &&
	       now - st->used_tick < fw_cfg.hz;
}

/* Its connection is the flow's; else conntrack has begun to see the flow. */
static __always_inline int fw_conn_equal(fw_ctx *ctx, const struct fw_flow *f)
{
	return fw_likely((f->flags & FW_FLOW_CT) || !fw_conn_attached(ctx));
}

/*
 * Compares a copy with the legs of a flow to a group, which is confirmed once each has
 * had its own. While the flow waits its copies are looked at as new ones, too: there
 * may be fewer than before.
 */
static __always_inline enum fw_reason fw_known_copy(fw_ctx *ctx, struct fw_flow *f,
						    const struct fw_olist *list,
						    struct fw_slot *slot, const struct fw_out *out,
						    const void *data, const struct fw_pkt *p)
{
	const int waits = f->state.epoch != fw_ctl.epoch;

	if (!out->proof && fw_action_equal(f, out, p) && fw_conn_equal(ctx, f) &&
	    fw_leg_served(slot, fw_leg_of(ctx, list, data))) {
		if (fw_legs_done(slot, list))
			return fw_confirm(&f->state, slot, fw_now());
		return waits ? FW_R_NONE : FW_R_LEARN_COPIES;
	}
	/* no leg's: what the others have confirms nothing any more */
	slot->served |= 1U << FW_OLIST_MAX;
	if (slot->epoch == fw_ctl.epoch)
		FW_WRITE_ONCE(f->state.epoch, 0);
	return out->proof;
}

/*
 * Compares with the flow that the table holds, if any. FW_R_NONE: nothing is
 * known, learn; out->state then names a flow that is to be replaced.
 */
enum fw_reason fw_known(fw_ctx *ctx, __u32 token, struct fw_out *out, const struct fw_pkt *p);

__noinline enum fw_reason fw_known(fw_ctx *ctx, __u32 token, struct fw_out *out,
				   const struct fw_pkt *p)
{
	struct fw_slot *slot = fw_slot_get(token - 1);
	__u32 place = fw_slot_flow(token - 1);
	struct fw_flow *f = place ? fw_flow_get(place) : NULL;
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_nexthop *nh;
	const struct fw_olist *list;

	if (!slot || !out || !p || data + FW_ETH_LEN + 2 > end)
		return FW_R_LEARN_FRAME;
	out->state = FW_INDEX_NONE;
	if (!f)
		return FW_R_NONE;
	out->state = f->state.index;
	/* strays do not take a living flow's place; a sender that changed for good does, a second
	 * later */
	if (!fw_guard_equal(f, slot))
		return fw_in_use(&f->state, fw_now()) ? FW_R_LEARN_GUARD : FW_R_NONE;
	nh = fw_nexthop_get(f->nexthop);
	if (!nh)
		return FW_R_NONE;
	if (fw_unlikely(fw_is_olist(nh->valid))) {
		list = fw_olist_get(nh->devmap_slot);
		return list ? fw_known_copy(ctx, f, list, slot, out, data, p) : out->proof;
	}
	if (!out->proof && fw_exit_equal(ctx, f, nh, data) && fw_action_equal(f, out, p)) {
		if (fw_conn_equal(ctx, f))
			return fw_confirm(&f->state, slot, fw_now());
		/* it is learned anew, with its connection */
		FW_WRITE_ONCE(f->state.epoch, 0);
		return FW_R_NONE;
	}
	if (slot->epoch == fw_ctl.epoch)
		FW_WRITE_ONCE(f->state.epoch, 0);
	return out->proof;
}

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
		reason = fw_offer(&key, hash, token, now, &offer, &first_tick);
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
	c->ev.tick = now;
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
