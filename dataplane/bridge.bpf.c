/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP at a port of a bridge: what is bridged, and what the router itself is to route. */
#include "target/xdp.h"
#include "target/conn.h"
#include "bridge.h"
#include "group.h"
#include "guard.h"

/* The bridge would learn its addresses, and send it to all. */
#define FW_NO_OUTPUT XDP_DROP
#include "forward.h"

/*
 * To the router itself: the bridge, or a VLAN of it, would show it without tags. If the
 * kernel is to have it, it gets its tag back.
 */
static __always_inline int fw_up(struct xdp_md *ctx, const struct fw_tag *tag, __u32 port)
{
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	const struct fw_tag none = {};
	const struct fw_nexthop *nh;
	int verdict;

	if (fw_unlikely(!fw_retag(ctx, tag, &none))) {
		fw_count(FW_R_REDIRECT);
		return XDP_PASS;
	}
	nh = fw_hit(ctx, port, &missed);
	if (fw_likely(nh))
		return fw_send(nh);
	verdict = fw_no_hit(ctx, port, missed);
	if (verdict == XDP_PASS && !fw_retag(ctx, &none, tag))
		return XDP_ABORTED;
	return verdict;
}

/* What the kernel is given at once for a frame to a group; FW_R_NONE: it has a path that it may
 * take. */
static __always_inline enum fw_reason fw_group_permit(struct fw_path *path, struct xdp_md *ctx,
						      const struct fw_stations *key, __u32 *index,
						      __u32 now)
{
	__u32 at = FW_ETH_LEN + (fw_tag_is_none(&key->tag) ? 0 : FW_TAG_LEN);
	const void *data = fw_data(ctx);
	struct fw_group group;
	__u16 ethertype_be;
	enum fw_reason reason;

	if (data + at + FW_IP6_LEN > fw_data_end(ctx))
		return FW_R_SHORT;
	ethertype_be = *(const fw_u16_any *)(data + at - 2);
	if (!fw_group_read(&group, data + at, ethertype_be) ||
	    !fw_group_whole(data + at, ethertype_be, fw_frame_len(ctx) - at))
		return FW_R_BRIDGED_GROUP;
	reason = fw_path_permit(path, fw_frame_len(ctx), now);
	if (reason)
		return reason;
	*index = path->port;
	/* read first: as below */
	asm volatile("" : "+r"(index) : : "memory");
	if (fw_stations_differ(&path->key, key) || fw_group_differs(&path->group, &group))
		return FW_R_BRIDGED_GROUP;
	return FW_R_NONE;
}

/* To a group: a copy for each port at which the kernel was seen to send one. */
static __noinline int fw_to_group(struct xdp_md *ctx, const struct fw_stations *key, __u32 now)
{
	const struct fw_tag none = {};
	const struct fw_nexthop *nh;
	enum fw_reason reason;
	struct fw_path *path;
	void *data, *end;
	__u32 index = 0, kind;

	reason = FW_R_MULTICAST;
	if (!(fw_ctl.bridges & FW_BRIDGES_GROUPS))
		goto punt;
	reason = FW_R_BRIDGED_GROUP;
	path = bpf_map_lookup_elem(&fw_paths, key);
	if (!path)
		goto punt;
	reason = fw_group_permit(path, ctx, key, &index, now);
	if (reason)
		goto punt;
	nh = fw_nexthop_get(index);
	reason = FW_R_NEXTHOP;
	kind = FW_READ_ONCE(nh->valid);
	if (!fw_is_olist(kind))
		goto punt;
	reason = FW_R_REDIRECT;
	if (!fw_retag(ctx, &key->tag, &none))
		goto punt;
	if (!fw_copy_mark(ctx, nh->devmap_slot, kind, &data, &end)) {
		if (!fw_retag(ctx, &none, &key->tag))
			return XDP_ABORTED;
		goto punt;
	}
	fw_path_account(path, fw_frame_len(ctx));
	return fw_send_copies(nh);
punt:
	fw_count(reason);
	return XDP_PASS;
}

SEC("xdp")
int freeway_bridge(struct xdp_md *ctx)
{
	__u32 now = fw_now(), len = fw_frame_len(ctx);
	struct fw_stations key;
	struct fw_path *path;
	struct fw_tag tag_out;
	enum fw_reason reason = fw_gate(now);
	__u32 slot, port;

	if (fw_unlikely(reason))
		goto punt;
	reason = FW_R_SHORT;
	if (fw_unlikely(!fw_stations_of(&key, ctx)))
		goto punt;
	if (key.macs[0] & 1)
		return fw_to_group(ctx, &key, now);
	path = bpf_map_lookup_elem(&fw_paths, &key);
	reason = FW_R_BRIDGED;
	if (!path || fw_is_watched(&key, ctx))
		goto punt;
	reason = fw_path_permit(path, len, now);
	if (fw_unlikely(reason))
		goto punt;
	slot = path->devmap_slot;
	port = path->port;
	tag_out = path->tag;
	/* read first, or they may be those of another path: BPF's maps reuse at once what is
	 * deleted */
	asm volatile("" : "+r"(slot), "+r"(port) : : "memory");
	reason = FW_R_BRIDGED;
	if (fw_unlikely(fw_stations_differ(&path->key, &key)))
		goto punt;
	if (slot == FW_PATH_UP)
		return fw_up(ctx, &key.tag, port);
	reason = FW_R_REDIRECT;
	if (fw_unlikely(!fw_retag(ctx, &key.tag, &tag_out)))
		goto punt;
	fw_path_account(path, len);
	/* with another tag it is of another VLAN for the kernel */
	return bpf_redirect_map(&fw_ports, slot,
				fw_tag_differs(&key.tag, &tag_out) ? XDP_DROP : XDP_PASS);
punt:
	fw_count(reason);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
