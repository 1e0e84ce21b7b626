/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way of a packet through the fast path. This is the only file that knows
 * the order of the stages; a target header says where it runs.
 */
#ifndef FW_PIPELINE_H
#define FW_PIPELINE_H

#include "abi.h"
#include "closing.h"
#include "flow.h"
#include "framing.h"
#include "fresh.h"
#include "guard.h"
#include "hit.h"
#include "lookup.h"
#include "parse.h"
#include "rewrite.h"
#include "watch.h"

/* The daemon lives, and the fast path is on. */
static __always_inline enum fw_reason fw_gate(__u32 now)
{
	if (fw_unlikely(fw_reached(now, fw_ctl.deadline_tick)))
		return FW_R_DEADLINE;
	if (fw_unlikely(!fw_ctl.on))
		return FW_R_OFF;
	return FW_R_NONE;
}

/* Of a closing segment without a flow: the kernel may have it for that reason, or it is a stray. */
static __always_inline enum fw_reason fw_stray_or(fw_ctx *ctx, const struct fw_pkt *p,
						  enum fw_reason reason)
{
	enum fw_closer closer = fw_closer_of(ctx, NULL, p->family == FW_AF_INET6, p->tcp_flags);

	return closer >= FW_CLOSER_PASSES ? FW_R_STRAY_CLOSE : reason;
}

/* Of a closing segment of a flow: as fw_permit(). Of external linkage as fw_closer_of(). */
enum fw_reason fw_permit_close(fw_ctx *ctx, struct fw_flow *f, const struct fw_nexthop *nh,
			       const struct fw_pkt *p);

__noinline enum fw_reason fw_permit_close(fw_ctx *ctx, struct fw_flow *f,
					  const struct fw_nexthop *nh, const struct fw_pkt *p)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	enum fw_closer closer = FW_CLOSER_BELIEVED;

	if (!FW_TARGET_JUDGES || !f || !nh || !p)
		return FW_R_CLOSING;
	if (f->flags & FW_FLOW_CT)
		closer = fw_closer_of(ctx, f, p->family == FW_AF_INET6, p->tcp_flags);
	if (closer == FW_CLOSER_OPENS)
		return FW_R_TCP_FLAGS;
	if (closer == FW_CLOSER_BELIEVED) {
		fw_suspend(&f->state, FW_R_CLOSING);
		return FW_R_CLOSING;
	}
	/* of a flow of tc's: it has it next */
	if (closer == FW_CLOSER_PASSES && !FW_TARGET_IS_TC && fw_is_foreign(f))
		return FW_R_OWNER;
	/* the kernel would believe it: it goes the fast way or none. What nobody ahead of tc could
	 * judge, which is the engine's, tc sends */
	if (closer == FW_CLOSER_STRAY || data + FW_ETH_LEN + FW_IP6_LEN > end || fw_ready(f, nh) ||
	    fw_guard(f, data, p))
		return FW_R_STRAY_CLOSE;
	return FW_R_NONE;
}

/* From a hit to permission: everything but the rewriting. */
static __always_inline enum fw_reason fw_permit(fw_ctx *ctx, struct fw_flow *f,
						const struct fw_nexthop *nh, const void *data,
						const struct fw_pkt *p)
{
	enum fw_reason reason;

	if (fw_unlikely(fw_tcp_closes(p)))
		return fw_permit_close(ctx, f, nh, p);
	reason = fw_usable(f, nh);
	if (fw_unlikely(reason))
		return reason;
	if (fw_unlikely(!fw_tcp_plain(p)))
		return FW_R_TCP_FLAGS;
	reason = fw_guard(f, data, p);
	if (fw_unlikely(reason))
		return reason;
	return fw_fresh(ctx, f, p);
}

/* Of a counter that one CPU writes, but for strays. */
#ifndef FW_TARGET_ADD
#define FW_TARGET_ADD(proto, to, what) (*(to) += (what))
#endif

