/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The target of the engine: frames in DPDK's buffers, by workers that poll. What the
 * BPF targets keep in maps is memory that the daemon has mapped, or the worker's own.
 */
#ifndef FW_TARGET_ENGINE_H
#define FW_TARGET_ENGINE_H

#include <stddef.h>
#include <string.h>
#ifdef __SSE4_1__
#include <smmintrin.h>
#endif
#include "bytes.h"
#include "../abi.h"

/* Of this target's own, where another one is linked beside it. */
#define fw_search4      fw_engine_search4
#define fw_search6      fw_engine_search6
#define fw_closer_of    fw_engine_closer_of
#define fw_permit_close fw_engine_permit_close
#define fw_watch_note   fw_engine_watch_note
#define fw_watch_look   fw_engine_watch_look
#define fw_watch_report fw_engine_watch_report
#define fw_name_miss    fw_engine_name_miss
#define fw_parse_apart  fw_engine_parse_apart

#include "../parse.h"

#define FW_TARGET_IS_TC      0
#define FW_TARGET_OWNS       FW_FLOW_ENGINE
#define FW_TARGET_HANDS      0
#define FW_TARGET_NOTES(ctx) (!(ctx)->noted)
/* What closes a connection is left to the kernel, at whose port tc judges it. */
#define FW_TARGET_JUDGES 0

typedef struct fw_engine_ctx {
	void *room; /* of which the frame may take */
	void *data;
	void *end;  /* of the first segment */
	__u32 more; /* octets in other segments */
	__u32 port;
	__u32 noted; /* XDP had it before, and noted what a TCP segment says */
	/* the flow at home is the frame's; a hit that is not as most are is left as it is */
	__u32 quick;
	/* where the flow of a plain frame's key is at home */
	struct fw_flow *home;
	int output; /* of a hit's next hop */
} fw_ctx;
#include "wire.h"
#include "../guard.h"

/* A tunnel is one flow, and its packets are several workers': each has what is in it. */
#define FW_TARGET_ADD(proto, to, what)                                                             \
	((proto) == FW_PROTO_GRE ? (void)__atomic_fetch_add(to, what, __ATOMIC_RELAXED)            \
				 : (void)(*(to) += (what)))

/* Homes of a burst's flows are known before its first frame is handled. */
#define FW_TARGET_KNOWS_HOME 1
#define fw_hit_find4(ctx, key)                                                                     \
	((ctx)->quick ? (ctx)->home : fw_find4_from(key, (ctx)->home - fw_env.flows))
#define fw_hit_find6(ctx, key)                                                                     \
	((ctx)->quick ? (ctx)->home : fw_find6_from(key, (ctx)->home - fw_env.flows))

#define fw_hit_quick(ctx) ((ctx)->quick)

/* And so is whether the fast path is on. */
#define FW_TARGET_KNOWS_GATE 1
#define fw_hit_left(now)     ((void)(now), fw_env.left)
#define fw_hit_on()          (fw_env.on)
/* it is off once its time is over */
#define fw_hit_gate(now)        ((void)(now), 0u)
#define fw_hit_until(tick, now) ((void)(now), (tick) + fw_env.not_now)

/* Where a next hop leads is known with it. */
#define FW_TARGET_KNOWS_OUTPUT     1
#define fw_hit_nexthop(ctx, index) fw_engine_nexthop(index, &(ctx)->output)

enum {
	/* Of ifindex to output, a power of two and more than there are ports. */
	FW_ENGINE_OUTPUTS = 1024,
	/* of a worker, at most */
	FW_ENGINE_PORTS = 64,
	FW_ENGINE_EVENTS = 1024,
};

/* A port of the engine, or what is framed at one, by its number in the kernel. */
struct fw_engine_output {
	__u32 ifindex; /* 0: none */
	__u32 number;
};

/* What comes in at a port with these tags and session is another's: open addressing. */
struct fw_engine_framings {
	__u32 mask; /* places - 1 */
	__u32 pad;
	struct {
		struct fw_framing key; /* port 0: none */
		struct fw_framed framed;
	} at[];
};

struct fw_engine_event {
	__u32 len;
	union {
		struct fw_event event;
		struct fw_watch_event watch;
	};
};

/* From one worker to one reader. */
struct fw_engine_events {
	__u32 written;
	__u32 lost;
	__u32 taken __attribute__((aligned(64)));
	struct fw_engine_event event[FW_ENGINE_EVENTS];
};

struct fwe_routes;

