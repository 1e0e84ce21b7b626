/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A hit: the flow, its state and its next hop, and whether they may be used. */
#ifndef FW_FLOW_H
#define FW_FLOW_H

#include "abi.h"
#include "parse.h"

/* FIN, RST, or a SYN without conntrack: both directions wait until the manager has decided anew. */
static __always_inline void fw_suspend(struct fw_state *st, enum fw_reason reason)
{
	struct fw_flow *peer;
	struct fw_event *ev;

	if (st->status == FW_ST_SUSPENDED)
		return;
	FW_WRITE_ONCE(st->status, FW_ST_SUSPENDED);
	if (st->peer) {
		peer = fw_flow_get(st->peer);
		if (peer)
			FW_WRITE_ONCE(peer->state.status, FW_ST_SUSPENDED);
	}
	ev = fw_event_reserve(sizeof(*ev));
	if (!ev)
		return;
	ev->kind = FW_EV_SUSPENDED;
	ev->reason = reason;
	ev->state = st->index;
	ev->tick = fw_now();
	fw_event_submit(ev);
}

/* XDP is to hand its frames to the engine. */
static __always_inline int fw_hands(const struct fw_flow *f)
{
	return FW_TARGET_HANDS && (f->flags & FW_FLOW_OWNERS) == FW_FLOW_ENGINE;
}

/* Is it this path's? */
static __always_inline int fw_owned(const struct fw_flow *f)
{
	return FW_TARGET_OWNS ? f->flags & FW_TARGET_OWNS : !(f->flags & FW_FLOW_OWNERS);
}

/* Another path's, whose frames are not handed over. */
static __always_inline int fw_is_foreign(const struct fw_flow *f)
{
	return !fw_owned(f) && !fw_hands(f);
}

/* Active, confirmed, and with a next hop, whosoever it is. */
static __always_inline enum fw_reason fw_ready(const struct fw_flow *f, const struct fw_nexthop *nh)
{
	const struct fw_state *st = &f->state;

	if (fw_unlikely(st->status != FW_ST_ACTIVE))
		return st->status == FW_ST_PREPARING ? FW_R_PREPARING : FW_R_SUSPENDED;
	if (fw_unlikely(st->epoch != fw_ctl.epoch))
		return FW_R_EPOCH;
	if (fw_unlikely(!nh->valid))
		return FW_R_NEXTHOP;
	return FW_R_NONE;
}

/* May the flow be used at all, by this path, now? */
static __always_inline enum fw_reason fw_usable(const struct fw_flow *f,
						const struct fw_nexthop *nh)
{
	return fw_unlikely(fw_is_foreign(f)) ? FW_R_OWNER : fw_ready(f, nh);
}

#endif
