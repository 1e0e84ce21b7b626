/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a bridge copies to those of its ports behind which somebody listens. One token is that of
 * all copies of a frame; which they were the manager gathers, and a known list is confirmed
 * once each of its ports has had its own.
 */
#ifndef FW_SNOOP_H
#define FW_SNOOP_H

#include "cross.h"
#include "group.h"
#include "guard.h"

/* The source and group that a frame's beginning names. */
static __always_inline int fw_head_group(struct fw_group *group, const __u8 head[FW_CROSSING_HEAD])
{
	return fw_group_read(group, head + FW_ETH_LEN, *(const fw_u16_any *)(head + FW_ETH_MAC2));
}

static __always_inline struct fw_offer_key fw_group_offer(const struct fw_stations *key,
							  const struct fw_group *group)
{
	__u64 hash = fw_stations_hash(key);

	for (int i = 0; i < 4; i++)
		hash = fw_mix(hash, (__u64)group->saddr_be[i] << 32 | group->daddr_be[i]);
	return fw_stations_offer(hash);
}

__noinline __u32 fw_group_note(struct __sk_buff *ctx)
{
	struct fw_stations key = {.port = fw_port(ctx), .tag = fw_skb_tag(ctx)};
	__u8 head[FW_CROSSING_HEAD];
	struct fw_offer_key offer;
	struct fw_group group;
	__u32 now = fw_now();
	/* on the stack words have to lie where words do */
	__u32 packet[FW_IP6_LEN / sizeof(__u32)];

	if (!(fw_ctl.bridges & FW_BRIDGES_GROUPS) || !fw_crossing_head(ctx, head) ||
	    bpf_skb_load_bytes(ctx, FW_ETH_LEN, packet, sizeof(packet)) ||
	    !fw_group_read(&group, packet, *(const fw_u16_any *)(head + FW_ETH_MAC2)))
		return 0;
	__builtin_memcpy(key.macs, head, sizeof(key.macs));
	offer = fw_group_offer(&key, &group);
	if (fw_offer_quiet(&offer, now)) {
		fw_count(FW_R_LEARN_OFFERED);
		return 0;
	}
	return fw_crossing_write(ctx, &key, head, 0, now);
}

/* In `served`, no leg's: what the others do confirms nothing any more. */
#define FW_SERVED_OTHERWISE (1U << FW_OLIST_MAX)

/* The kernel sends otherwise than the path says. */
static __always_inline void fw_group_contradicts(struct fw_path *path, struct fw_crossing *crossing)
{
	crossing->served |= FW_SERVED_OTHERWISE;
	if (crossing->epoch == fw_ctl.epoch)
		FW_WRITE_ONCE(path->epoch, 0);
}

/* The bit of the leg that a copy left by; 0: there is none. */
static __always_inline __u32 fw_group_leg(const struct fw_olist *list, __u32 port,
					  const struct fw_tag *tag)
{
	for (__u32 i = 0; i < FW_OLIST_MAX && i < list->count; i++)
		if (list->leg[i].port == port && !fw_tag_differs(&list->leg[i].tag[0], tag))
			return 1u << i;
	return 0;
}

/*
 * Compares a copy with the known list. FW_R_NONE: look at it as at a new one, too, for the path
 * waits, and there may be fewer than before.
 */
static __always_inline enum fw_reason fw_group_known(struct fw_path *path,
						     struct fw_crossing *crossing, __u32 port,
						     const struct fw_tag *tag, __u32 now)
{
	const int waits = FW_READ_ONCE(path->epoch) != fw_ctl.epoch;
	const struct fw_nexthop *nh = fw_nexthop_get(path->port);
	const struct fw_olist *list = NULL;
	__u32 leg = 0;

	if (fw_is_olist(FW_READ_ONCE(nh->valid)))
		list = fw_olist_get(nh->devmap_slot);
	if (list)
		leg = fw_group_leg(list, port, tag);
	if (!leg || (crossing->served & leg)) {
		/* at another port than before, or the router's own */
		fw_group_contradicts(path, crossing);
		return FW_R_NONE;
	}
	crossing->served |= leg;
	if (crossing->served == (1u << (list->count & FW_OLIST_MAX)) - 1)
		return fw_path_confirm(path, crossing, now);
	return waits ? FW_R_NONE : FW_R_LEARN_COPIES;
}