/* A worker's. */
struct fw_engine {
	struct fw_flow *flows;
	const struct fw_nexthop *nexthops;
	const struct fw_control *control;
	const struct fw_watch *watch;
	const struct fw_engine_framings *framings;
	struct fw_engine_events *events;
	__u64 *counts; /* by reason */
	__u32 nexthops_max;
	__u32 now_tick;
	/* of the control page, as they were when the burst began: see hit.h */
	__u64 on;
	__u32 left;
	__u32 not_now;                       /* ~now_tick */
	int output;                          /* of the next hop that was asked for last */
	const struct fwe_routes *routes;     /* NULL: there are none */
	struct fw_route_count *route_counts; /* by leaf */
	__u64 shaped;                        /* outputs that have a scheduler */
	struct fw_config config;
	struct fw_engine_output outputs[FW_ENGINE_OUTPUTS];
	struct fw_policer policers[FW_REASONS_MAX];
	struct fw_cpu cpu;
};

/* The engine is a program, never a library: its threads' variables have fixed places. */
static _Thread_local __attribute__((tls_model("local-exec"))) struct fw_engine fw_env;
#define fw_ctl (*fw_env.control)
#define fw_cfg (fw_env.config)

#ifdef __SSE4_1__
#define FW_TARGET_KNOWS_HEAD4 1

_Static_assert(offsetof(struct fw_flow, l2_in) % 16 == 0 && sizeof(struct fw_flow) % 16 == 0,
	       "a flow's header is loaded by two words");

/* As hit.h has it, two words at a time. */
static __always_inline __u64 fw_hit_head4(const fw_u64_any *head, const struct fw_flow *f)
{
	const __m128i mask = _mm_set_epi64x(FW_HEAD4_MASK_8, -1);
	const __m128i came = _mm_loadu_si128((const void *)head);
	const __m128i known = _mm_load_si128((const void *)f->l2_in);
	const fw_u64_any *last = (const void *)(f->l2_in + 16);

	if (fw_unlikely(!_mm_testz_si128(_mm_xor_si128(came, known), mask)))
		return 1;
	return (head[2] ^ *last) & FW_HEAD4_MASK_16;
}

#define FW_TARGET_REWRITES_HEAD4 1

/* As rewrite.h has it, in one store. */
static __always_inline void fw_rewrite_head4(void *data, const struct fw_flow *f,
					     const struct fw_nexthop *nh)
{
	const __m128i ecn = _mm_insert_epi8(_mm_setzero_si128(), FW_TOS_ECN, FW_ETH_LEN + 1);
	const __m128i came = _mm_loadu_si128(data);
	__m128i head = _mm_load_si128((const void *)f->l2_in);

	head = _mm_insert_epi8(head, f->dscp_out, FW_ETH_LEN + 1);
	/* all but the last two octets */
	head = _mm_blend_epi16(head, _mm_load_si128((const void *)nh->l2), 0x7f);
	_mm_storeu_si128(data, _mm_or_si128(head, _mm_and_si128(came, ecn)));
}

static __always_inline int fw_rewrite_out4(void *data, const struct fw_flow *f)
{
	struct fw_ip4 *ip = data + FW_ETH_LEN;
	const __u16 check = fw_csum_apply(ip->check, f->l3_delta);
	__m128i out = _mm_loadu_si128((const void *)&f->ttl_out);

	_mm_storeu_si128((void *)&ip->ttl, _mm_insert_epi16(out, check, 1));
	return 1;
}
#endif

/* Ahead of a burst. */
static __always_inline void fw_engine_gate(void)
{
	fw_env.not_now = ~fw_env.now_tick;
	fw_env.left = fw_ctl.deadline_tick + fw_env.not_now;
	/* of no flow if the time is over */
	fw_env.on = fw_env.left >> 31 ? ~0ULL : *(const volatile fw_u64_any *)&fw_ctl.on;
}

static __always_inline void *fw_data(const fw_ctx *ctx)
{
	return ctx->data;
}

static __always_inline void *fw_data_end(const fw_ctx *ctx)
{
	return ctx->end;
}

static __always_inline __u32 fw_frame_len(const fw_ctx *ctx)
{
	return ctx->end - ctx->data + ctx->more;
}

static __always_inline __u32 fw_port(const fw_ctx *ctx)
{
	return ctx->port;
}

static __always_inline __u32 fw_gso_size(const fw_ctx *ctx)
{
	(void)ctx; /* frames are as on the wire */
	return 0;
}

static __always_inline int fw_merged_otherwise(fw_ctx *ctx, __u8 proto)
{
	(void)ctx;
	(void)proto;
	return 0;
}

/* Cut the sender's padding, as ip_rcv() and ipv6_rcv() do. */
static __always_inline int fw_trim(fw_ctx *ctx, void **data, void **end, __u32 len)
{
	__u32 first = ctx->end - *data;

	if (fw_unlikely(ctx->more && len > first)) {
		ctx->more = len - first;
	} else {
		ctx->more = 0;
		ctx->end = *data + len;
	}
	*data = ctx->data;
	*end = ctx->end;
	return 1;
}

/* XDP alone copies. */
static __always_inline int fw_copy_mark(fw_ctx *ctx, __u32 olist, __u32 kind, void **data,
					void **end)
{
	(void)ctx;
	(void)olist;
	(void)kind;
	(void)data;
	(void)end;
	return 0;
}

