/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Freshness of a hit: at intervals one packet goes through the kernel to be
 * compared at egress, and once a second the connection is looked up. Both have
 * budgets; what is over them comes later, and `status` shows how old a
 * confirmation may be.
 */
#ifndef FW_FRESH_H
#define FW_FRESH_H

#include "abi.h"
#include "flow.h"

/* By how much revalidations are late: more while some are refused, else less, the less was done. */
static __always_inline __u32 fw_late(const struct fw_cpu *cpu, __u32 now)
{
	__u32 budget = fw_ctl.reval_budget, late = cpu->late_ticks;

	if (cpu->refused)
		return late + 1;
	if (!late || !budget || now - cpu->tick > 1)
		return late / 2;
	return late - 1 - (late - 1) * (budget - cpu->revalidated) / budget / 8;
}

/* Budgets are for each tick of each CPU. */
static __always_inline struct fw_cpu *fw_budget(__u32 now)
{
	struct fw_cpu *cpu = fw_cpu_get();

	if (cpu && cpu->tick != now) {
		cpu->late_ticks = fw_late(cpu, now);
		cpu->refused = 0;
		cpu->tick = now;
		cpu->revalidated = 0;
		cpu->checked = 0;
		cpu->offered = 0;
		cpu->sampled = 0;
	}
	return cpu;
}

/* The slot that this CPU writes next. */
static __always_inline __u32 fw_slot_next(const struct fw_cpu *cpu)
{
	return fw_cpu_id() * fw_cfg.slots_per_cpu + (cpu->slot & (fw_cfg.slots_per_cpu - 1));
}

/*
 * A detour displaces the packet behind its successors. For a quarter of the
 * interval it therefore waits for an idle gap or a pure ACK.
 */
static __always_inline int fw_detour_harmless(const struct fw_state *st, const struct fw_pkt *p,
					      __u32 now)
{
	if (fw_reached(now, st->reval_tick + (st->interval >> 2)))
		return 1;
	/* a tick may have begun just now: a gap of 1 ms takes one more */
	if (now - st->used_tick >= 1 + (fw_cfg.hz + 999) / 1000)
		return 1;
	return p->proto == FW_PROTO_TCP && p->len_l3 < 64 + FW_IP4_LEN;
}

/*
 * More flows than the budget has room for are late by the same time, so that they
 * come in the order in which they are due; one that had no answer is never late.
 * *again: when to look next.
 */
static __always_inline enum fw_reason fw_revalidate(struct fw_state *st, const struct fw_pkt *p,
						    __u32 now, __u32 *again)
{
	struct fw_cpu *cpu = fw_budget(now);
	__u32 late = cpu && !st->misses ? cpu->late_ticks : 0;

	*again = st->reval_tick;
	if (!fw_reached(now, st->reval_tick))
		return FW_R_NONE;
	if (!fw_reached(now, st->reval_tick + late)) {
		/* half the way, for by then it may be less late */
		*again = now + (st->reval_tick + late - now + 1) / 2;
		return FW_R_NONE;
	}
	*again = now + 1;
	/* one that had no answer is to be known soon */
	if (!st->misses && !fw_detour_harmless(st, p, now))
		return FW_R_NONE;
	/* Three that did not come out: the kernel no longer forwards this flow. */
	if (st->misses >= FW_MISSES_MAX) {
		st->epoch = 0;
		return FW_R_EPOCH;
	}
	if (!cpu || cpu->revalidated >= fw_ctl.reval_budget) {
		if (cpu)
			cpu->refused = 1;
		return FW_R_NONE;
	}
	cpu->revalidated++;
	st->misses++;
	st->pending = 1;
	st->reval_tick = now + fw_cfg.hz / 4;
	*again = st->reval_tick;
	return FW_R_REVALIDATE;
}

/* Over the budget the check waits four times as long. */
static __always_inline enum fw_reason fw_check(fw_ctx *ctx, struct fw_flow *f,
					       const struct fw_pkt *p, __u32 *next)
{
	struct fw_cpu *cpu = fw_budget(p->now_tick);
	enum fw_reason reason;

	if (!cpu || cpu->checked >= fw_ctl.check_budget) {
		*next += 3 * fw_cfg.ct_check_ticks;
		return FW_R_NONE;
	}
	cpu->checked++;
	reason = fw_conn_check(ctx, p, f->state.index);
	if (fw_unlikely(reason))
		fw_suspend(&f->state, reason);
	return reason;
}

static __always_inline enum fw_reason fw_fresh(fw_ctx *ctx, struct fw_flow *f,
					       const struct fw_pkt *p)
{
	struct fw_state *st = &f->state;
	__u32 now = p->now_tick, next, again;
	enum fw_reason reason;

	if (fw_likely(!fw_reached(now, st->due_tick)))
		return FW_R_NONE;
	reason = fw_revalidate(st, p, now, &again);
	next = now + fw_cfg.ct_check_ticks;
	if (!reason && (f->flags & FW_FLOW_CT))
		reason = fw_check(ctx, f, p, &next);
	st->due_tick = fw_reached(next, again) ? again : next;
	if (fw_reached(now, st->due_tick))
		st->due_tick = now + 1;
	return reason;
}

#endif
