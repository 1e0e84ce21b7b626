/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bridged frames in XDP: a frame's path, whether it holds, and the tag that the frame gets.
 */
#ifndef FW_BRIDGE_H
#define FW_BRIDGE_H

#include "path.h"

/* The path's key; false if the frame is too short for one. */
static __always_inline int fw_stations_of(struct fw_stations *key, const fw_ctx *ctx)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	fw_u32_any *to = (void *)key->macs;
	const fw_u32_any *from = data;

	/* long enough for a header also when a tag was taken off */
	if (data + FW_ETH_LEN + 2 * FW_TAG_LEN > end)
		return 0;
	key->port = fw_port(ctx);
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	*(fw_u32_any *)&key->tag = 0;
	if (fw_is_tag(*(const fw_u16_any *)(data + FW_ETH_MAC2)))
		*(fw_u32_any *)&key->tag = from[3];
	return 1;
}

/* What the bridge or a daemon looks at: ARP, and 802.1X. */
static __always_inline int fw_is_watched(const struct fw_stations *key, const fw_ctx *ctx)
{
	const void *data = fw_data(ctx);
	__u32 at = FW_ETH_MAC2 + (fw_tag_is_none(&key->tag) ? 0 : FW_TAG_LEN);
	__u16 ethertype_be;

	if (data + FW_ETH_LEN + FW_TAG_LEN > fw_data_end(ctx))
		return 1;
	ethertype_be = *(const fw_u16_any *)(data + at);
	return ethertype_be == fw_htons(FW_ETH_ARP) || ethertype_be == fw_htons(FW_ETH_EAPOL);
}

/*
 * At intervals a frame goes through the kernel, which so learns that the station lives. It
 * displaces the frame behind its successors: for a while it waits for a gap or a short one.
 */
static __always_inline enum fw_reason fw_path_revalidate(struct fw_path *path, __u32 len, __u32 now)
{
	enum { LEN_SHORT = 128 };

	if (path->misses >= FW_MISSES_MAX) {
		FW_WRITE_ONCE(path->epoch, 0);
		return FW_R_EPOCH;
	}
	if (!path->misses && len >= LEN_SHORT &&
	    !fw_reached(now, path->reval_tick + (path->interval >> 2)) &&
	    now - path->used_tick < 1 + (fw_cfg.hz + 999) / 1000)
		return FW_R_NONE;
	path->misses++;
	path->reval_tick = now + fw_cfg.hz / 4;
	return FW_R_REVALIDATE;
}

static __always_inline enum fw_reason fw_path_permit(struct fw_path *path, __u32 len, __u32 now)
{
	enum fw_reason reason = FW_R_NONE;

	if (fw_unlikely(FW_READ_ONCE(path->epoch) != fw_ctl.epoch))
		return FW_R_EPOCH;
	if (fw_unlikely(len > path->len_max))
		return FW_R_LENGTH;
	if (fw_unlikely(fw_reached(now, path->reval_tick)))
		reason = fw_path_revalidate(path, len, now);
	/* written once a tick: others read this line */
	if (!reason && path->used_tick != now)
		path->used_tick = now;
	return reason;
}

/* Puts a tag on, takes it off, or another one instead; false: the frame is as it was. */
static __always_inline int fw_retag(fw_ctx *ctx, const struct fw_tag *from, const struct fw_tag *to)
{
	const int had = !fw_tag_is_none(from), has = !fw_tag_is_none(to);
	void *data = fw_data(ctx);
	__u64 mac8;
	__u32 mac4;

	if (fw_likely(!fw_tag_differs(from, to)))
		return 1;
	if (data + FW_ETH_LEN + FW_TAG_LEN > fw_data_end(ctx))
		return 0;
	mac8 = *(fw_u64_any *)data;
	mac4 = *(fw_u32_any *)(data + 8);
	if (had != has) {
		if (fw_adjust_head(ctx, had ? FW_TAG_LEN : -(int)FW_TAG_LEN))
			return 0;
		data = fw_data(ctx);
		if (data + FW_ETH_LEN + FW_TAG_LEN > fw_data_end(ctx))
			return 0;
		*(fw_u64_any *)data = mac8;
		*(fw_u32_any *)(data + 8) = mac4;
	}
	if (has)
		*(fw_u32_any *)(data + FW_ETH_MAC2) = *(const fw_u32_any *)to;
	return 1;
}

static __always_inline void fw_path_account(const struct fw_path *path, __u32 len)
{
	__u32 place = fw_cpu_id() * FW_PATHS_MAX + (path->count & (FW_PATHS_MAX - 1));
	struct fw_path_count *count = bpf_map_lookup_elem(&fw_path_counts, &place);

	if (count) {
		count->packets++;
		count->bytes += len;
	}
}

#endif
