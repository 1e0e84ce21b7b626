/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The native target: the same pipeline in a process, for tests, fuzzing and engines. */
#ifndef FW_TARGET_USER_H
#define FW_TARGET_USER_H

#include <stddef.h>
#include <string.h>
#include "bytes.h"
#include "../abi.h"
#include "../conntrack.h"
#include "../parse.h"

#define FW_TARGET_IS_TC      0
#define FW_TARGET_OWNS       0
#define FW_TARGET_HANDS      0
#define FW_TARGET_NOTES(ctx) 1
/* What closes a connection is judged here, unless it is to be as in the engine. */
#define FW_TARGET_JUDGES (!fw_env->leaves_closing)

typedef struct fw_user_ctx {
	void *room; /* of which the frame may take */
	void *data;
	void *end;
	__u32 port;
	__u32 gso;
	__u32 unfinished;
	__u32 mark;
	__u32 priority;
	__u32 olist; /* of which copies are to be made, or 0 */
} fw_ctx;
#include "wire.h"

enum { FW_USER_FRAMINGS = 8 };

/* All that the BPF targets keep in maps. */
struct fw_env {
	struct fw_control control;
	struct fw_config config;
	struct fw_flow *flows;
	struct fw_flow *staged; /* by index, while not in the table */
	__u32 *place;           /* by index, of what is in the table */
	struct fw_nexthop *nexthops;
	struct fw_olist *olists;
	struct fw_slot *slots;
	struct fw_offer_set *offers;
	struct fw_observation_set *observations;
	struct fw_seen *seen;
	struct fw_kept *kept;
	struct fw_framing framings[FW_USER_FRAMINGS];
	struct fw_framed framed[FW_USER_FRAMINGS];
	struct fw_cpu cpu;
	struct fw_watch watch;
	/* what conntrack answers */
	struct fw_conn conn;
	__u32 conn_window; /* of a TCP connection that conntrack is liberal with, or 0 */
	__u32 flows_max;
	__u32 nexthops_max;
	__u32 now_tick;
	__u64 counts[FW_REASONS_MAX];
	struct fw_policer policers[FW_REASONS_MAX];
	/* the last event, event_len bytes */
	__u32 event_len;
	__u32 event_full;     /* simulate a full ring */
	__u32 event_crowded;  /* simulate one that is half full */
	__u32 no_hit;         /* every frame takes the pipeline */
	__u32 leaves_closing; /* the kernel judges what closes a connection */
	__u64 hits;           /* frames that did not, for they were plain hits */
	__u64 misses;         /* or plainly of no flow */
	union {
		struct fw_candidate candidate;
		struct fw_watch_event watch;
		struct fw_event event;
	} event;
};

extern _Thread_local struct fw_env *fw_env;
#define fw_ctl (fw_env->control)
#define fw_cfg (fw_env->config)

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
	return ctx->end - ctx->data;
}

static __always_inline __u32 fw_port(const fw_ctx *ctx)
{
	return ctx->port;
}

static __always_inline __u32 fw_gso_size(const fw_ctx *ctx)
{
	return ctx->gso;
}

/* Of other protocols than TCP and UDP. */
static __always_inline int fw_merged_otherwise(fw_ctx *ctx, __u8 proto)
{
	return ctx->gso && !fw_has_ports(proto);
}

static __always_inline __u32 fw_mark(const fw_ctx *ctx)
{
	return ctx->mark;
}

static __always_inline __u32 fw_priority(const fw_ctx *ctx)
{
	return ctx->priority;
}

static __always_inline void fw_pull(fw_ctx *ctx)
{
	(void)ctx; /* a native frame is linear */
}

static __always_inline int fw_trim(fw_ctx *ctx, void **data, void **end, __u32 len)
{
	ctx->end = *data + len;
	*data = ctx->data;
	*end = ctx->end;
	return 1;
}

static __always_inline int fw_copy_mark(fw_ctx *ctx, __u32 olist, __u32 kind, void **data,
					void **end)
{
	(void)kind;
	*data = ctx->data;
	*end = ctx->end;
	ctx->olist = olist;
	return 1;
}

static __always_inline int fw_adjust_head(fw_ctx *ctx, int delta)
{
	if (delta < ctx->room - ctx->data || delta > ctx->end - ctx->data - FW_ETH_LEN)
		return -1;
	ctx->data += delta;
	return 0;
}

