/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tc egress: what the kernel has just done against the flow that the table holds for it. It is
 * confirmed, contradicted, or one copy of several.
 */
#ifndef FW_KNOWN_H
#define FW_KNOWN_H

#include "abi.h"
#include "flow.h"
#include "fresh.h"
#include "guard.h"
#include "lookup.h"
#include "offer.h"
#include "prove.h"

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
	/* what has no class has no priority */
	if (!(f->flags & FW_FLOW_TC) && !nh->leaf)
		return 1;
	return nh->priority == fw_priority(ctx);
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

enum fw_known_const {
	/* so long a packet may have taken that confirms a flow after a change */
	FW_CONFIRM_TICKS = 2,
};

/* The kernel did it again: the flow is good for another interval. */
static __always_inline enum fw_reason fw_confirm(struct fw_state *st, const struct fw_slot *slot,
						 __u32 now)
{
	if (slot->epoch != fw_ctl.epoch)
		return FW_R_LEARN_EPOCH;
	/* it waited, perhaps for a neighbour, and the change came after its route was looked up */
	if (st->epoch != slot->epoch && now - slot->tick > FW_CONFIRM_TICKS)
		return FW_R_LEARN_STALE_TOKEN;
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

#endif
