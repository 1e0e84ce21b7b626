/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The filter of what was observed lately, and of what was offered to the manager. */
#ifndef FW_OFFER_H
#define FW_OFFER_H

#include "abi.h"
#include "fresh.h"

static __always_inline __u64 fw_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

static __always_inline __u64 fw_hash_key(const struct fw_slot *slot)
{
	const fw_u64_any *word = (const void *)&slot->key;
	__u64 hash = slot->family;

	for (int i = 0; i < 5; i++)
		hash = fw_mix(hash, word[i]);
	return hash;
}

static __always_inline struct fw_offer *fw_offer_find(struct fw_offer_set *set, __u64 hash)
{
	for (int i = 0; i < FW_OFFER_WAYS; i++)
		if (set->way[i].hash == hash)
			return &set->way[i];
	return NULL;
}

/*
 * May a new observation take this place? Most must let what waits for its second
 * one be: if more flows came by turns than there are places, each would push out
 * another, and none would ever be seen twice.
 */
static __always_inline int fw_offer_yields(const struct fw_offer *offer, __u32 token, __u32 now)
{
	if (!offer->hash || now - offer->first_tick >= 10 * fw_cfg.hz)
		return 1;
	if (offer->offered && now - offer->offered_tick >= fw_cfg.hz)
		return 1;
	return (token ^ now) * 0x9e3779b1u >> 29 == 0;
}

/*
 * Two equal observations, then an offer, then silence for a second. *found is
 * what the offer is to be noted in.
 */
static __always_inline enum fw_reason fw_offer(__u64 key_hash, __u64 hash, __u32 token, __u32 now,
					       struct fw_offer **found)
{
	struct fw_offer_set *set = fw_offer_get(key_hash & (FW_OFFER_SETS - 1));
	struct fw_offer *offer;
	struct fw_cpu *cpu;

	if (!set)
		return FW_R_LEARN_BUDGET;
	offer = fw_offer_find(set, hash);
	if (!offer) {
		/* tokens count up, so the victim changes */
		offer = &set->way[token & (FW_OFFER_WAYS - 1)];
		if (!fw_offer_yields(offer, token, now))
			return FW_R_LEARN_BUDGET;
		offer->hash = hash;
		offer->key_tag = key_hash >> 32;
		offer->first_tick = now;
		offer->offered = 0;
		return FW_R_LEARN_ONCE;
	}
	if (offer->offered) {
		if (now - offer->offered_tick < fw_cfg.hz)
			return FW_R_LEARN_OFFERED;
		/* nothing came of it, or what came of it is gone: begin anew */
		offer->first_tick = now;
		offer->offered = 0;
		return FW_R_LEARN_ONCE;
	}
	cpu = fw_budget(now);
	if (!cpu || cpu->offered >= fw_ctl.offer_budget)
		return FW_R_LEARN_BUDGET;
	cpu->offered++;
	*found = offer;
	return FW_R_NONE;
}

/*
 * Was a packet of this key offered within the last second? The manager takes back
 * the offers that it accepts, so this one was refused, or waits: until the second is
 * over, nothing is to be learned from the flow.
 */
static __always_inline int fw_offer_quiet(__u64 key_hash, __u32 now)
{
	const struct fw_offer_set *set = fw_offer_get(key_hash & (FW_OFFER_SETS - 1));

	if (!set)
		return 0;
	for (int i = 0; i < FW_OFFER_WAYS; i++) {
		const struct fw_offer *offer = &set->way[i];

		if (offer->hash && offer->offered && offer->key_tag == (__u32)(key_hash >> 32) &&
		    now - offer->offered_tick < fw_cfg.hz)
			return 1;
	}
	return 0;
}

#endif