/* A merged frame counts as the frames that it will be. */
static __always_inline void fw_account(struct fw_state *st, const struct fw_nexthop *nh,
				       const struct fw_pkt *p, __u32 gso)
{
	__u32 len_headers = p->len_segment - gso, len_data = p->len_l3 - len_headers;
	__u32 frames = gso ? (len_data + gso - 1) / gso : 1;

	FW_TARGET_ADD(p->proto, &st->packets, frames);
	FW_TARGET_ADD(p->proto, &st->bytes,
		      len_data + frames * (nh->l2_len + nh->outer_len + len_headers));
	st->used_tick = p->now_tick;
}

static __always_inline struct fw_flow *fw_find(const void *data, __u32 port, const struct fw_pkt *p,
					       const int v6)
{
	struct fw_words4 key4;
	struct fw_words6 key6;

	if (v6) {
		key6 = fw_key6_of(data, port, p->proto);
		return fw_find6(&key6);
	}
	key4 = fw_key4_of(data, port, p->proto);
	return fw_find4(&key4);
}

static __always_inline enum fw_reason fw_forward(fw_ctx *ctx, __u32 port, struct fw_pkt *p,
						 const int v6, const struct fw_nexthop **out)
{
	const __u32 l4_at = FW_ETH_LEN + (v6 ? FW_IP6_LEN : FW_IP4_LEN);
	void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_nexthop *nh;
	struct fw_flow *flow;
	enum fw_reason reason;
	__u32 gso = fw_gso_size(ctx), kind;

	if (data + l4_at + FW_L4_MIN > end)
		return FW_R_SHORT;
	if (fw_merged_otherwise(ctx, p->proto))
		return FW_R_PROTOCOL;
	p->len_segment = gso ? fw_segment_len(data, end, p, gso) : p->len_l3;
	flow = fw_find(data, port, p, v6);
	if (!flow && fw_likely(!fw_tcp_closes(p)))
		return FW_R_MISS;
	if (!flow)
		return fw_stray_or(ctx, p, FW_R_MISS_CLOSE);
	p->owned = fw_owned(flow);
	nh = fw_nexthop_get(flow->nexthop);
	if (!nh)
		return FW_R_NEXTHOP;
	kind = FW_READ_ONCE(nh->valid);
	p->copied = fw_is_olist(kind);
	reason = fw_permit(ctx, flow, nh, data, p);
	if (fw_unlikely(reason))
		return reason;
	if (p->proto == FW_PROTO_TCP && FW_TARGET_NOTES(ctx) && !fw_tcp_closes(p) &&
	    data + l4_at + FW_TCP_LEN <= end) {
		const struct fw_l4 *l4 = data + l4_at;

		fw_said_note(&flow->state, l4,
			     p->len_l3 + FW_ETH_LEN - l4_at - (l4->tcp.doff >> 4) * 4);
	}
	/* what closes, and is not the kernel's, is judged here, and leaves from here */
	if (fw_hands(flow) && !fw_tcp_closes(p))
		return FW_R_ENGINE;
	if (fw_unlikely(p->copied) && !fw_copy_mark(ctx, nh->devmap_slot, kind, &data, &end))
		return FW_R_REDIRECT;
	if (fw_unlikely(!fw_trim(ctx, &data, &end, FW_ETH_LEN + p->len_l3)))
		return FW_R_REDIRECT;
	if (fw_unlikely(!fw_resum(ctx, &data, &end, flow, p)))
		return FW_R_REDIRECT;
	if (fw_unlikely(fw_leaves_framed(nh)) && !fw_frame_room(ctx, nh, &data, &end))
		return FW_R_REDIRECT;
	if (fw_unlikely(!fw_rewrite(data, end, flow, nh, p->proto, v6)))
		return FW_R_REDIRECT;
	if (fw_unlikely(fw_leaves_framed(nh)) && !fw_frame(ctx, nh, p->len_l3))
		return FW_R_REDIRECT;
	fw_account(&flow->state, nh, p, gso);
	*out = nh;
	return FW_R_NONE;
}

