/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How paths are proven, in tc. Where a station's frames to another one leave, and with which tag,
 * the kernel's own frames show: at tc ingress of the bridge's port what came in goes to a crossing,
 * whose number skb->tc_index takes to tc egress. A bridge does not care what frames carry, so their
 * addresses and tag are all that there is to know.
 */
#ifndef FW_CROSS_H
#define FW_CROSS_H

#include "path.h"

/* What is for the router itself is not bridged, and noted only where a bridge routes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_OWN_MACS_MAX);
	__type(key, struct fw_own_mac);
	__type(value, __u32);
} FW_MAP(fw_own_macs);

/* Bridges, and VLANs of them, that send to stations through XDP, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_PORTS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_routed_ports);

static __always_inline int fw_is_own_mac(struct __sk_buff *ctx)
{
	struct fw_own_mac key = {};

	return bpf_skb_load_bytes(ctx, 0, key.mac, sizeof(key.mac)) ||
	       bpf_map_lookup_elem(&fw_own_macs, &key) != NULL;
}

enum {
	/* Beyond all tokens and sessions. */
	FW_CROSSING_INDEX = FW_SLOTS + 1 + FW_SESSIONS_MAX,
	/* No crossing: of a frame for the router, which XDP at a bridge's port has seen. */
	FW_CROSSING_NONE = FW_CROSSING_INDEX + FW_CROSSINGS,
};

static __always_inline struct fw_tag fw_skb_tag(const struct __sk_buff *ctx)
{
	struct fw_tag tag = {};

	if (ctx->vlan_present) {
		tag.tpid_be = ctx->vlan_proto;
		tag.tci_be = fw_htons(ctx->vlan_tci);
	}
	return tag;
}

/* The frame's beginning; what is not there is 0. */
static __always_inline int fw_crossing_head(struct __sk_buff *ctx, __u8 head[FW_CROSSING_HEAD])
{
	if (!bpf_skb_load_bytes(ctx, 0, head, FW_CROSSING_HEAD))
		return 1;
	__builtin_memset(head, 0, FW_CROSSING_HEAD);
	return !bpf_skb_load_bytes(ctx, 0, head, FW_ETH_LEN);
}

static __always_inline __u64 fw_stations_hash(const struct fw_stations *key)
{
	const fw_u32_any *word = (const void *)key;
	__u64 hash = fw_cfg.hash_key[0];

	for (__u32 i = 0; i < sizeof(*key) / sizeof(*word); i++)
		hash = fw_mix(hash, word[i]);
	return hash;
}

static __always_inline struct fw_offer_key fw_stations_offer(__u64 hash)
{
	return (struct fw_offer_key){.hash = hash, .set = hash >> (64 - FW_OFFER_BITS)};
}

/* The path is known, and the kernel has shown it lately. */
static __always_inline int fw_path_is_fresh(const struct fw_path *path, __u32 now)
{
	return path->epoch == fw_ctl.epoch && !fw_reached(now, path->reval_tick);
}

/* The token of a new crossing, or 0. */
static __always_inline __u32 fw_crossing_write(struct __sk_buff *ctx, const struct fw_stations *key,
					       const __u8 head[FW_CROSSING_HEAD], __u32 flags,
					       __u32 now)
{
	__u32 index, per_cpu = fw_cfg.slots_per_cpu / (FW_SLOTS / FW_CROSSINGS);
	struct fw_cpu *cpu = fw_budget(now);
	struct fw_crossing *crossing;

	if (!cpu || !per_cpu)
		return 0;
	index = fw_cpu_id() * per_cpu + (cpu->crossing++ & (per_cpu - 1));
	crossing = bpf_map_lookup_elem(&fw_crossings, &index);
	if (!crossing)
		return 0;
	crossing->key = *key;
	crossing->epoch = fw_ctl.epoch;
	crossing->tick = now;
	crossing->egress = 0;
	crossing->len = ctx->len;
	crossing->flags = flags;
	crossing->served = 0;
	crossing->offered = 0;
	__builtin_memcpy(crossing->head, head, sizeof(crossing->head));
	return FW_CROSSING_INDEX + index;
}

/* The token of a frame to a group, or 0; and what a copy that left under one shows: enum fw_reason.
 * Of external linkage, so that the BPF verifier looks at them once. */