static __always_inline const struct fw_framed *fw_framing_get(const struct fw_framing *framing)
{
	for (int i = 0; i < FW_USER_FRAMINGS; i++)
		if (fw_env->framed[i].port &&
		    !memcmp(framing, &fw_env->framings[i], sizeof(*framing)))
			return &fw_env->framed[i];
	return NULL;
}

static __always_inline __u32 fw_now(void)
{
	return fw_env->now_tick;
}

static __always_inline __u32 fw_cpu_id(void)
{
	return 0;
}

static __always_inline struct fw_flow *fw_flow_get(__u64 index)
{
	return &fw_env->flows[index & fw_cfg.flow_mask];
}

static __always_inline struct fw_nexthop *fw_nexthop_get(__u64 index)
{
	return index <= fw_env->nexthops_max ? &fw_env->nexthops[index] : NULL;
}

static __always_inline struct fw_olist *fw_olist_get(__u32 index)
{
	return index < FW_OLISTS ? &fw_env->olists[index] : NULL;
}

static __always_inline struct fw_slot *fw_slot_get(__u32 index)
{
	return index < FW_SLOTS ? &fw_env->slots[index] : NULL;
}

static __always_inline struct fw_offer_set *fw_offer_get(__u32 index)
{
	return index < FW_OFFER_SETS ? &fw_env->offers[index] : NULL;
}

static __always_inline struct fw_observation_set *fw_observation_get(__u32 index)
{
	return index < FW_OFFER_SETS ? &fw_env->observations[index] : NULL;
}

static __always_inline struct fw_seen *fw_seen_get(__u32 index)
{
	return index <= fw_env->flows_max / FW_SEEN_FLOWS ? &fw_env->seen[index] : NULL;
}

static __always_inline struct fw_kept *fw_kept_get(__u32 index)
{
	return index <= fw_env->flows_max ? &fw_env->kept[index] : NULL;
}

/* There is no slow path here whose segments could be noted. */
static __always_inline struct fw_edge *fw_edge_get(__u64 key)
{
	(void)key;
	return NULL;
}

static __always_inline struct fw_policer *fw_policer_get(__u32 index)
{
	return index < FW_REASONS_MAX ? &fw_env->policers[index] : NULL;
}

static __always_inline struct fw_cpu *fw_cpu_get(void)
{
	return &fw_env->cpu;
}

static __always_inline const struct fw_watch *fw_watch_get(void)
{
	return &fw_env->watch;
}

static __always_inline void fw_count(enum fw_reason reason)
{
	fw_env->counts[reason]++;
}

static __always_inline int fw_events_crowded(void)
{
	return fw_env->event_crowded;
}

static __always_inline void *fw_event_reserve(__u32 size)
{
	if (fw_env->event_full)
		return NULL;
	memset(&fw_env->event, 0, sizeof(fw_env->event));
	fw_env->event_len = size;
	return &fw_env->event;
}

static __always_inline void fw_event_submit(void *event)
{
	(void)event;
}

static __always_inline enum fw_reason fw_conn_check(fw_ctx *ctx, const struct fw_pkt *p,
						    __u32 index)
{
	const struct fw_kept *kept = fw_kept_get(index);
	const struct fw_conn *c = &fw_env->conn;

	(void)ctx;
	if (!fw_cfg.ct || !fw_has_ports(p->proto))
		return FW_R_NONE;
	if (!c->present || !kept)
		return FW_R_CONN_GONE;
	if ((c->status & FW_IPS_DYING) || c->mark != kept->ct_mark ||
	    (c->status & FW_CT_STATUS_KEEP) != kept->ct_status)
		return FW_R_CONN_CHANGED;
	if (p->proto == FW_PROTO_TCP && c->tcp_state != FW_CT_ESTABLISHED)
		return FW_R_CONN_CHANGED;
	return FW_R_NONE;
}

static __always_inline __u32 fw_conn_window(fw_ctx *ctx, const struct fw_tuple *t, __u8 family,
					    struct fw_tuple *room)
{
	(void)room;
	(void)ctx;
	(void)t;
	(void)family;
	return fw_cfg.ct ? fw_env->conn_window : 0;
}

static __always_inline int fw_unfinished(fw_ctx *ctx)
{
	return ctx->unfinished;
}

static __always_inline int fw_conn_attached(fw_ctx *ctx)
{
	(void)ctx;
	return fw_env->conn.present;
}

static __always_inline void fw_conn_read(fw_ctx *ctx, struct fw_conn *c, const struct fw_tuple *out,
					 const struct fw_pkt *p)
{
	(void)ctx;
	(void)out;
	(void)p;
	*c = fw_env->conn;
}

#endif
