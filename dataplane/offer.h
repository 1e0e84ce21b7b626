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

/* Where a key's observations and offers are kept, and what tells them there. */
struct fw_offer_key {
	__u64 hash; /* of the whole key, and secret */
	__u32 set;
};

static __always_inline struct fw_offer_key fw_offer_key4(const struct fw_words4 *key,
							 const volatile struct fw_config *c)
{
	return (struct fw_offer_key){.hash = fw_sum4(key, key->ports, c),
				     .set = fw_spread4(key, c, 64 - FW_OFFER_BITS)};
}

static __always_inline struct fw_offer_key fw_offer_key6(const struct fw_words6 *key,
							 const volatile struct fw_config *c)
{
	return (struct fw_offer_key){.hash = fw_sum6(key, key->ports, c),
				     .set = fw_spread6(key, c, 64 - FW_OFFER_BITS)};
}

/* The upper bits of a hash are its good ones. */
static __always_inline __u32 fw_offer_tag(const struct fw_offer_key *key)
{
	return key->hash >> 32;
}

/* Was the offer made within the last second? */
static __always_inline int fw_offer_lately(const struct fw_offer *offer, __u32 now)
{
	return offer->tick && (now | 1) - offer->tick < fw_cfg.hz;
}

static __always_inline void fw_offer_made(struct fw_offer *offer, __u32 now)
{
	offer->tick = now | 1;
}

/* Nothing worth a second is lost if a new observation takes this place. */
static __always_inline int fw_offer_yields(const struct fw_observation *seen,
					   const struct fw_offer *offer, __u32 now)
{
	if (offer->tick)
		return !fw_offer_lately(offer, now);
	return !seen->tag || now - seen->first_tick >= fw_cfg.hz;
}

/*
 * What a source has had in this second. Of an IPv6 address the upper 64 bits count: all
 * below them is one host's to choose.
 */
static __always_inline struct fw_source *fw_source_had(const __u32 saddr_be[4], __u32 family,
						       __u32 now)
{
	__u64 hash = fw_mix(fw_cfg.hash_key[0], saddr_be[0]);
	struct fw_cpu *cpu = fw_cpu_get();
	struct fw_source *had;

	if (family == FW_AF_INET6)
		hash = fw_mix(hash, saddr_be[1]);
	if (!cpu)
		return NULL;
	had = &cpu->sources[hash >> 32 & (FW_SOURCES - 1)];
	if (now - had->first_tick >= fw_cfg.hz) {
		had->first_tick = now;
		had->observations = 0;
		had->offers = 0;
	}
	return had;
}

/*
 * The place of a new observation among the first ways, or FW_OFFER_WAYS. Where all are
 * taken, most must let what waits for its second one be: if more flows came by turns than
 * there are places, each would push out another, and none would ever be seen twice.
 */
static __always_inline __u32 fw_offer_way(const struct fw_observation_set *observed,
					  const struct fw_offer_set *offers, __u32 ways,
					  __u32 token, __u32 now)
{
	for (__u32 i = 0; i < FW_OFFER_WAYS; i++)
		if (i < ways && fw_offer_yields(&observed->seen[i], &offers->offer[i], now))
			return i;
	/* tokens count up, so the victim changes */
	return (token ^ now) * FW_GOLDEN >> 29 ? FW_OFFER_WAYS : token & (ways - 1);
}

/*
 * Two equal observations, then an offer, then silence for a second. *made is what
 * the offer is to be noted in, *first_tick that of the first observation. A source that
 * has had its share, a scanner say, competes for half of the places, of the budget and of
 * the ring alone; the other halves are for the rest. NULL: the source does not count.
 */
static __always_inline enum fw_reason fw_offer(const struct fw_offer_key *key, __u64 hash,
					       struct fw_source *had, __u32 token, __u32 now,
					       struct fw_offer **made, __u32 *first_tick)
{
	struct fw_observation_set *observed = fw_observation_get(key->set);
	struct fw_offer_set *offers = fw_offer_get(key->set);
	__u32 tag = hash >> 32 | 1, way = FW_OFFER_WAYS, known = 0;
	int greedy = had && had->observations >= FW_SOURCE_OBSERVATIONS;
	struct fw_observation *seen;
	struct fw_offer *offer;
	struct fw_cpu *cpu;

	if (!observed || !offers)
		return FW_R_LEARN_BUDGET;
	for (__u32 i = 0; i < FW_OFFER_WAYS; i++) {
		if (!known && observed->seen[i].tag == tag) {
			known = 1;
			way = i;
		}
	}
	if (!known)
		way = fw_offer_way(observed, offers, FW_OFFER_WAYS >> greedy, token, now);
	if (way >= FW_OFFER_WAYS)
		return greedy ? FW_R_LEARN_SOURCE : FW_R_LEARN_BUDGET;
	seen = &observed->seen[way];
	offer = &offers->offer[way];
	if (!known) {
		if (had)
			had->observations++;
		seen->tag = tag;
		seen->first_tick = now;
		offer->key_tag = fw_offer_tag(key);
		offer->tick = 0;
		return FW_R_LEARN_ONCE;
	}
	if (fw_offer_lately(offer, now))
		return FW_R_LEARN_OFFERED;
	if (offer->tick) {
		/* nothing came of it, or what came of it is gone: begin anew */
		seen->first_tick = now;
		offer->tick = 0;
		return FW_R_LEARN_ONCE;
	}
	cpu = fw_budget(now);
	if (!cpu || cpu->offered >= fw_ctl.offer_budget)
		return FW_R_LEARN_BUDGET;
	if (had && had->offers >= FW_SOURCE_OFFERS &&
	    (cpu->offered >= fw_ctl.offer_budget / 2 || fw_events_crowded()))
		return FW_R_LEARN_SOURCE;
	cpu->offered++;
	if (had)
		had->offers++;
	*made = offer;
	*first_tick = seen->first_tick;
	return FW_R_NONE;
}

/*
 * Was a packet of this key offered within the last second? The manager takes back
 * the offers that it accepts, so this one was refused, or waits: until the second is
 * over, nothing is to be learned from the flow.
 */
static __always_inline int fw_offer_quiet(const struct fw_offer_key *key, __u32 now)
{
	const struct fw_offer_set *offers = fw_offer_get(key->set);

	if (!offers)
		return 0;
	for (int i = 0; i < FW_OFFER_WAYS; i++) {
		const struct fw_offer *offer = &offers->offer[i];

		if (offer->key_tag == fw_offer_tag(key) && fw_offer_lately(offer, now))
			return 1;
	}
	return 0;
}

#endif
