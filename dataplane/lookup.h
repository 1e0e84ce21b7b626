/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding a flow: at its home, or, if that reaches further, displaced. */
#ifndef FW_LOOKUP_H
#define FW_LOOKUP_H

#include "table.h"

/*
 * A search of all places is a function of its own, for most flows are at home:
 * the flow's place, or none. Of external linkage, so that the BPF verifier looks
 * at it once.
 */
__u32 fw_search4(__u64 addresses, __u64 ports, __u64 home);
__u32 fw_search6(const struct fw_words6 *key, __u64 home);

__noinline __u32 fw_search4(__u64 addresses, __u64 ports, __u64 home)
{
	struct fw_words4 key = {.addresses = addresses, .ports = ports};
	const struct fw_flow *flow = fw_flow_get(home);
	__u32 reach = flow ? flow->reach : 0;

	for (__u32 step = 0; step <= FW_REACH_MAX && step <= reach; step++) {
		flow = fw_flow_get(fw_place(home, step));
		if (flow && !fw_key4_differs(flow, &key))
			return fw_place(home, step) & fw_cfg.flow_mask;
	}
	return FW_INDEX_NONE;
}

__noinline __u32 fw_search6(const struct fw_words6 *key, __u64 home)
{
	const struct fw_flow *flow = fw_flow_get(home);
	__u32 reach = flow ? flow->reach : 0;

	if (!key)
		return FW_INDEX_NONE;
	for (__u32 step = 0; step <= FW_REACH_MAX && step <= reach; step++) {
		flow = fw_flow_get(fw_place(home, step));
		if (flow && !fw_key6_differs(flow, key))
			return fw_place(home, step) & fw_cfg.flow_mask;
	}
	return FW_INDEX_NONE;
}

/* The flow of a key whose home is that, or NULL. */
static __always_inline struct fw_flow *fw_find4_from(const struct fw_words4 *key, __u64 home)
{
	struct fw_flow *flow = fw_flow_get(home);
	__u32 place;

	if (!flow || fw_likely(!fw_key4_differs(flow, key)))
		return flow;
	if (fw_likely(!flow->reach))
		return NULL;
	place = fw_search4(key->addresses, key->ports, home);
	return place ? fw_flow_get(place) : NULL;
}

static __always_inline struct fw_flow *fw_find6_from(const struct fw_words6 *key, __u64 home)
{
	struct fw_flow *flow = fw_flow_get(home);
	__u32 place;

	if (!flow || fw_likely(!fw_key6_differs(flow, key)))
		return flow;
	if (fw_likely(!flow->reach))
		return NULL;
	place = fw_search6(key, home);
	return place ? fw_flow_get(place) : NULL;
}

/* The flow of a key, or NULL. */
static __always_inline struct fw_flow *fw_find4(const struct fw_words4 *key)
{
	return fw_find4_from(key, fw_home4(key, &fw_cfg));
}

static __always_inline struct fw_flow *fw_find6(const struct fw_words6 *key)
{
	return fw_find6_from(key, fw_home6(key, &fw_cfg));
}

#endif
