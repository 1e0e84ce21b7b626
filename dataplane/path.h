/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Paths of bridged frames: whose frames leave where, and with which tag.
 */
#ifndef FW_PATH_H
#define FW_PATH_H

#include "abi.h"
#include "fresh.h"
#include "offer.h"

enum { FW_MAC_LEN = 6, FW_ETH_ARP = 0x0806, FW_ETH_EAPOL = 0x888e };

/* Paths, by stations. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_PATHS_MAX);
	__type(key, struct fw_stations);
	__type(value, struct fw_path);
} FW_MAP(fw_paths);

/* What took each path, by CPU: several receive a station's frames. Resized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FW_PATHS_MAX);
	__type(key, __u32);
	__type(value, struct fw_path_count);
} FW_MAP(fw_path_counts);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FW_CROSSINGS);
	__type(key, __u32);
	__type(value, struct fw_crossing);
} FW_MAP(fw_crossings);

static __always_inline int fw_tag_differs(const struct fw_tag *a, const struct fw_tag *b)
{
	return *(const fw_u32_any *)a != *(const fw_u32_any *)b;
}

static __always_inline int fw_stations_differ(const struct fw_stations *a,
					      const struct fw_stations *b)
{
	const fw_u32_any *left = (const void *)a, *right = (const void *)b;
	__u32 differs = 0;

	for (__u32 i = 0; i < sizeof(*a) / sizeof(*left); i++)
		differs |= FW_READ_ONCE(left[i]) ^ right[i];
	return differs != 0;
}

static __always_inline int fw_tag_is_none(const struct fw_tag *tag)
{
	return !*(const fw_u32_any *)tag;
}

#endif