/*
 * fw_parse() of external linkage: what it found is anything to the BPF verifier, which looks at
 * what follows once, and not once for each kind of frame.
 */
enum fw_reason fw_parse_apart(fw_ctx *ctx, struct fw_pkt *p);

__noinline enum fw_reason fw_parse_apart(fw_ctx *ctx, struct fw_pkt *p)
{
	return p ? fw_parse(fw_data(ctx), fw_data_end(ctx), fw_frame_len(ctx), p) : FW_R_SHORT;
}

/* Says how the frame that came in at `port` was forwarded, or why the kernel gets it unchanged. */
static __always_inline enum fw_reason fw_pipeline(fw_ctx *ctx, __u32 port, struct fw_pkt *p,
						  const struct fw_nexthop **out)
{
	enum fw_reason gate, reason;

	p->now_tick = fw_now();
	gate = fw_gate(p->now_tick);
	/* while it is off, connections that were fast are still judged by what is known of them */
	if (fw_unlikely(gate) && (gate != FW_R_OFF || !fw_ctl.edges_tick))
		return gate;
	reason = fw_parse_apart(ctx, p);
	if (fw_unlikely(gate)) {
		return reason || !fw_tcp_closes(p) ? gate : fw_stray_or(ctx, p, gate);
	}
	if (fw_unlikely(reason))
		return reason;
	return p->family == FW_AF_INET ? fw_forward(ctx, port, p, 0, out)
				       : fw_forward(ctx, port, p, 1, out);
}

/*
 * The tuple of the frame as it is now, before any rewrite; 0 if it has none. Of external linkage,
 * so that the BPF verifier looks once at what follows.
 */
int fw_watch_note(fw_ctx *ctx, struct fw_tuple *t);

__noinline int fw_watch_note(fw_ctx *ctx, struct fw_tuple *t)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	__u32 need = FW_ETH_LEN + FW_UDP_LEN;
	__u8 family, proto;

	if (!t || data + FW_ETH_LEN > end)
		return 0;
	family = fw_ethertype_be(data, end) == fw_htons(FW_ETH_IP) ? FW_AF_INET : FW_AF_INET6;
	need += family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN;
	if (data + need > end)
		return 0;
	proto = family == FW_AF_INET ? fw_ip4_at(data)->proto : fw_ip6_at(data)->next_header;
	fw_tuple_fill(t, data, family, proto);
	return 1;
}

/*
 * A watched packet came, although the fast path is switched off and did not look at it.
 * Of external linkage, so that the BPF verifier looks at it once.
 */
int fw_watch_look(fw_ctx *ctx, struct fw_pkt *p);

__noinline int fw_watch_look(fw_ctx *ctx, struct fw_pkt *p)
{
	return p && !p->family && fw_parse_apart(ctx, p);
}

/*
 * A miss that can never be a flow, or of which most are none, has a more telling name. Of external
 * linkage: to the BPF verifier what comes back is any reason, and what follows is looked at once.
 */
enum fw_reason fw_name_miss(fw_ctx *ctx, const struct fw_pkt *p, __u32 reason);

__noinline enum fw_reason fw_name_miss(fw_ctx *ctx, const struct fw_pkt *p, __u32 reason)
{
	const void *data, *end;

	/* or the compiler passes none where there is no link layer to look at */
	asm volatile("" : "+r"(ctx));
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (!p || (reason != FW_R_MISS && reason != FW_R_GUARD_TTL))
		return reason;
	if (data + FW_ETH_LEN <= end && fw_link_multicast(data))
		return FW_R_MULTICAST;
	if (p->ttl <= 1)
		return FW_R_TTL;
	if (reason != FW_R_MISS || fw_has_ports(p->proto))
		return reason;
	return fw_is_icmp(p->proto) ? FW_R_ICMP : FW_R_PROTOCOL;
}

#endif
