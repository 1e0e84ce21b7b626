/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Multicast: frames to a group leave at each port of a list. What is the same for all
 * is rewritten once, ahead of the copying; the link layer's part is each port's own.
 */
#ifndef FW_OLIST_H
#define FW_OLIST_H

#include "abi.h"
#include "framing.h"
#include "guard.h"
#include "parse.h"
#include "rewrite.h"

/* What a copy that leaves at a device becomes; NULL: the list has no such device. */
static __always_inline const struct fw_nexthop *fw_leg_at(__u32 olist, __u32 device)
{
	const struct fw_olist *list = fw_olist_get(olist);

	if (!list)
		return NULL;
	for (__u32 i = 0; i < FW_OLIST_MAX && i < list->count; i++)
		if (list->device[i] == device)
			return &list->leg[i];
	return NULL;
}

/* The copy becomes that port's. */
static __always_inline int fw_leg_write(fw_ctx *ctx, const struct fw_nexthop *leg)
{
	__u32 len_l3 = fw_frame_len(ctx) - FW_ETH_LEN;
	void *data, *end;

	if (fw_likely(!fw_leaves_framed(leg))) {
		data = fw_data(ctx);
		if (data + FW_ETH_LEN > fw_data_end(ctx))
			return 0;
		fw_link_write(data, leg->l2);
		return 1;
	}
	if (!fw_frame_room(ctx, leg, &data, &end) || data + FW_ETH_LEN > end)
		return 0;
	fw_link_write(data, leg->l2);
	return fw_frame(ctx, leg, len_l3);
}

#endif