static __always_inline int fw_adjust_head(fw_ctx *ctx, int delta)
{
	if (ctx->quick || delta < ctx->room - ctx->data ||
	    delta > ctx->end - ctx->data - FW_ETH_LEN)
		return -1;
	ctx->data += delta;
	return 0;
}

/* Of a framing's words. */
static __always_inline __u32 fw_engine_framing_home(const struct fw_framing *f)
{
	const __u32 *tag = (const void *)f->tag;
	__u32 sum = f->port * 0x9e3779b1u ^ tag[0] * 0x85ebca6bu ^ tag[1] * 0xc2b2ae35u;

	sum ^= f->session * 0x27d4eb2fu;
	return sum ^ sum >> 15;
}

static __always_inline const struct fw_framed *fw_framing_get(const struct fw_framing *framing)
{
	const struct fw_engine_framings *all = fw_env.framings;
	__u32 home = fw_engine_framing_home(framing);

	if (!all)
		return NULL;
	for (__u32 i = 0; i <= all->mask; i++) {
		__u32 at = (home + i) & all->mask;

		if (!all->at[at].key.port)
			return NULL;
		if (!memcmp(&all->at[at].key, framing, sizeof(*framing)))
			return &all->at[at].framed;
	}
	return NULL;
}

static __always_inline __u32 fw_now(void)
{
	return fw_env.now_tick;
}

static __always_inline __u32 fw_cpu_id(void)
{
	return 0;
}

static __always_inline struct fw_flow *fw_flow_get(__u64 index)
{
	struct fw_flow *flow = &fw_env.flows[index & fw_cfg.flow_mask];

	__builtin_assume(flow != NULL);
	return flow;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(struct fw_engine_output) == 8,
	       "an output is one word, and its lower half the interface");

/* The port's number among the engine's, or -1. */
static __always_inline int fw_engine_output(__u32 ifindex)
{
	const fw_u64_any *outputs = (const void *)fw_env.outputs;

	for (__u32 at = ifindex;; at++) {
		/* both fields in one load */
		__u64 output = outputs[at % FW_ENGINE_OUTPUTS];

		if (fw_likely((__u32)output == ifindex)) {
			__builtin_assume(output >> 32 < FW_ENGINE_PORTS);
			return output >> 32;
		}
		if (!(__u32)output)
			return -1;
	}
}

/* None that leads to a port of somebody else's: such a frame stays as it is, and the kernel's. */
static __always_inline const struct fw_nexthop *fw_engine_nexthop(__u64 index, int *output)
{
	const struct fw_nexthop *nh = &fw_env.nexthops[index];

	if (fw_unlikely(index > fw_env.nexthops_max))
		return NULL;
	__builtin_assume(nh != NULL);
	*output = fw_engine_output(nh->port);
	return fw_likely(*output >= 0) ? nh : NULL;
}

static __always_inline const struct fw_nexthop *fw_nexthop_get(__u64 index)
{
	return fw_engine_nexthop(index, &fw_env.output);
}

/* There is no slow path here whose segments could be noted. */
static __always_inline struct fw_edge *fw_edge_get(__u64 key)
{
	(void)key;
	return NULL;
}

static __always_inline struct fw_policer *fw_policer_get(__u32 index)
{
	return index < FW_REASONS_MAX ? &fw_env.policers[index] : NULL;
}

static __always_inline struct fw_cpu *fw_cpu_get(void)
{
	return &fw_env.cpu;
}

static __always_inline const struct fw_watch *fw_watch_get(void)
{
	return fw_env.watch;
}

static __always_inline void fw_count(enum fw_reason reason)
{
	fw_env.counts[reason]++;
}

static __always_inline void *fw_event_reserve(__u32 size)
{
	struct fw_engine_events *events = fw_env.events;
	struct fw_engine_event *event;

	if (events->written - __atomic_load_n(&events->taken, __ATOMIC_ACQUIRE) >=
	    FW_ENGINE_EVENTS) {
		events->lost++;
		return NULL;
	}
	event = &events->event[events->written % FW_ENGINE_EVENTS];
	event->len = size;
	return &event->event;
}

static __always_inline void fw_event_submit(void *event)
{
	(void)event;
	__atomic_store_n(&fw_env.events->written, fw_env.events->written + 1, __ATOMIC_RELEASE);
}

/* Programs alone can ask conntrack: the daemon looks connections up by turns, and hears its events.
 */
static __always_inline enum fw_reason fw_conn_check(fw_ctx *ctx, const struct fw_pkt *p,
						    __u32 index)
{
	(void)ctx;
	(void)p;
	(void)index;
	return FW_R_NONE;
}

/* 0: the kernel judges what closes a connection. */
static __always_inline __u32 fw_conn_window(fw_ctx *ctx, const struct fw_tuple *t, __u8 family,
					    struct fw_tuple *room)
{
	(void)ctx;
	(void)t;
	(void)family;
	(void)room;
	return 0;
}

#endif
