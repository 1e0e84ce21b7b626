/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow table's writer: of the native library, the daemon and the engine's bench. */
#include <stddef.h>
#include <string.h>
#include "writer.h"

static __u64 fw_home_of(const struct fw_flow *flow, const struct fw_config *config)
{
	struct fw_words4 key4;
	struct fw_words6 key6;

	fw_words_of(flow, &key4, &key6);
	return flow->key.port_proto & FW_KEY_IP6 ? fw_home6(&key6, config)
						 : fw_home4(&key4, config);
}

/* A free place for a key of this home, or none; *steps away. */
static __u32 fw_place_free(const struct fw_flow *flows, const struct fw_config *config, __u64 home,
			   __u32 *steps)
{
	for (*steps = 0; *steps <= FW_REACH_MAX; ++*steps) {
		__u32 place = fw_place(home, *steps) & config->flow_mask;

		if (place && !flows[place].key.port_proto &&
		    flows[place].state.status == FW_ST_FREE)
			return place;
	}
	return FW_INDEX_NONE;
}

__u32 fw_table_insert(struct fw_flow *flows, const struct fw_config *config,
		      const struct fw_flow *flow, __u32 index)
{
	const size_t ports_at = offsetof(struct fw_flow, key.sport_be) / 8;
	__u64 home = fw_home_of(flow, config), words[sizeof(*flow) / 8], *to;
	struct fw_flow *at_home = &flows[home & config->flow_mask], new = *flow;
	__u32 steps, place = fw_place_free(flows, config, home, &steps);

	if (!place)
		return FW_INDEX_NONE;
	new.reach = flows[place].reach;
	new.state.index = index;
	memcpy(words, &new, sizeof(new));
	to = (__u64 *)&flows[place];
	/* the key's protocol last: whoever finds the key finds all of it */
	for (size_t i = 0; i < sizeof(new) / 8; i++)
		if (i != ports_at)
			__atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
	__atomic_store_n(&to[ports_at], words[ports_at], __ATOMIC_RELEASE);
	if (at_home->reach < steps)
		FW_WRITE_ONCE(at_home->reach, steps);
	return place;
}

void fw_table_remove(struct fw_flow *flows, const struct fw_config *config, __u32 place)
{
	struct fw_flow *flow = &flows[place];
	__u64 home = fw_home_of(flow, config);
	struct fw_flow *at_home = &flows[home & config->flow_mask];
	__u32 reach = 0;

	FW_WRITE_ONCE(flow->state.status, FW_ST_SUSPENDED);
	FW_WRITE_ONCE(flow->key.port_proto, 0);
	for (__u32 step = 1; step <= at_home->reach; step++) {
		const struct fw_flow *other = &flows[fw_place(home, step) & config->flow_mask];

		if (other->key.port_proto && fw_home_of(other, config) == home)
			reach = step;
	}
	FW_WRITE_ONCE(at_home->reach, reach);
}

void fw_table_release(struct fw_flow *flows, __u32 place)
{
	FW_WRITE_ONCE(flows[place].state.status, FW_ST_FREE);
}

void fw_table_config(struct fw_config *config, __u32 flows, const __u64 *random)
{
	__u32 bits = 13; /* room for probing */

	/* seven eighths at most: in a fuller table many flows would find no place */
	while (bits < 31 && (1ULL << bits) * 7 / 8 < flows)
		bits++;
	config->flow_mask = (1u << bits) - 1;
	config->hash_shift = 64 - bits;
	for (int i = 0; i < FW_HASH_KEYS; i++)
		config->hash_key[i] = random[i] | 1;
}