__u32 fw_group_note(struct __sk_buff *ctx);
__u32 fw_group_left(struct __sk_buff *ctx, __u32 token);
/* The router itself has one of the copies; false if it is none. */
int fw_group_up(struct __sk_buff *ctx, __u32 token);

/*
 * tc ingress of a bridge's port: the crossing's token; 0 if the frame is for all, or the router's
 * and of no use, FW_CROSSING_NONE if it is the router's and shows nothing new.
 */
static __always_inline __u32 fw_crossing_note(struct __sk_buff *ctx)
{
	struct fw_offer_key offer;
	struct fw_stations key = {};
	__u8 head[FW_CROSSING_HEAD];
	const struct fw_path *path;
	__u32 now = fw_now(), none = 0, token;
	const int own = fw_is_own_mac(ctx);

	if (own && !(fw_ctl.bridges & FW_BRIDGES_ROUTED))
		return 0;
	if (!fw_crossing_head(ctx, head))
		return 0;
	if (head[0] & 1)
		return fw_group_note(ctx);
	key.port = fw_port(ctx);
	__builtin_memcpy(key.macs, head, sizeof(key.macs));
	key.tag = fw_skb_tag(ctx);
	offer = fw_stations_offer(fw_stations_hash(&key));
	path = own ? bpf_map_lookup_elem(&fw_paths, &key) : NULL;
	if (path)
		none = FW_CROSSING_NONE;
	if (fw_offer_quiet(&offer, now)) {
		fw_count(FW_R_LEARN_OFFERED);
		return none;
	}
	if (path && fw_path_is_fresh(path, now))
		return none;
	token = fw_crossing_write(ctx, &key, head, path ? FW_CROSSING_SEEN : 0, now);
	return token ? token : none;
}

/*
 * tc egress of a bridge, or of a VLAN of it: the token of what the router sends to a station, or 0.
 * Of external linkage, so that the BPF verifier looks at it once.
 */
__u32 fw_crossing_down(struct __sk_buff *ctx);

__noinline __u32 fw_crossing_down(struct __sk_buff *ctx)
{
	struct fw_offer_key offer;
	struct fw_stations key = {.port = fw_port(ctx)};
	__u8 head[FW_CROSSING_HEAD];
	const struct fw_path *path;
	__u32 now = fw_now();

	/* with a tag it is that of a VLAN above, which says nothing of the bridge's own */
	if (fw_hidden(ctx) || !bpf_map_lookup_elem(&fw_routed_ports, &key.port) ||
	    !fw_crossing_head(ctx, head) || (head[0] & 1))
		return 0;
	__builtin_memcpy(key.macs, head, sizeof(key.macs));
	offer = fw_stations_offer(fw_stations_hash(&key));
	if (fw_offer_quiet(&offer, now))
		return 0;
	path = bpf_map_lookup_elem(&fw_paths, &key);
	return path && fw_path_is_fresh(path, now)
		       ? 0
		       : fw_crossing_write(ctx, &key, head, FW_CROSSING_DOWN, now);
}

/* Nothing but the tag may have changed. */
static __always_inline int fw_crossed_whole(struct __sk_buff *ctx,
					    const struct fw_crossing *crossing)
{
	__u8 head[FW_CROSSING_HEAD];

	return ctx->len == crossing->len && fw_crossing_head(ctx, head) &&
	       !__builtin_memcmp(head, crossing->head, sizeof(head));
}

/* The kernel did it again. */
static __always_inline enum fw_reason fw_path_confirm(struct fw_path *path,
						      const struct fw_crossing *crossing, __u32 now)
{
	if (crossing->epoch != fw_ctl.epoch || fw_stations_differ(&path->key, &crossing->key))
		return FW_R_LEARN_EPOCH;
	path->misses = 0;
	if (crossing->flags & FW_CROSSING_DOWN)
		path->used_tick = now;
	path->reval_tick = now + path->interval;
	FW_WRITE_ONCE(path->epoch, crossing->epoch);
	return FW_R_CONFIRMED;
}

static __always_inline enum fw_reason fw_crossing_offer(struct __sk_buff *ctx, __u32 token,
							const struct fw_crossing *crossing,
							struct fw_tag tag, __u32 known, __u32 now)
{
	struct fw_offer *made = NULL;
	struct fw_offer_key offer;
	enum fw_reason reason;
	struct fw_crossed *event;
	__u32 first_tick;
	__u64 hash;

