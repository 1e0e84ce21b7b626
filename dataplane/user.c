/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pipeline as a library. One environment a thread at a time. */
#include <stdlib.h>
#include "target/user.h"
#include "user.h"
#include "pipeline.h"
#include "note.h"
#include "learn.h"

_Thread_local struct fw_env *fw_env;

static __u8 *fw_table_probe(const struct fw_table *t, const void *key)
{
	__u32 stride = 1 + t->key_size + t->value_size;
	__u64 hash = 0;

	for (__u32 i = 0; i < t->key_size; i += 8) {
		__u64 word = 0;

		memcpy(&word, (const __u8 *)key + i, t->key_size - i < 8 ? t->key_size - i : 8);
		hash = fw_mix(hash, word);
	}
	for (__u32 i = 0; i < t->capacity; i++) {
		__u8 *entry = t->entries + (size_t)((hash + i) & (t->capacity - 1)) * stride;

		/* 2 is a removed entry: the chain goes on behind it */
		if (!entry[0] || (entry[0] == 1 && !memcmp(entry + 1, key, t->key_size)))
			return entry;
	}
	return NULL;
}

void *fw_table_get(const struct fw_table *t, const void *key)
{
	__u8 *entry = fw_table_probe(t, key);

	return entry && entry[0] ? entry + 1 + t->key_size : NULL;
}

static int fw_table_set(struct fw_table *t, const void *key, const void *value)
{
	__u8 *entry = fw_table_probe(t, key);

	if (!entry)
		return -1;
	entry[0] = 1;
	memcpy(entry + 1, key, t->key_size);
	memcpy(entry + 1 + t->key_size, value, t->value_size);
	return 0;
}

static void fw_table_remove(struct fw_table *t, const void *key)
{
	__u8 *entry = fw_table_probe(t, key);

	if (entry && entry[0])
		entry[0] = 2;
}

static int fw_table_init(struct fw_table *t, __u32 entries, __u32 key_size, __u32 value_size)
{
	t->key_size = key_size;
	t->value_size = value_size;
	t->capacity = 16;
	while (t->capacity < entries * 2)
		t->capacity *= 2;
	t->entries = calloc(t->capacity, 1 + key_size + value_size);
	return t->entries ? 0 : -1;
}

struct fw_env *fw_user_new(__u32 flows, __u32 nexthops)
{
	struct fw_env *env = calloc(1, sizeof(*env));

	if (!env)
		return NULL;
	env->flows_max = flows;
	env->nexthops_max = nexthops;
	env->states = calloc(flows + 1, sizeof(*env->states));
	env->nexthops = calloc(nexthops + 1, sizeof(*env->nexthops));
	env->slots = calloc(FW_SLOTS, sizeof(*env->slots));
	env->offers = calloc(FW_OFFERS, sizeof(*env->offers));
	if (!env->states || !env->nexthops || !env->slots || !env->offers ||
	    fw_table_init(&env->flows4, flows, sizeof(struct fw_key4), sizeof(struct fw_flow4)) ||
	    fw_table_init(&env->flows6, flows, sizeof(struct fw_key6), sizeof(struct fw_flow6))) {
		fw_user_free(env);
		return NULL;
	}
	env->config = (struct fw_config){
		.hz = 250, .ct = 1, .ct_check_ticks = 250, .slots_per_cpu = 1024
	};
	env->control = (struct fw_control){ .on = 1,
					    .epoch = 1,
					    .learn = 1,
					    .reval_budget = 1000,
					    .offer_budget = 1000,
					    .sample_budget = 1 };
	return env;
}

void fw_user_free(struct fw_env *env)
{
	free(env->states);
	free(env->nexthops);
	free(env->slots);
	free(env->offers);
	free(env->flows4.entries);
	free(env->flows6.entries);
	free(env);
}

struct fw_control *fw_user_control(struct fw_env *env)
{
	return &env->control;
}

struct fw_state *fw_user_state(struct fw_env *env, __u32 index)
{
	return index <= env->flows_max ? &env->states[index] : NULL;
}

struct fw_nexthop *fw_user_nexthop(struct fw_env *env, __u32 index)
{
	return index <= env->nexthops_max ? &env->nexthops[index] : NULL;
}

void fw_user_set_now(struct fw_env *env, __u32 tick)
{
	env->now_tick = tick;
}

void fw_user_set_conn(struct fw_env *env, const struct fw_conn *conn)
{
	env->conn = *conn;
}

int fw_user_insert4(struct fw_env *env, const struct fw_key4 *key, const struct fw_flow4 *flow)
{
	return fw_table_set(&env->flows4, key, flow);
}

int fw_user_insert6(struct fw_env *env, const struct fw_key6 *key, const struct fw_flow6 *flow)
{
	return fw_table_set(&env->flows6, key, flow);
}

void fw_user_remove4(struct fw_env *env, const struct fw_key4 *key)
{
	fw_table_remove(&env->flows4, key);
}

void fw_user_remove6(struct fw_env *env, const struct fw_key6 *key)
{
	fw_table_remove(&env->flows6, key);
}

__u64 fw_user_count(const struct fw_env *env, __u32 reason)
{
	return reason < FW_REASONS_MAX ? env->counts[reason] : 0;
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

__u32 fw_user_forward(struct fw_env *env, void *frame, __u32 *len, __u32 port, __u32 *port_out)
{
	fw_ctx ctx = { .data = frame, .end = (__u8 *)frame + *len, .port = port };
	const struct fw_nexthop *nh = NULL;
	struct fw_pkt p = {};
	enum fw_reason reason;

	fw_env = env;
	reason = fw_pipeline(&ctx, &p, &nh);
	if (!reason && nh) {
		*len = fw_frame_len(&ctx);
		*port_out = nh->port;
		fw_count(FW_R_FAST);
		return FW_R_FAST;
	}
	reason = fw_name_miss(ctx.data, ctx.end, &p, reason);
	fw_count(reason);
	return reason;
}

__u32 fw_user_ingress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso)
{
	fw_ctx ctx = { .data = frame, .end = (__u8 *)frame + len, .port = port, .gso = gso };
	struct fw_pkt p = {};
	enum fw_reason reason;

	fw_env = env;
	return fw_note(&ctx, &p, &reason);
}

__u32 fw_user_egress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso, __u32 token)
{
	fw_ctx ctx = { .data = frame, .end = (__u8 *)frame + len, .port = port, .gso = gso };
	struct fw_pkt p = {};
	enum fw_reason reason;

	fw_env = env;
	if (!token || token > FW_SLOTS)
		return FW_R_NONE;
	reason = fw_learn(&ctx, token, &p);
	fw_count(reason);
	return reason;
}
