/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pipeline as a library. One environment a thread at a time. */
#include <stdlib.h>
#include "target/user.h"
#include "user.h"
#include "pipeline.h"
#include "police.h"
#include "note.h"
#include "olist.h"
#include "learn.h"

_Thread_local struct fw_env *fw_env;

/* Of the direction of the flow's key, at whatever port. */
static __u64 fw_edge_key_of_flow(const struct fw_flow *flow, const struct fw_config *config)
{
	struct fw_flow anywhere = *flow;
	struct fw_words4 key4;
	struct fw_words6 key6;

	anywhere.key.port_proto &= FW_KEY_IP6 | 0xff;
	fw_words_of(&anywhere, &key4, &key6);
	return flow->key.port_proto & FW_KEY_IP6 ? fw_edge_key6(key6, config)
						 : fw_edge_key4(key4, config);
}

void fw_edge_keys(const struct fw_config *config, const struct fw_flow *flow, __u64 *own,
		  __u64 *other)
{
	struct fw_flow back = *flow;

	/* what answers comes from where this one goes to */
	back.key.sport_be = flow->dport_be;
	back.key.dport_be = flow->sport_be;
	if (flow->key.port_proto & FW_KEY_IP6) {
		memcpy(back.key_saddr6_be, flow->daddr6_be, 16);
		memcpy(back.key_daddr6_be, flow->saddr6_be, 16);
	} else {
		back.key.saddr_be = flow->daddr_be;
		back.key.daddr_be = flow->saddr_be;
	}
	*own = fw_edge_key_of_flow(flow, config);
	*other = fw_edge_key_of_flow(&back, config);
}

void fw_offers_forget_set(struct fw_offer_set *offers, struct fw_observation_set *observations,
			  __u32 set)
{
	for (int i = 0; i < FW_OFFER_WAYS; i++) {
		struct fw_offer *offer = &offers[set].offer[i];

		if (!FW_READ_ONCE(offer->tick))
			continue;
		FW_WRITE_ONCE(offer->tick, 0);
		FW_WRITE_ONCE(observations[set].seen[i].tag, 0);
	}
}

void fw_offers_forget(struct fw_offer_set *offers, struct fw_observation_set *observations,
		      const struct fw_config *config, const struct fw_flow *flow)
{
	struct fw_words4 key4;
	struct fw_words6 key6;
	struct fw_offer_key key;

	fw_words_of(flow, &key4, &key6);
	key = flow->key.port_proto & FW_KEY_IP6 ? fw_offer_key6(&key6, config)
						: fw_offer_key4(&key4, config);
	fw_offers_forget_set(offers, observations, key.set);
}

struct fw_env *fw_user_new(__u32 flows, __u32 nexthops)
{
	static const __u64 secret[FW_HASH_KEYS] = {
		0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
		0xd6e8feb86659fd93, 0xa0761d6478bd642f,
	};
	struct fw_env *env = calloc(1, sizeof(*env));

	if (!env)
		return NULL;
	env->flows_max = flows;
	env->nexthops_max = nexthops;
	fw_table_config(&env->config, flows, secret);
	env->flows = calloc((size_t)env->config.flow_mask + 1, sizeof(*env->flows));
	env->staged = calloc((size_t)flows + 1, sizeof(*env->staged));
	env->place = calloc((size_t)flows + 1, sizeof(*env->place));
	env->nexthops = calloc(nexthops + 1, sizeof(*env->nexthops));
	env->olists = calloc(FW_OLISTS, sizeof(*env->olists));
	env->slots = calloc(FW_SLOTS, sizeof(*env->slots));
	env->offers = calloc(FW_OFFER_SETS, sizeof(*env->offers));
	env->observations = calloc(FW_OFFER_SETS, sizeof(*env->observations));
	env->seen = calloc(flows / FW_SEEN_FLOWS + 1, sizeof(*env->seen));
	env->kept = calloc((size_t)flows + 1, sizeof(*env->kept));
	if (!env->flows || !env->kept || !env->staged || !env->place || !env->nexthops ||
	    !env->slots || !env->olists || !env->offers || !env->observations || !env->seen) {
		fw_user_free(env);
		return NULL;
	}
	env->config.hz = 250;
	env->config.ct = 1;
	env->config.ct_check_ticks = 250;
	env->config.slots_per_cpu = 1024;
	env->control = (struct fw_control){.on = FW_ST_ACTIVE,
					   .epoch = 1,
					   .learn = 1,
					   .reval_budget = 1000,
					   .check_budget = 1000,
					   .offer_budget = 1000,
					   .sample_budget = 1};
	return env;
}

