/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path in XDP. A miss writes nothing. */
#include "target/xdp.h"
#include "target/conn.h"
#include "pipeline.h"
#include "bridge.h"
#include "olist.h"
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

static __always_inline int fw_send(const struct fw_nexthop *nh)
{
	return bpf_redirect_map(&fw_ports, nh->devmap_slot, XDP_PASS);
}

static __always_inline int fw_send_copies(const struct fw_nexthop *nh)
{
	__u32 olist = nh->devmap_slot;
	void *ports = bpf_map_lookup_elem(&fw_olist_ports, &olist);

	return ports ? bpf_redirect_map(ports, 0, BPF_F_BROADCAST) : XDP_ABORTED;
}

/* A function of its own keeps the ways of a hit and of a plain miss short. */
static __noinline int fw_step_by_step(struct xdp_md *ctx, __u32 port)
{
	const struct fw_nexthop *nh = NULL;
	struct fw_pkt p = {};
	struct fw_tuple seen;
	enum fw_reason reason;
	int watch = 0, verdict = XDP_PASS, missed;

	/* The tuple as it came in: a rewrite would hide it. */
	if (fw_unlikely(fw_ctl.watch))
		watch = fw_watch_note(&seen, fw_data(ctx), fw_data_end(ctx));
	reason = fw_pipeline(ctx, port, &p, &nh);
	if (fw_likely(!reason && nh)) {
		if (fw_unlikely(watch))
			fw_watch(&seen, &p, port, FW_STAGE_XDP, FW_R_FAST);
		return p.copied ? fw_send_copies(nh) : fw_send(nh);
	}
	missed = reason == FW_R_MISS;
	reason = fw_name_miss(fw_data(ctx), fw_data_end(ctx), &p, reason);
	if (fw_cfg.police && fw_police(fw_data(ctx), fw_data_end(ctx), &p, reason)) {
		reason = FW_R_POLICED;
		verdict = XDP_DROP;
	}
	if (missed && (reason == FW_R_MISS || reason == FW_R_PROTOCOL) &&
	    fw_bulk(p.proto, p.len_l3) && fw_sample(ctx) == FW_R_SAMPLED)
		reason = FW_R_SAMPLED;
	if (fw_unlikely(watch))
		fw_watch(&seen, &p, port, FW_STAGE_XDP, reason);
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

SEC("xdp")
int freeway_xdp(struct xdp_md *ctx)
{
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	__u32 port = fw_port(ctx), within = 0;
	const struct fw_nexthop *nh = fw_hit(ctx, port, &missed);
	struct fw_head head;
	int verdict;

	if (fw_likely(nh))
		return fw_send(nh);
	/* a frame with tags or a session, as the device that takes them off would show it */
	if (missed == FW_MISSED_UNKNOWN && fw_is_framed(ctx))
		within = fw_unframe(ctx, &head);
	if (within) {
		port = within;
		nh = fw_hit(ctx, port, &missed);
		if (fw_likely(nh))
			return fw_send(nh);
	}
	verdict = fw_no_hit(ctx, port, missed);
	if (within && verdict == XDP_PASS && !fw_reframe(ctx, &head))
		return XDP_ABORTED;
	return verdict;
}

/* At a port of a bridge. */
SEC("xdp")
int freeway_bridge(struct xdp_md *ctx)
{
	__u32 now = fw_now(), len = fw_frame_len(ctx);
	struct fw_stations key;
	struct fw_path *path;
	struct fw_tag tag_out;
	enum fw_reason reason = fw_gate(now);
	__u32 slot;

	if (fw_unlikely(reason))
		goto punt;
	reason = FW_R_SHORT;
	if (fw_unlikely(!fw_stations_of(&key, ctx)))
		goto punt;
	reason = FW_R_MULTICAST;
	if (key.macs[0] & 1)
		goto punt;
	path = bpf_map_lookup_elem(&fw_paths, &key);
	reason = FW_R_BRIDGED;
	if (!path || fw_is_watched(&key, ctx))
		goto punt;
	reason = fw_path_permit(path, len, now);
	if (fw_unlikely(reason))
		goto punt;
	slot = path->devmap_slot;
	tag_out = path->tag;
	/* read first, or they may be those of another path: BPF's maps reuse at once what is
	 * deleted */
	asm volatile("" : "+r"(slot) : : "memory");
	reason = FW_R_BRIDGED;
	if (fw_unlikely(fw_stations_differ(&path->key, &key)))
		goto punt;
	reason = FW_R_REDIRECT;
	if (fw_unlikely(!fw_retag(ctx, &key.tag, &tag_out)))
		goto punt;
	fw_path_account(path, len);
	/* with another tag it is of another VLAN for the kernel */
	return bpf_redirect_map(&fw_ports, slot,
				fw_tag_differs(&key.tag, &tag_out) ? XDP_DROP : XDP_PASS);
punt:
	fw_count(reason);
	return XDP_PASS;
}

/*
 * At a port of some list, on what is sent there: a copy becomes that port's. Frames of
 * other flows have no mark. The port's entry in fw_ports has the program too, for the
 * kernel runs that of the first frame on all that it sends at once: bq_enqueue() in
 * kernel/bpf/devmap.c.
 */
SEC("xdp/devmap")
int freeway_leg(struct xdp_md *ctx)
{
	const struct fw_nexthop *leg;
	__u32 olist;

	if (fw_likely(!fw_copy_marked(ctx, &olist)))
		return XDP_PASS;
	leg = fw_leg_at(olist, ctx->egress_ifindex);
	return leg && fw_copy_unmark(ctx) && fw_leg_write(ctx, leg) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
