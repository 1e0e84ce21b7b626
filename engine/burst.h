/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline over a burst of frames: the flows of all are found, and then each frame is handled.
 * What a frame begins with is fetched some frames ahead, and its flow when it is found; so a worker
 * hardly waits for memory.
 */
#ifndef FWE_BURST_H
#define FWE_BURST_H

#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "engine.h"
#include "../dataplane/target/engine.h"
#include "../dataplane/pipeline.h"
#include "../dataplane/police.h"

_Static_assert((int)FWE_PORTS_MAX <= (int)FW_ENGINE_PORTS, "outputs are a worker's ports");

enum {
	/* So many frames ahead of the one that is looked at, the first octets are fetched: a core
	 * has room for some lines on their way, and waits for one of them if there are more. */
	FWE_AHEAD = 8,
};

/* How a hit went. */
enum fwe_hit_way {
	FWE_HIT_PLAIN = 0,
	FWE_HIT_NONE,   /* it is none, or went step by step */
	FWE_HIT_UNSURE, /* nothing is written yet */
	FWE_HIT_FRAMED, /* the straight way, once its tags were off; fw_count() knows of it */
	FWE_HIT_ROUTED, /* by its destination, of which leaves keep count */
};

/*
 * What became of a frame, as one word: it is stored and compared as a whole. From bit 0 on 16 bits
 * each: the output's number, or -1; the leaf of its scheduler, 0: it names none; enum fw_reason if
 * there is no output; enum fwe_hit_way. So of a plain hit the upper half is 0.
 */
typedef __u64 fwe_outcome;

static __always_inline fwe_outcome fwe_leaves(__u16 leaf, int output, enum fwe_hit_way way)
{
	return (__u64)way << 48 | (__u32)leaf << 16 | (__u16)output;
}

static __always_inline fwe_outcome fwe_forwarded(const struct fw_nexthop *nh, int output,
						 enum fwe_hit_way way)
{
	return fwe_leaves(nh->leaf, output, way);
}

static __always_inline fwe_outcome fwe_not_forwarded(enum fw_reason reason)
{
	return (__u64)FWE_HIT_NONE << 48 | (__u64)reason << 32 | 0xffff;
}

static __always_inline int fwe_output_of(fwe_outcome outcome)
{
	return (__s16)outcome;
}

static __always_inline __u16 fwe_leaf_of(fwe_outcome outcome)
{
	return outcome >> 16;
}

static __always_inline enum fw_reason fwe_reason_of(fwe_outcome outcome)
{
	return (__u16)(outcome >> 32);
}

static __always_inline enum fwe_hit_way fwe_way_of(fwe_outcome outcome)
{
	return outcome >> 48;
}

/* Of a frame that is to be handled otherwise. */
static const fwe_outcome fwe_unsure = (__u64)FWE_HIT_UNSURE << 48;

/* To be written: of what another core has read last, the line is asked for once, not twice. On
 * x86-64 an instruction that CPUs without it take for none, and compilers leave out for them. */