void fw_user_free(struct fw_env *env)
{
	free(env->flows);
	free(env->staged);
	free(env->place);
	free(env->nexthops);
	free(env->olists);
	free(env->slots);
	free(env->offers);
	free(env->observations);
	free(env->seen);
	free(env->kept);
	free(env);
}

struct fw_control *fw_user_control(struct fw_env *env)
{
	return &env->control;
}

struct fw_flow *fw_user_flow(struct fw_env *env, __u32 index)
{
	if (index > env->flows_max)
		return NULL;
	return env->place[index] ? &env->flows[env->place[index]] : &env->staged[index];
}

struct fw_nexthop *fw_user_nexthop(struct fw_env *env, __u32 index)
{
	return index <= env->nexthops_max ? &env->nexthops[index] : NULL;
}

struct fw_olist *fw_user_olist(struct fw_env *env, __u32 index)
{
	return index < FW_OLISTS ? &env->olists[index] : NULL;
}

void fw_user_set_now(struct fw_env *env, __u32 tick)
{
	env->now_tick = tick;
}

void fw_user_set_straight(struct fw_env *env, __u32 straight)
{
	env->no_hit = !straight;
}

void fw_user_set_leaves_closing(struct fw_env *env, __u32 leaves)
{
	env->leaves_closing = leaves;
}

__u64 fw_user_hits(const struct fw_env *env)
{
	return env->hits;
}

__u64 fw_user_misses(const struct fw_env *env)
{
	return env->misses;
}

void fw_user_set_conn(struct fw_env *env, const struct fw_conn *conn)
{
	env->conn = *conn;
}

struct fw_kept *fw_user_kept(struct fw_env *env, __u32 index)
{
	return index <= env->flows_max ? &env->kept[index] : NULL;
}

void fw_user_set_window(struct fw_env *env, __u32 window)
{
	env->conn_window = window;
}

int fw_user_insert(struct fw_env *env, __u32 index)
{
	if (!index || index > env->flows_max)
		return -1;
	fw_user_remove(env, index);
	env->place[index] = fw_table_insert(env->flows, &env->config, &env->staged[index], index);
	return env->place[index] ? 0 : -1;
}

void fw_user_remove(struct fw_env *env, __u32 index)
{
	__u32 place;

	if (index > env->flows_max || !env->place[index])
		return;
	place = env->place[index];
	env->staged[index] = env->flows[place];
	fw_table_remove(env->flows, &env->config, place);
	fw_table_release(env->flows, place);
	env->place[index] = 0;
}

void fw_user_set_peer(struct fw_env *env, __u32 index, __u32 peer)
{
	if (index <= env->flows_max && peer <= env->flows_max && env->place[index])
		FW_WRITE_ONCE(env->flows[env->place[index]].state.peer, env->place[peer]);
}

__u64 fw_user_count(const struct fw_env *env, __u32 reason)
{
	return reason < FW_REASONS_MAX ? env->counts[reason] : 0;
}

void fw_user_set_limit(struct fw_env *env, __u32 reason, const struct fw_limit *limit)
{
	if (reason >= FW_REASONS_MAX)
		return;
	env->config.limit[reason] = *limit;
	env->config.police = 1;
}

__u64 fw_user_policed(const struct fw_env *env, __u32 reason)
{
	return reason < FW_REASONS_MAX ? env->policers[reason].dropped : 0;
}

__u32 fw_user_seen(struct fw_env *env, __u32 index)
{
	struct fw_seen *seen;
	__u8 mark;

	fw_env = env;
	seen = fw_seen_get(index / FW_SEEN_FLOWS);
	if (!seen)
		return 0;
	mark = seen->flow[index % FW_SEEN_FLOWS];
	seen->flow[index % FW_SEEN_FLOWS] = 0;
	return mark;
}

void fw_user_forget(struct fw_env *env, __u32 index)
{
	if (index <= env->flows_max)
		fw_offers_forget(env->offers, env->observations, &env->config,
				 fw_user_flow(env, index));
}

void fw_user_set_full(struct fw_env *env, __u32 full)
{
	env->event_full = full;
}

void fw_user_set_crowded(struct fw_env *env, __u32 crowded)
{
	env->event_crowded = crowded;
}

__u32 fw_user_event(struct fw_env *env, void *event, __u32 size)
{
	__u32 len = env->event_len;

	if (len > size)
		return 0;
	memcpy(event, &env->event, len);
	env->event_len = 0;
	return len;
}

int fw_user_set_framing(struct fw_env *env, const struct fw_framing *framing,
			const struct fw_framed *framed)
{
	for (int i = 0; i < FW_USER_FRAMINGS; i++) {
		if (env->framed[i].port)
			continue;
		env->framings[i] = *framing;
		env->framed[i] = *framed;
		return 0;
	}
	return -1;
}

