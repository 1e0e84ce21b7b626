/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP at a port of a bridge: what is bridged, and what the router itself is to route. */
#include "target/xdp.h"
#include "target/conn.h"
#include "bridge.h"

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
	reason = FW_R_MULTICAST;
	if (key.macs[0] & 1)
		goto punt;
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
