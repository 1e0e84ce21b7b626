/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The filter of what was observed lately, and of what was offered to the manager. */
#ifndef FW_OFFER_H
#define FW_OFFER_H

#include "abi.h"
#include "fresh.h"
#include "table.h"

static __always_inline __u64 fw_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ hash >> 29;
}

/* Of the whole key, and secret as its home is. */
static __always_inline __u64 fw_key_hash4(const struct fw_words4 *key,
					  const volatile struct fw_config *c)
{
	return key->addresses * c->hash_key[0] + key->ports * c->hash_key[1];
}

static __always_inline __u64 fw_key_hash6(const struct fw_words6 *key,
					  const volatile struct fw_config *c)
{
	return key->ports * c->hash_key[0] + key->addresses[0] * c->hash_key[1] +
	       key->addresses[1] * c->hash_key[2] + key->addresses[2] * c->hash_key[3] +
	       key->addresses[3] * c->hash_key[4];
}

/* The upper bits of a hash are its good ones. */
static __always_inline __u32 fw_offer_number(__u64 key_hash)
{
	return key_hash >> (64 - FW_OFFER_BITS);
}

static __always_inline __u32 fw_offer_tag(__u64 key_hash)
{
	return key_hash >> (32 - FW_OFFER_BITS);
}

/*
 * May a new observation take this place? Most must let what waits for its second
 * one be: if more flows came by turns than there are places, each would push out
 * another, and none would ever be seen twice.
 */
static __always_inline int fw_offer_yields(const struct fw_observation *seen,
					   const struct fw_offer *offer, __u32 token, __u32 now)
{
	if (!seen->hash || now - seen->first_tick >= 10 * fw_cfg.hz)
		return 1;
	if (offer->made && now - offer->tick >= fw_cfg.hz)
		return 1;
	return (token ^ now) * 0x9e3779b1u >> 29 == 0;
}

/*
 * Two equal observations, then an offer, then silence for a second. *made is what
 * the offer is to be noted in, *first_tick that of the first observation.
 */
static __always_inline enum fw_reason fw_offer(__u64 key_hash, __u64 hash, __u32 token, __u32 now,
					       struct fw_offer **made, __u32 *first_tick)
{
	struct fw_offer_set *set = fw_offer_get(fw_offer_number(key_hash));
	/* tokens count up, so the victim changes */
	__u32 way = token & (FW_OFFER_WAYS - 1), known = 0;
	struct fw_observation *seen;
	struct fw_offer *offer;
	struct fw_cpu *cpu;

	if (!set)
		return FW_R_LEARN_BUDGET;
	for (__u32 i = 0; i < FW_OFFER_WAYS; i++) {
		if (!known && set->seen[i].hash == hash) {
			known = 1;
			way = i;
		}
	}
	seen = &set->seen[way];
	offer = &set->offer[way];
	if (!known) {
		if (!fw_offer_yields(seen, offer, token, now))
			return FW_R_LEARN_BUDGET;
		seen->hash = hash;
		seen->first_tick = now;
		offer->key_tag = fw_offer_tag(key_hash);
		offer->made = 0;
		return FW_R_LEARN_ONCE;
	}
	if (offer->made) {
		if (now - offer->tick < fw_cfg.hz)
			return FW_R_LEARN_OFFERED;
		/* nothing came of it, or what came of it is gone: begin anew */
		seen->first_tick = now;
		offer->made = 0;
		return FW_R_LEARN_ONCE;
	}
	cpu = fw_budget(now);
	if (!cpu || cpu->offered >= fw_ctl.offer_budget)
		return FW_R_LEARN_BUDGET;
	cpu->offered++;
	*made = offer;
	*first_tick = seen->first_tick;
	return FW_R_NONE;
}

/*
 * Was a packet of this key offered within the last second? The manager takes back
 * the offers that it accepts, so this one was refused, or waits: until the second is
 * over, nothing is to be learned from the flow.
 */
static __always_inline int fw_offer_quiet(__u64 key_hash, __u32 now)
{
	const struct fw_offer_set *set = fw_offer_get(fw_offer_number(key_hash));

	if (!set)
		return 0;
	for (int i = 0; i < FW_OFFER_WAYS; i++) {
		const struct fw_offer *offer = &set->offer[i];

		if (offer->key_tag == fw_offer_tag(key_hash) && offer->made &&
		    now - offer->tick < fw_cfg.hz)
			return 1;
	}
	return 0;
}

#endif