static enum fw_reason fw_user_step_by_step(fw_ctx *ctx, __u32 port, enum fw_missed missed,
					   const struct fw_nexthop **nh)
{
	struct fw_pkt p = {};
	enum fw_reason reason;

	if (missed != FW_MISSED_UNKNOWN && !fw_cfg.police) {
		fw_env->misses++;
		return missed == FW_MISSED_OTHER ? FW_R_OWNER : FW_R_MISS;
	}
	reason = fw_pipeline(ctx, port, &p, nh);
	if (!reason && *nh)
		return FW_R_FAST;
	reason = fw_name_miss(ctx, &p, reason);
	if (fw_cfg.police && fw_police(ctx->data, ctx->end, &p, reason))
		reason = FW_R_POLICED;
	return reason;
}

/* As the XDP program, ahead of what it does with the answer. */
static enum fw_reason fw_user_no_hit(fw_ctx *ctx, __u32 port, enum fw_missed missed,
				     const struct fw_nexthop **nh)
{
	struct fw_head head;
	enum fw_reason reason;
	__u32 within = 0;

	if (missed == FW_MISSED_UNKNOWN && fw_is_framed(ctx))
		within = fw_unframe(ctx, port, &head);
	if (within) {
		port = within;
		*nh = fw_env->no_hit ? NULL : fw_hit(ctx, port, &missed);
		if (*nh) {
			fw_env->hits++;
			return FW_R_FAST;
		}
	}
	reason = fw_user_step_by_step(ctx, port, missed, nh);
	if (within && reason != FW_R_FAST && reason != FW_R_POLICED && reason != FW_R_STRAY_CLOSE)
		(void)fw_reframe(ctx, &head);
	return reason;
}

static __always_inline enum fw_reason fw_user_done(struct fw_user_frame *frame, const fw_ctx *ctx,
						   enum fw_reason reason,
						   const struct fw_nexthop *nh)
{
	if (reason == FW_R_FAST)
		frame->port_out = nh->port;
	frame->at = ctx->data - ctx->room;
	frame->len = fw_frame_len(ctx);
	return reason;
}

/* Of a copy, whose address is known: that of a plain hit may be in registers. */
static __attribute__((noinline)) enum fw_reason fw_user_other(struct fw_user_frame *frame,
							      fw_ctx ctx, enum fw_missed missed)
{
	const struct fw_nexthop *nh = NULL;
	enum fw_reason reason = fw_user_no_hit(&ctx, ctx.port, missed, &nh);

	fw_count(reason);
	frame->olist = ctx.olist;
	return fw_user_done(frame, &ctx, reason, nh);
}

__u32 fw_user_forward(struct fw_env *env, struct fw_user_frame *frame)
{
	void *data = frame->buffer + frame->at;
	fw_ctx ctx = {
		.room = frame->buffer, .data = data, .end = data + frame->len, .port = frame->port};
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	const struct fw_nexthop *nh;

	fw_env = env;
	if (env->control.on)
		env->control.on = FW_ST_ACTIVE;
	nh = env->no_hit ? NULL : fw_hit(&ctx, ctx.port, &missed);
	if (fw_unlikely(!nh))
		return fw_user_other(frame, ctx, missed);
	env->hits++;
	env->counts[FW_R_FAST]++;
	return fw_user_done(frame, &ctx, FW_R_FAST, nh);
}

int fw_user_leg(struct fw_env *env, struct fw_user_frame *frame, __u32 device)
{
	void *data = frame->buffer + frame->at;
	fw_ctx ctx = {.room = frame->buffer, .data = data, .end = data + frame->len};
	const struct fw_nexthop *leg;

	fw_env = env;
	leg = fw_leg_at(frame->olist, device);
	if (!leg || !fw_leg_write(&ctx, leg))
		return -1;
	frame->port_out = leg->port;
	frame->at = ctx.data - ctx.room;
	frame->len = fw_frame_len(&ctx);
	return 0;
}

__u32 fw_user_ingress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso)
{
	fw_ctx ctx = {.data = frame, .end = (__u8 *)frame + len, .port = port, .gso = gso};
	struct fw_pkt p = {};

	fw_env = env;
	return fw_note_silent(&ctx, fw_now()) ? 0 : fw_note(&ctx, &p, 0);
}

__u32 fw_user_egress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso, __u32 token)
{
	fw_ctx ctx = {.data = frame, .end = (__u8 *)frame + len, .port = port, .gso = gso};
	struct fw_pkt p = {};
	enum fw_reason reason;

	fw_env = env;
	if (!token || token > FW_SLOTS)
		return FW_R_NONE;
	reason = fw_learn(&ctx, token, &p);
	fw_count(reason);
	return reason;
}