static __always_inline void fwe_fetch_written(const char *line)
{
#ifdef __x86_64__
	asm volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

/* Where nearly all frames begin: it is a guess that costs nothing if it is wrong. */
static __always_inline void fwe_fetch_data(const struct rte_mbuf *frame)
{
	fwe_fetch_written((const char *)frame->buf_addr + RTE_PKTMBUF_HEADROOM);
}

/* Ahead of a burst: the heads of all, and what the first frames begin with. */
static __always_inline void fwe_fetch_frames(struct rte_mbuf *const *frames, __u32 count)
{
	const __u32 first = count < FWE_AHEAD ? count : FWE_AHEAD;

#pragma clang loop unroll_count(4)
	for (__u32 i = 0; i < count; i++)
		fwe_fetch_written((const char *)frames[i]);
#pragma clang loop unroll_count(4)
	for (__u32 i = 0; i < first; i++)
		fwe_fetch_data(frames[i]);
}

/* Each is about to be looked at, by turns. */
static __always_inline void fwe_fetch_ahead(struct rte_mbuf *const *frames, __u32 i, __u32 count)
{
	if (i + FWE_AHEAD < count)
		fwe_fetch_data(frames[i + FWE_AHEAD]);
}

/* Of bursts in a row: what is fetched while one is handled. */
struct fwe_row {
	__u32 own; /* of the burst itself; 0: it was fetched while the one before was handled */
	__u32 next_count;
	struct rte_mbuf *const *next; /* the burst behind it */
};

/* The head of a frame of the next burst, */
static __always_inline void fwe_fetch_next_head(const struct fwe_row *row, __u32 i)
{
	if (i < row->next_count)
		fwe_fetch_written((const char *)row->next[i]);
}

/* and, once that is there, what it begins with. */
static __always_inline void fwe_fetch_next_data(const struct fwe_row *row, __u32 i)
{
	if (i < row->next_count)
		fwe_fetch_data(row->next[i]);
}

/* Frames that may be plain hits. */
enum fwe_kind {
	FWE_UDP4 = 0,
	FWE_TCP4,
	FWE_UDP6,
	FWE_TCP6,
	FWE_OTHER, /* or nothing is known of it */
};

enum { FWE_KIND_MASK = 7 };

/* Where a frame's flow is at home, with the frame's kind in the bits below a flow's alignment. */
typedef __u64 fwe_place;

_Static_assert(sizeof(struct fw_flow) % (FWE_KIND_MASK + 1) == 0,
	       "a flow's address has room for a kind");

static __always_inline enum fwe_kind fwe_kind_of(fwe_place place)
{
	return place & FWE_KIND_MASK;
}

/* None of what is FWE_OTHER. */
static __always_inline struct fw_flow *fwe_home_of(fwe_place place)
{
	return (void *)(place & ~(__u64)FWE_KIND_MASK);
}

static __always_inline fwe_place fwe_place_of(const struct fw_flow *home, enum fwe_kind kind)
{
	return (__u64)home | kind;
}

/* Key, guard and action, then the state, which is written; of IPv6 the addresses, too. */
static __always_inline void fwe_fetch_flow(fwe_place place, const int v6)
{
	/* the kind's bits lead no further than within the line */
	const struct fw_flow *flow = (const void *)place;

	rte_prefetch0(flow);
	__builtin_prefetch(&flow->state, 1);
	if (v6)
		rte_prefetch0(flow->key_saddr6_be);
}

static __always_inline struct fw_flow *fwe_home4(const void *data, __u32 port, const __u8 proto)
{
	struct fw_words4 key = fw_key4_of(data, port, proto);

	return fw_env.flows + fw_home4(&key, &fw_cfg);
}

static __always_inline struct fw_flow *fwe_home6(const void *data, __u32 port, __u8 proto)
{
	struct fw_words6 key = fw_key6_of(data, port, proto);

	return fw_env.flows + fw_home6(&key, &fw_cfg);
}

static __noinline fwe_place fwe_look6(const void *data, __u32 len, __u32 port)
{
	__u8 proto = fw_ip6_at(data)->next_header;
	fwe_place place;

	if (len < FW_ETH_LEN + FW_IP6_LEN + FW_UDP_LEN || !fw_has_ports(proto))
		return FWE_OTHER;
	place = fwe_place_of(fwe_home6(data, port, proto),
			     proto == FW_PROTO_UDP ? FWE_UDP6 : FWE_TCP6);
	fwe_fetch_flow(place, 1);
	return place;
}

/* Reads a frame's key, finds where its flow is at home, and fetches that. */
static __always_inline fwe_place fwe_look(const void *data, __u32 len, __u32 port)
{
	__u16 ethertype_be;
	fwe_place place;
	__u8 proto;

	/* every plain frame has room for an IPv4 and a UDP header */
	if (fw_unlikely(len < FW_ETH_LEN + FW_IP4_LEN + FW_UDP_LEN))
		return FWE_OTHER;
	ethertype_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
	if (fw_unlikely(ethertype_be != fw_htons(FW_ETH_IP)))
		return ethertype_be == fw_htons(FW_ETH_IP6) ? fwe_look6(data, len, port)
							    : FWE_OTHER;
	proto = fw_ip4_at(data)->proto;
	if (fw_likely(proto == FW_PROTO_UDP))
		place = fwe_place_of(fwe_home4(data, port, FW_PROTO_UDP), FWE_UDP4);
	else if (proto == FW_PROTO_TCP)
		place = fwe_place_of(fwe_home4(data, port, FW_PROTO_TCP), FWE_TCP4);
	else
		return FWE_OTHER;
	fwe_fetch_flow(place, 0);
	return place;
}

/* fw_hit() of what is already known. */
static __always_inline const struct fw_nexthop *fwe_hit(fw_ctx *ctx, enum fwe_kind kind,
							enum fw_missed *missed)
{
	void *data = ctx->data, *end = ctx->end;
	__u32 port = ctx->port, now = fw_now();

	if (fw_likely(kind == FWE_UDP4))
		return fw_hit4(ctx, data, end, port, FW_PROTO_UDP, now, missed);
	if (kind == FWE_TCP4)
		return fw_hit4(ctx, data, end, port, FW_PROTO_TCP, now, missed);
	if (kind == FWE_UDP6)
		return fw_hit6(ctx, data, end, port, FW_PROTO_UDP, now, missed);
	if (kind == FWE_TCP6)
		return fw_hit6(ctx, data, end, port, FW_PROTO_TCP, now, missed);
	return NULL;
}

/* Cuts a frame to that length. */
static inline void fwe_cut(struct rte_mbuf *frame, __u32 len)
{
	struct rte_mbuf *last = frame;
	__u32 left = len;

	frame->pkt_len = len;
	frame->nb_segs = 1;
	while (left > last->data_len && last->next) {
		left -= last->data_len;
		last = last->next;
		frame->nb_segs++;
	}
	last->data_len = left;
	rte_pktmbuf_free(last->next);
	last->next = NULL;
}

/* The buffer's beginning and length are the frame's. */
static __always_inline void fwe_settle(struct rte_mbuf *frame, const fw_ctx *ctx)
{
	__u32 len = fw_frame_len(ctx);

	if (fw_likely(ctx->data == rte_pktmbuf_mtod(frame, void *) && len == frame->pkt_len))
		return;
	frame->data_off = ctx->data - frame->buf_addr;
	frame->data_len = ctx->end - ctx->data;
	if (fw_unlikely(frame->nb_segs > 1))
		fwe_cut(frame, len);
	frame->pkt_len = len;
}

static __always_inline enum fw_reason
fwe_step_by_step(fw_ctx *ctx, __u32 port, enum fw_missed missed, const struct fw_nexthop **nh)
{
	struct fw_tuple seen = {};
	struct fw_pkt p = {};
	enum fw_reason reason;
	int watch = 0;

	if (missed != FW_MISSED_UNKNOWN && !fw_cfg.police)
		return missed == FW_MISSED_OTHER ? FW_R_OWNER : FW_R_MISS;
	/* The tuple as it came in: a rewrite would hide it. */
	if (fw_unlikely(fw_ctl.watch))
		watch = fw_watch_note(ctx, &seen);
	reason = fw_pipeline(ctx, port, &p, nh);
	if (!reason && *nh) {
		reason = FW_R_FAST;
	} else {
		reason = fw_name_miss(ctx, &p, reason);
		if (fw_cfg.police && fw_police(ctx->data, ctx->end, &p, reason))
			reason = FW_R_POLICED;
	}
	if (fw_unlikely(watch)) {
		fw_watch_look(ctx, &p);
		fw_watch(&seen, &p, port, FW_STAGE_USER, reason);
	}
	return reason;
}

static __always_inline int fwe_is_dropped(enum fw_reason reason)
{
	return reason == FW_R_POLICED || reason == FW_R_STRAY_CLOSE;
}

/* As the XDP program, ahead of what it does with the answer. */
static __noinline fwe_outcome fwe_no_hit(struct rte_mbuf *frame, fw_ctx *ctx, enum fw_missed missed)
{
	const struct fw_nexthop *nh = NULL;
	enum fw_reason reason = FW_R_NONE;
	enum fwe_hit_way way = FWE_HIT_NONE;
	fwe_place place;
	struct fw_head head;
	__u32 port = ctx->port, within = 0;

	if (missed == FW_MISSED_UNKNOWN && fw_is_framed(ctx))
		within = fw_unframe(ctx, port, &head);
	if (within) {
		ctx->port = port = within;
		place = fwe_look(ctx->data, ctx->end - ctx->data, port);
		ctx->home = fwe_home_of(place);
		nh = fw_unlikely(fw_ctl.watch) ? NULL : fwe_hit(ctx, fwe_kind_of(place), &missed);
		if (nh) {
			reason = FW_R_FAST;
			way = FWE_HIT_FRAMED;
		}
	}
	if (!nh) {
		reason = fwe_step_by_step(ctx, port, missed, &nh);
		ctx->output = fw_env.output;
	}
	if (within && reason != FW_R_FAST && !fwe_is_dropped(reason))
		(void)fw_reframe(ctx, &head);
	fw_count(reason);
	fwe_settle(frame, ctx);
	return reason == FW_R_FAST && nh ? fwe_forwarded(nh, ctx->output, way)
					 : fwe_not_forwarded(reason);
}

/* What is quick has one segment. */
static __always_inline fw_ctx fwe_ctx_of(const struct rte_mbuf *frame, const struct fwe_port *port,
					 __u32 ifindex, struct fw_flow *home, const __u32 quick)
{
	void *data = rte_pktmbuf_mtod(frame, void *);

	return (fw_ctx){.room = frame->buf_addr,
			.data = data,
			.end = data + frame->data_len,
			.more = quick ? 0 : frame->pkt_len - frame->data_len,
			.port = ifindex,
			.noted = !!port->sockets,
			.quick = quick,
			.home = home};
}

/* Any frame. */
static __noinline fwe_outcome fwe_handle_any(struct rte_mbuf *frame, const struct fwe_port *port,
					     fwe_place place)
{
	fw_ctx ctx = fwe_ctx_of(frame, port, port->ifindex, fwe_home_of(place), 0);
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	const struct fw_nexthop *nh = fwe_hit(&ctx, fwe_kind_of(place), &missed);

	if (fw_unlikely(!nh))
		return fwe_no_hit(frame, &ctx, missed);
	fwe_settle(frame, &ctx);
	return fwe_forwarded(nh, ctx.output, FWE_HIT_PLAIN);
}

/* 0 if the flow that is at home there is the frame's. */
static __always_inline __u64 fwe_not_home(const void *data, __u32 port, const struct fw_flow *home,
					  const enum fwe_kind kind)
{
	const __u8 proto = kind == FWE_UDP4 || kind == FWE_UDP6 ? FW_PROTO_UDP : FW_PROTO_TCP;
	struct fw_words4 key4;
	struct fw_words6 key6;

	if (kind >= FWE_UDP6) {
		key6 = fw_key6_of(data, port, proto);
		return fw_key6_differs(home, &key6);
	}
	key4 = fw_key4_of(data, port, proto);
	return fw_key4_differs(home, &key4);
}

/*
 * A hit as most are: its flow is at home, and the next hop puts nothing around it. Nothing is
 * written of any other, and no function called: so all of it is in registers.
 */
static __always_inline fwe_outcome fwe_handle_quick(struct rte_mbuf *frame,
						    const struct fwe_port *port, __u32 ifindex,
						    struct fw_flow *home, const enum fwe_kind kind)
{
	const __u32 len_ip = kind >= FWE_UDP6 ? FW_IP6_LEN : FW_IP4_LEN;
	fw_ctx ctx = fwe_ctx_of(frame, port, ifindex, home, 1);
	const struct fw_nexthop *nh;
	enum fw_missed missed;
	__u32 len;

	if (fw_unlikely(fwe_not_home(ctx.data, ifindex, home, kind)))
		return fwe_unsure;
	/* as fwe_look() has seen */
	__builtin_assume(frame->data_len >= FW_ETH_LEN + len_ip + FW_UDP_LEN);
	nh = fwe_hit(&ctx, kind, &missed);
	if (fw_unlikely(!nh))
		return fwe_unsure;
	len = fw_frame_len(&ctx);
	if (fw_unlikely(len != frame->pkt_len)) {
		/* the sender's padding */
		frame->data_len = len;
		frame->pkt_len = len;
	}
	return fwe_forwarded(nh, ctx.output, FWE_HIT_PLAIN);
}

static __noinline fwe_outcome fwe_handle_tcp4(struct rte_mbuf *frame, const struct fwe_port *port,
					      fwe_place place)
{
	return fwe_handle_quick(frame, port, port->ifindex, fwe_home_of(place), FWE_TCP4);
}

static __noinline fwe_outcome fwe_handle_udp6(struct rte_mbuf *frame, const struct fwe_port *port,
					      fwe_place place)
{
	return fwe_handle_quick(frame, port, port->ifindex, fwe_home_of(place), FWE_UDP6);
}

static __noinline fwe_outcome fwe_handle_tcp6(struct rte_mbuf *frame, const struct fwe_port *port,
					      fwe_place place)
{
	return fwe_handle_quick(frame, port, port->ifindex, fwe_home_of(place), FWE_TCP6);
}

/* `ifindex` is the port's, in a register. */
static __always_inline fwe_outcome fwe_handle(struct rte_mbuf *frame, const struct fwe_port *port,
					      __u32 ifindex, fwe_place place)
{
	const enum fwe_kind kind = fwe_kind_of(place);
	fwe_outcome outcome = fwe_unsure;

	/* one of several segments may be cut, which the quick way does not */
	if (fw_likely(frame->nb_segs == 1)) {
		if (fw_likely(kind == FWE_UDP4))
			outcome = fwe_handle_quick(frame, port, ifindex, (void *)place, FWE_UDP4);
		else if (kind == FWE_TCP4)
			outcome = fwe_handle_tcp4(frame, port, place);
		else if (kind == FWE_UDP6)
			outcome = fwe_handle_udp6(frame, port, place);
		else if (kind == FWE_TCP6)
			outcome = fwe_handle_tcp6(frame, port, place);
	}
	if (fw_unlikely(outcome == fwe_unsure))
		outcome = fwe_handle_any(frame, port, place);
	return outcome;
}

#endif
