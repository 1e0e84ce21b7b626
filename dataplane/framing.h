/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * 802.1Q tags, one or two: taken off ahead of the flow table, so that all behind it
 * sees what the VLAN's own device would show, and put on again for the wire.
 */
#ifndef FW_FRAMING_H
#define FW_FRAMING_H

#include "abi.h"
#include "parse.h"

/* MAC addresses, and tags between them and what is there. The caller has made the room. */
static __always_inline void fw_head_write(void *data, const void *macs, const struct fw_tag *tag,
					  __u32 tags_len)
{
	const fw_u32_any *words = (const void *)tag;

	*(fw_u64_any *)data = *(const fw_u64_any *)macs;
	*(fw_u32_any *)(data + 8) = *(const fw_u32_any *)(macs + 8);
	if (tags_len)
		*(fw_u32_any *)(data + FW_ETH_MAC2) = words[0];
	if (tags_len > FW_TAG_LEN)
		*(fw_u32_any *)(data + FW_ETH_MAC2 + FW_TAG_LEN) = words[1];
}

#if !FW_TARGET_IS_TC
/* Priority and DEI are not the VLAN's name. */
enum { FW_TCI_VLAN = 0x0fff };

/* How a tagged frame begins. */
struct fw_head {
	__u64 mac8; /* the first octets of both addresses, */
	__u32 mac4; /* and the last */
	struct fw_tag tag[FW_TAGS_MAX];
	__u32 tags_len;
};

/* For frames that are no plain hit. */
static __always_inline int fw_is_tagged(const fw_ctx *ctx)
{
	const void *data = fw_data(ctx);

	return data + FW_ETH_LEN <= fw_data_end(ctx) &&
	       fw_is_tag(*(const fw_u16_any *)(data + FW_ETH_MAC2));
}

/* The device that would take the tags off, which are then off; 0 if there is none, the frame being
 * as it was. */
static __noinline __u32 fw_untag(fw_ctx *ctx, struct fw_head *head)
{
	struct fw_framing framing = {.port = fw_port(ctx)};
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const fw_u32_any *word = data + FW_ETH_MAC2;
	fw_u32_any *tag = (void *)head->tag;
	const __u32 *port;
	void *inner;

	/* room for an IP packet, too */
	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > end)
		return 0;
	head->mac8 = *(const fw_u64_any *)data;
	head->mac4 = *(const fw_u32_any *)(data + 8);
	tag[0] = word[0];
	tag[1] = 0;
	head->tags_len = FW_TAG_LEN;
	if (fw_is_tag(*(const fw_u16_any *)(word + 1))) {
		tag[1] = word[1];
		head->tags_len = 2 * FW_TAG_LEN;
	}
	for (int i = 0; i < FW_TAGS_MAX; i++) {
		framing.tag[i].tpid_be = head->tag[i].tpid_be;
		framing.tag[i].tci_be = head->tag[i].tci_be & fw_htons(FW_TCI_VLAN);
	}
	port = fw_framing_get(&framing);
	if (!port || fw_adjust_head(ctx, head->tags_len))
		return 0;
	inner = fw_data(ctx);
	if (inner + FW_ETH_LEN > fw_data_end(ctx))
		return 0;
	fw_head_write(inner, &head->mac8, NULL, 0);
	return *port;
}

/* As it came in. False if the frame is lost, for which there is no reason: the room was there. */
static __always_inline int fw_retag(fw_ctx *ctx, const struct fw_head *head)
{
	void *data;

	if (fw_adjust_head(ctx, -(int)head->tags_len))
		return 0;
	data = fw_data(ctx);
	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > fw_data_end(ctx))
		return 0;
	fw_head_write(data, &head->mac8, head->tag, head->tags_len);
	return 1;
}
#endif

/* tc sends through the VLAN's device, which tags. */
static __always_inline int fw_leaves_tagged(const struct fw_nexthop *nh)
{
	return !FW_TARGET_IS_TC && nh->tags_len;
}

/* Room ahead of the frame, which is not yet rewritten; without it the frame is as it was. */
static __always_inline int fw_tag_room(fw_ctx *ctx, const struct fw_nexthop *nh, void **data,
				       void **end)
{
	__u32 len = nh->tags_len & (3 * FW_TAG_LEN);

	if (fw_adjust_head(ctx, -(int)len))
		return 0;
	*data = fw_data(ctx) + len;
	*end = fw_data_end(ctx);
	return 1;
}

/* The rewritten frame gets its tags. */
static __always_inline int fw_tag(fw_ctx *ctx, const struct fw_nexthop *nh)
{
	void *data = fw_data(ctx);

	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > fw_data_end(ctx))
		return 0;
	fw_head_write(data, nh->l2, nh->tag, nh->tags_len);
	return 1;
}

#endif
