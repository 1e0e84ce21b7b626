/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc: flows that tc owns, tokens at ingress, learning at egress. */
#include "target/tc.h"
#include "target/conn.h"
#include "target/conn_read.h"
#include "pipeline.h"
#include "note.h"
#include "learn.h"

/* TCX_NEXT is TC_ACT_UNSPEC: whoever else is on this hook gets the packet. */
enum { FW_NEXT = -1 };

/* Flows of tc: as in XDP, but through the egress port's qdisc. */
static __always_inline int fw_tc_forward(struct __sk_buff *ctx, struct fw_pkt *p)
{
	const struct fw_nexthop *nh = NULL;
	enum fw_reason reason;

	if (ctx->vlan_present || fw_gso_size(ctx)) {
		fw_count(ctx->vlan_present ? FW_R_VLAN : FW_R_GSO);
		return FW_NEXT;
	}
	fw_pull(ctx);
	reason = fw_pipeline(ctx, p, &nh);
	if (!reason && nh) {
		ctx->tc_index = FW_TOKEN_OWN;
		return bpf_redirect(nh->port, 0);
	}
	reason = fw_name_miss(fw_data(ctx), fw_data_end(ctx), p, reason);
	fw_count(reason);
	return FW_NEXT;
}

SEC("tc")
int freeway_ingress(struct __sk_buff *ctx)
{
	struct fw_pkt p = {};
	int verdict;

	ctx->tc_index = 0;
	if (fw_reached(fw_now(), fw_ctl.deadline_tick))
		return FW_NEXT;
	if (fw_cfg.tc_forwards) {
		verdict = fw_tc_forward(ctx, &p);
		if (verdict != FW_NEXT)
			return verdict;
	}
	if (!fw_ctl.learn || ctx->vlan_present)
		return FW_NEXT;
	ctx->tc_index = fw_note(ctx, &p);
	return FW_NEXT;
}

SEC("tc")
int freeway_egress(struct __sk_buff *ctx)
{
	__u32 token = ctx->tc_index;
	struct fw_slot *slot;
	struct fw_pkt p = {};
	struct fw_tuple seen;
	enum fw_reason reason;
	int watch = 0;

	if (!token || token > FW_SLOTS || !fw_ctl.learn)
		return FW_NEXT;
	/* Before learning: another packet may take the slot. */
	if (fw_unlikely(fw_ctl.watch)) {
		slot = fw_slot_get(token - 1);
		watch = !!slot;
		if (slot)
			__builtin_memcpy(&seen, &slot->key, sizeof(seen));
	}
	reason = ctx->vlan_present ? FW_R_LEARN_FRAME : fw_learn(ctx, token, &p);
	if (fw_unlikely(watch))
		fw_watch(&seen, &p, fw_port(ctx), FW_STAGE_TC_EGRESS, reason);
	fw_count(reason);
	return FW_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