static __always_inline enum fw_reason fw_group_event(struct __sk_buff *ctx, __u32 token,
						     const struct fw_crossing *crossing,
						     const struct fw_group *group,
						     struct fw_tag tag, __u32 set)
{
	struct fw_crossed *event = fw_event_reserve(sizeof(*event));

	if (!event)
		return FW_R_LEARN_RING;
	event->ev.kind = FW_EV_CROSSED;
	event->ev.reason = FW_R_LEARNED;
	event->ev.state = 0;
	event->ev.tick = fw_now();
	event->key = crossing->key;
	event->port_out = fw_port(ctx);
	event->tag_out = tag;
	event->epoch = crossing->epoch;
	event->set = set;
	event->token = token;
	event->copy = crossing->egress - 1;
	event->tick = crossing->tick;
	event->group = *group;
	fw_event_submit(event);
	return FW_R_LEARNED;
}

__noinline __u32 fw_group_left(struct __sk_buff *ctx, __u32 token)
{
	struct fw_tag tag = fw_skb_tag(ctx);
	__u32 now = fw_now(), first_tick, copy;
	struct fw_crossing *crossing = fw_crossing_of(token, now);
	enum fw_reason reason = FW_R_NONE, offered;
	struct fw_offer *made = NULL;
	struct fw_offer_key offer;
	struct fw_group group;
	struct fw_path *path;
	int waits = 0;

	if (!crossing || !fw_head_group(&group, crossing->head))
		return FW_R_LEARN_STALE_TOKEN;
	copy = crossing->egress++;
	path = bpf_map_lookup_elem(&fw_paths, &crossing->key);
	if (path && fw_group_differs(&path->group, &group))
		path = NULL;
	if (!fw_crossed_whole(ctx, crossing)) {
		/* to a single listener's own address, say */
		if (path)
			fw_group_contradicts(path, crossing);
		return FW_R_LEARN_CHANGED;
	}
	if (path) {
		waits = FW_READ_ONCE(path->epoch) != fw_ctl.epoch;
		reason = fw_group_known(path, crossing, fw_port(ctx), &tag, now);
	}
	/* all copies of a frame are offered, or none; while the path waits also one that confirms
	 * it, for another may follow that does not */
	if (copy ? !crossing->offered : reason != FW_R_NONE && !waits)
		return reason ? reason : FW_R_LEARN_COPIES;
	if (crossing->epoch != fw_ctl.epoch)
		return FW_R_LEARN_EPOCH;
	offer = fw_group_offer(&crossing->key, &group);
	if (!copy) {
		offered = fw_offer(&offer, fw_mix(offer.hash, crossing->epoch), NULL, token, now,
				   &made, &first_tick);
		if (offered || !made)
			return reason ? reason : offered;
		fw_offer_made(made, now);
		crossing->offered = 1;
	}
	copy = fw_group_event(ctx, token, crossing, &group, tag, offer.set);
	return reason ? reason : copy;
}

__noinline int fw_group_up(struct __sk_buff *ctx, __u32 token)
{
	const struct fw_crossing *crossing;

	if (token < FW_CROSSING_INDEX || token >= FW_CROSSING_NONE)
		return 0;
	crossing = fw_crossing_of(token, fw_now());
	if (!crossing || !(crossing->key.macs[0] & 1))
		return 0;
	if (fw_ctl.learn)
		fw_count(fw_group_left(ctx, token));
	return 1;
}

#endif
