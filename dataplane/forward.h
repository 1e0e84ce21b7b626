/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What XDP does with a frame of a port, once it is as that port would show it. */
#ifndef FW_FORWARD_H
#define FW_FORWARD_H

#include "pipeline.h"
#include "police.h"

/*
 * A bulk TCP direction shows tc only merged frames, whose checksum proves
 * nothing. Unique metadata keeps a sampled frame out of GRO.
 */
static __noinline enum fw_reason fw_sample(struct xdp_md *ctx)
{
	struct fw_cpu *cpu;
	__u32 *meta;

	if (!fw_ctl.learn)
		return FW_R_MISS;
	cpu = fw_budget(fw_now());
	/* one frame of eight, so that GRO keeps most of its worth */
	if (!cpu || (++cpu->sample_seq & 7) || cpu->sampled >= fw_ctl.sample_budget)
		return FW_R_MISS;
	cpu->sampled++;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return FW_R_MISS;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > fw_data(ctx))
		return FW_R_MISS;
	*meta = cpu->sample_seq;
	return FW_R_SAMPLED;
}

/* What becomes of a frame whose output has just gone. Rewritten, it is nobody's at a port. */
#ifndef FW_NO_OUTPUT
#define FW_NO_OUTPUT XDP_PASS
#endif

/* Where a frame leaves, for who captures it. */
#ifndef FW_SENT
#define FW_SENT(nh)
#endif
#ifndef FW_HANDED
#define FW_HANDED()
#endif

static __always_inline int fw_send(const struct fw_nexthop *nh)
{
	FW_SENT(nh);
	return bpf_redirect_map(&fw_ports, nh->devmap_slot, FW_NO_OUTPUT);
}

static __always_inline int fw_send_copies(const struct fw_nexthop *nh)
{
	__u32 olist = nh->devmap_slot;
	void *ports = bpf_map_lookup_elem(&fw_olist_ports, &olist);

	return ports ? bpf_redirect_map(ports, 0, BPF_F_BROADCAST) : XDP_ABORTED;
}

/*
 * To the engine's socket at the queue where the frame came in. An engine that has gone took its
 * sockets along, and the frame is the kernel's.
 */
static __always_inline int fw_hand(struct xdp_md *ctx, __u32 port)
{
	const __u32 *first;

	/* what lies behind tags is no port of the engine's */
	if (port != fw_port(ctx))
		return XDP_PASS;
	first = bpf_map_lookup_elem(&fw_socket_at, &port);
	if (!first)
		return XDP_PASS;
	FW_HANDED();
	return bpf_redirect_map(&fw_sockets, *first + ctx->rx_queue_index, XDP_PASS);
}

/*
 * A function of its own keeps the ways of a hit and of a plain miss short; of external linkage, so
 * that the BPF verifier looks at it once, and not once for each of them.
 */
int fw_step_by_step(struct xdp_md *ctx, __u32 port);

__noinline int fw_step_by_step(struct xdp_md *ctx, __u32 port)
{
	const struct fw_nexthop *nh = NULL;
	struct fw_pkt p = {};
	struct fw_tuple seen = {};
	enum fw_reason reason;
	int watch = 0, verdict = XDP_PASS, missed;

	/* The tuple as it came in: a rewrite would hide it. */
	if (fw_unlikely(fw_ctl.watch))
		watch = fw_watch_note(ctx, &seen);
	reason = fw_pipeline(ctx, port, &p, &nh);
	if (fw_likely(!reason && nh)) {
		if (fw_unlikely(watch))
			fw_watch(&seen, &p, port, FW_STAGE_XDP, FW_R_FAST);
		return p.copied ? fw_send_copies(nh) : fw_send(nh);
	}
	if (FW_TARGET_HANDS && reason == FW_R_ENGINE) {
		verdict = fw_hand(ctx, port);
		/* the engine tells of what it has */
		if (verdict == XDP_REDIRECT)
			watch = 0;
		else
			reason = FW_R_OWNER;
	}
	missed = reason == FW_R_MISS;
	reason = fw_name_miss(ctx, &p, reason);
	if (fw_cfg.police && fw_police(fw_data(ctx), fw_data_end(ctx), &p, reason)) {
		reason = FW_R_POLICED;
		verdict = XDP_DROP;
	}
	if (fw_unlikely(reason == FW_R_STRAY_CLOSE))
		verdict = XDP_DROP;
	if (missed && (reason == FW_R_MISS || reason == FW_R_PROTOCOL) &&
	    fw_bulk(p.proto, p.len_l3) && fw_sample(ctx) == FW_R_SAMPLED)
		reason = FW_R_SAMPLED;
	if (fw_unlikely(watch)) {
		fw_watch_look(ctx, &p);
		fw_watch(&seen, &p, port, FW_STAGE_XDP, reason);
	}
	fw_count(reason);
	return verdict;
}

static __always_inline int fw_no_hit(struct xdp_md *ctx, __u32 port, enum fw_missed missed)
{
	if (missed == FW_MISSED_UNKNOWN || fw_cfg.police)
		return fw_step_by_step(ctx, port);
	if (missed == FW_MISSED_OTHER)
		fw_count(FW_R_OWNER);
	else
		fw_count(missed == FW_MISSED_BULK ? fw_sample(ctx) : FW_R_MISS);
	return XDP_PASS;
}

#endif
