/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: flows that tc owns, tokens at ingress, learning at egress. Frames may be merged. */
#include "target/tc.h"
#include "target/conn.h"
#include "target/conn_read.h"
#include "pipeline.h"
#include "note.h"
#include "alive.h"
#include "answered.h"
#include "learn.h"
#include "session.h"
#include "cross.h"
#include "snoop.h"
#include "precedent.h"

/* TCX_NEXT is TC_ACT_UNSPEC: whoever else is on this hook gets the packet. */
enum { FW_NEXT = -1, FW_DROP = 2 };

/* Tells of the frame whose tuple was noted as it came in. */
static __always_inline void fw_tc_watch(struct __sk_buff *ctx, const struct fw_pkt *p,
					enum fw_reason reason)
{
	struct fw_cpu *cpu = fw_cpu_get();

	if (cpu)
		fw_watch(&cpu->watched, p, fw_port(ctx), FW_STAGE_TC_INGRESS, reason);
}

/*
 * Flows of tc: as in XDP, but as the skbs that the kernel would send, through the port's qdisc. Of
 * external linkage, so that the BPF verifier looks at it once.
 */
int fw_tc_forward(struct __sk_buff *ctx, int tc_alone);

__noinline int fw_tc_forward(struct __sk_buff *ctx, int tc_alone)
{
	const struct fw_nexthop *nh = NULL;
	struct fw_pkt p = {};
	enum fw_reason reason;
	struct fw_cpu *cpu;
	int counted, watch = 0;

	if (fw_hidden(ctx)) {
		if (tc_alone)
			fw_count(FW_TARGET_IS_RAW ? FW_R_NOT_IP : FW_R_VLAN);
		return FW_NEXT;
	}
	fw_pull(ctx);
	/* The tuple as it came in: a rewrite would hide it. */
	if (fw_unlikely(fw_ctl.watch)) {
		cpu = fw_cpu_get();
		watch = cpu && fw_watch_note(ctx, &cpu->watched);
	}
	reason = fw_pipeline(ctx, fw_port(ctx), &p, &nh);
	if (!reason && nh) {
		if (fw_unlikely(watch))
			fw_tc_watch(ctx, &p, FW_R_FAST);
		/* without a token: what is sent here does not confirm itself */
		if (p.owned) {
			ctx->mark = nh->mark;
			ctx->priority = nh->priority;
		}
		return bpf_redirect(nh->port, 0);
	}
	/* what is not of tc's flows XDP has counted, where there is XDP */
	counted = tc_alone || p.owned || reason == FW_R_STRAY_CLOSE;
	if (counted || fw_unlikely(watch)) {
		if (!p.framed)
			reason = fw_name_miss(ctx, &p, reason);
		/* told in any case: XDP of a bridge's port or of a trunk may have told nothing */
		if (fw_unlikely(watch)) {
			fw_watch_look(ctx, &p);
			fw_tc_watch(ctx, &p, reason);
		}
		if (counted)
			fw_count(reason);
	}
	return p.framed || reason == FW_R_STRAY_CLOSE ? FW_DROP : FW_NEXT;
}

/* A function of its own keeps the way of silent flows short; its linkage as above. */
__u32 fw_token(struct __sk_buff *ctx, int tc_alone);

__noinline __u32 fw_token(struct __sk_buff *ctx, int tc_alone)
{
	struct fw_pkt p = {};

	return fw_note(ctx, &p, tc_alone);
}

/* XDP has asked with it. A function of its own keeps the way of all others short. */
static __noinline __u32 fw_asked_token(struct __sk_buff *ctx, __u32 record)
{
	return fw_asked_note(ctx, record, 0);
}