	offer = fw_stations_offer(fw_stations_hash(&crossing->key));
	hash = fw_mix(offer.hash, (__u64)fw_port(ctx) << 32 | *(const fw_u32_any *)&tag);
	hash = fw_mix(hash, crossing->epoch);
	reason = fw_offer(&offer, hash, NULL, token, now, &made, &first_tick);
	if (reason || !made)
		return reason;
	event = fw_event_reserve(sizeof(*event));
	if (!event)
		return FW_R_LEARN_RING;
	event->ev.kind = FW_EV_CROSSED;
	event->ev.reason = FW_R_LEARNED;
	event->ev.state = 0;
	event->ev.tick = now;
	event->key = crossing->key;
	event->port_out = fw_port(ctx);
	event->tag_out = tag;
	event->epoch = crossing->epoch;
	event->set = offer.set;
	fw_offer_made(made, now);
	fw_event_submit(event);
	return known ? FW_R_CONTRADICTED : FW_R_LEARNED;
}

/* Where a crossing came out is compared with its path, or offered. */
static __always_inline enum fw_reason fw_came_out(struct __sk_buff *ctx, __u32 token,
						  struct fw_crossing *crossing, struct fw_tag tag,
						  __u32 now)
{
	struct fw_path *path = bpf_map_lookup_elem(&fw_paths, &crossing->key);
	const int copy = crossing->egress++ != 0;

	if (!fw_crossed_whole(ctx, crossing)) {
		/* segments of what the router sent are of no use, and say nothing else */
		if (path && !(crossing->flags & FW_CROSSING_DOWN))
			FW_WRITE_ONCE(path->epoch, 0);
		return FW_R_LEARN_CHANGED;
	}
	if (path && !copy && path->port == fw_port(ctx) && !fw_tag_differs(&path->tag, &tag))
		return fw_path_confirm(path, crossing, now);
	/* flooded, or to another port than before */
	if (path && crossing->epoch == fw_ctl.epoch)
		FW_WRITE_ONCE(path->epoch, 0);
	if (copy)
		return FW_R_LEARN_COPIES;
	if (crossing->epoch != fw_ctl.epoch)
		return FW_R_LEARN_EPOCH;
	return fw_crossing_offer(ctx, token, crossing, tag, !!path, now);
}

/* Null if there is none, or an old one. */
static __always_inline struct fw_crossing *fw_crossing_of(__u32 token, __u32 now)
{
	__u32 index = token - FW_CROSSING_INDEX;
	struct fw_crossing *crossing = bpf_map_lookup_elem(&fw_crossings, &index);

	return crossing && now - crossing->tick <= fw_cfg.hz ? crossing : NULL;
}

/* tc egress of a bridge's port. */
static __always_inline enum fw_reason fw_crossed(struct __sk_buff *ctx, __u32 token)
{
	__u32 now = fw_now();
	struct fw_crossing *crossing = fw_crossing_of(token, now);

	if (!crossing)
		return FW_R_LEARN_STALE_TOKEN;
	/* it went through another bridge, of VLANs of its port */
	if (!(crossing->flags & FW_CROSSING_DOWN) && ctx->ingress_ifindex != crossing->key.port)
		return FW_R_LEARN_CHANGED;
	if (crossing->key.macs[0] & 1)
		return fw_group_left(ctx, token);
	return fw_came_out(ctx, token, crossing, fw_skb_tag(ctx), now);
}

/*
 * tc ingress of a bridge, or of a VLAN of it: what a port of it handed up. True if XDP has seen the
 * frame there, under the bridge's index. As above.
 */
int fw_crossed_up(struct __sk_buff *ctx, __u32 token);

__noinline int fw_crossed_up(struct __sk_buff *ctx, __u32 token)
{
	const struct fw_tag none = {};
	__u32 now = fw_now();
	struct fw_crossing *crossing;

	if (token < FW_CROSSING_INDEX || token >= FW_CROSSING_NONE)
		return token == FW_CROSSING_NONE;
	crossing = fw_crossing_of(token, now);
	if (!crossing || crossing->flags & FW_CROSSING_DOWN)
		return 0;
	if (fw_group_up(ctx, token))
		return 0;
	if (fw_ctl.learn)
		fw_count(fw_came_out(ctx, token, crossing, none, now));
	return !!(crossing->flags & FW_CROSSING_SEEN);
}

#endif