static __always_inline int fw_ingress(struct __sk_buff *ctx, const int without_xdp)
{
	__u32 now = fw_now(), came = ctx->tc_index, asked;
	int tc_alone = without_xdp, verdict;

	/* of a VLAN of a bridge: its own program has it next */
	if (!FW_TARGET_IS_RAW && without_xdp && came >= FW_CROSSING_INDEX && ctx->vlan_present) {
		fw_group_up(ctx, came);
		return FW_NEXT;
	}
	ctx->tc_index = 0;
	if (FW_TARGET_IS_RAW && fw_unlikely(came))
		fw_session_out(came, fw_port(ctx));
	if (!fw_daemon_lives(now))
		return FW_NEXT;
	asked = fw_asked(ctx);
	if (fw_unlikely(asked)) {
		if (fw_ctl.learn)
			ctx->tc_index = fw_asked_token(ctx, asked);
		return FW_NEXT;
	}
	/* of a bridge whose port has XDP; asked of all, for behind a branch the BPF verifier would
	 * look at everything twice */
	if (!FW_TARGET_IS_RAW && without_xdp)
		tc_alone = !fw_crossed_up(ctx, came);
	if (fw_ctl.tc_forwards || (tc_alone && fw_ctl.edges_tick)) {
		verdict = fw_tc_forward(ctx, tc_alone);
		if (verdict != FW_NEXT)
			return verdict;
	}
	if (fw_ctl.edges_tick && !fw_hidden(ctx)) {
		fw_pull(ctx);
		fw_edge_note(ctx);
	}
	if (fw_cfg.precedents && fw_ctl.on && !fw_hidden(ctx)) {
		fw_pull(ctx);
		fw_precede(ctx);
	}
	if (fw_ctl.learn && !fw_hidden(ctx) && !fw_note_silent(ctx, now))
		ctx->tc_index = fw_token(ctx, tc_alone);
	if (!FW_TARGET_IS_RAW && fw_unlikely(ctx->protocol == fw_htons(FW_ETH_PPPOE)))
		ctx->tc_index = fw_session_came(ctx);
	return FW_NEXT;
}

SEC("tc")
int freeway_ingress(struct __sk_buff *ctx)
{
	return fw_ingress(ctx, 0);
}

/* Of a port without XDP. */
SEC("tc")
int freeway_ingress_alone(struct __sk_buff *ctx)
{
	return fw_ingress(ctx, 1);
}

SEC("tc")
int freeway_egress(struct __sk_buff *ctx)
{
	__u32 token = ctx->tc_index;
	struct fw_slot *slot;
	struct fw_pkt p = {};
	struct fw_cpu *cpu;
	enum fw_reason reason;
	int watch = 0;

	if (!FW_TARGET_IS_RAW && fw_unlikely(ctx->protocol == fw_htons(FW_ETH_PPPOE))) {
		ctx->tc_index = 0;
		fw_session_left(ctx);
		return FW_NEXT;
	}
	if (!token)
		return FW_NEXT;
	/* of a VLAN of a bridge: the bridge's port has it next */
	if (!FW_TARGET_IS_RAW && token >= FW_CROSSING_INDEX && ctx->vlan_present)
		return FW_NEXT;
	/* classifiers and qdiscs may look at it, and find what they would without us */
	ctx->tc_index = 0;
	if (token > FW_SLOTS || !fw_ctl.learn)
		return FW_NEXT;
	/* Before learning: another packet may take the slot. */
	if (fw_unlikely(fw_ctl.watch)) {
		slot = fw_slot_get(token - 1);
		cpu = fw_cpu_get();
		watch = slot && cpu;
		if (slot && cpu)
			__builtin_memcpy(&cpu->watched, &slot->key, sizeof(cpu->watched));
	}
	slot = fw_slot_get(token - 1);
	if (fw_unlikely(slot && (slot->family == FW_AF_ROUTED || slot->family == FW_AF_ROUTED6))) {
		fw_count(fw_asked_left(ctx, token));
		return FW_NEXT;
	}
	reason = fw_hidden(ctx) ? FW_R_LEARN_FRAME : fw_learn(ctx, token, &p);
	if (fw_unlikely(watch)) {
		cpu = fw_cpu_get();
		if (cpu)
			fw_watch(&cpu->watched, &p, fw_port(ctx), FW_STAGE_TC_EGRESS, reason);
	}
	fw_count(reason);
	if (!FW_TARGET_IS_RAW && fw_unlikely(fw_ctl.bridges & FW_BRIDGES_ROUTED))
		ctx->tc_index = fw_crossing_down(ctx);
	return FW_NEXT;
}

#if !FW_TARGET_IS_RAW
/* At a port of a bridge, ahead of br_handle_frame(). */
SEC("tc")
int freeway_bridge_ingress(struct __sk_buff *ctx)
{
	ctx->tc_index = 0;
	if (!fw_daemon_lives(fw_now()) || !fw_ctl.learn || !fw_ctl.bridges)
		return FW_NEXT;
	ctx->tc_index = fw_crossing_note(ctx);
	return FW_NEXT;
}

SEC("tc")
int freeway_bridge_egress(struct __sk_buff *ctx)
{
	__u32 token = ctx->tc_index;

	if (!token)
		return FW_NEXT;
	ctx->tc_index = 0;
	if (fw_ctl.learn && token >= FW_CROSSING_INDEX && token < FW_CROSSING_NONE)
		fw_count(fw_crossed(ctx, token));
	return FW_NEXT;
}
#endif

char LICENSE[] SEC("license") = "GPL";
