/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What frames have around IP on their way through another device: one or two 802.1Q
 * tags, a PPPoE session's header. Taken off ahead of the flow table, so that all
 * behind it sees what the device of the VLAN or session would show, and put on
 * again for the wire.
 */
#ifndef FW_FRAMING_H
#define FW_FRAMING_H

#include "abi.h"
#include "parse.h"

/* PPPoE (RFC 2516) and PPP protocol field (RFC 1661), from the Ethernet type on. */
enum fw_pppoe_const {
	FW_ETH_PPPOE = 0x8864,
	FW_PPPOE_DATA = 0x1100, /* version, type, code */
	FW_PPP_IP = 0x0021,
	FW_PPP_IP6 = 0x0057,
	FW_PPP_LEN = 2,
	/* struct fw_pppoe, which may be padded */
	FW_PPPOE_HEAD_LEN = 10,
	/* for the verifier: at most two tags, and a session */
	FW_TAGS_MASK = 3 * FW_TAG_LEN,
	FW_OUTER_MASK = 7 * FW_TAG_LEN,
};

struct fw_pppoe {
	__u16 ethertype_be;
	__u16 version_code_be;
	__u16 session_be;
	__u16 len_be; /* of what follows */
	__u16 proto_be;
} FW_WIRE;

static __always_inline __u32 fw_outer_len(__u32 tags_len, __u32 session)
{
	return tags_len + (session ? FW_PPPOE_LEN : 0);
}

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

/* A session's header around a packet whose Ethernet type stands where PPP's protocol goes. */
static __always_inline void fw_pppoe_write(struct fw_pppoe *pppoe, __u32 session, __u32 len_l3)
{
	const int v6 = pppoe->proto_be == fw_htons(FW_ETH_IP6);

	pppoe->ethertype_be = fw_htons(FW_ETH_PPPOE);
	pppoe->version_code_be = fw_htons(FW_PPPOE_DATA);
	pppoe->session_be = fw_htons(session);
	pppoe->len_be = fw_htons(len_l3 + FW_PPP_LEN);
	pppoe->proto_be = v6 ? fw_htons(FW_PPP_IP6) : fw_htons(FW_PPP_IP);
}

#if !FW_TARGET_IS_TC
/* Priority and DEI are not the VLAN's name. */
enum { FW_TCI_VLAN = 0x0fff };

/* How a framed packet begins. */
struct fw_head {
	__u64 mac8; /* the first octets of both addresses, */
	__u32 mac4; /* and the last */
	struct fw_tag tag[FW_TAGS_MAX];
	__u32 tags_len;
	__u32 session; /* as in struct fw_framing */
	__u32 len_l3;
};

/* For frames that are no plain hit. */
static __always_inline int fw_is_framed(const fw_ctx *ctx)
{
	const void *data = fw_data(ctx);
	__u16 ethertype_be;

	if (data + FW_ETH_LEN > fw_data_end(ctx))
		return 0;
	ethertype_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
	return fw_is_tag(ethertype_be) || ethertype_be == fw_htons(FW_ETH_PPPOE);
}

/* False if the header is not that of a session's IP packet, or is not as long as that says. */
static __always_inline int fw_pppoe_read(const struct fw_pppoe *pppoe, struct fw_head *head)
{
	const void *ip = (const void *)pppoe + FW_PPPOE_HEAD_LEN;

	if (pppoe->version_code_be != fw_htons(FW_PPPOE_DATA))
		return 0;
	if (pppoe->proto_be == fw_htons(FW_PPP_IP))
		head->len_l3 = fw_ntohs(((const struct fw_ip4 *)ip)->tot_len_be);
	else if (pppoe->proto_be == fw_htons(FW_PPP_IP6))
		head->len_l3 = fw_ntohs(((const struct fw_ip6 *)ip)->payload_len_be) + FW_IP6_LEN;
	else
		return 0;
	head->session = FW_SESSION | fw_ntohs(pppoe->session_be);
	return fw_ntohs(pppoe->len_be) == head->len_l3 + FW_PPP_LEN;
}

/* A session's frames come from its other end, and to this one: pppoe_rcv(). */
static __always_inline int fw_framed_so(const struct fw_framed *framed, const struct fw_head *head)
{
	const fw_u64_any *mac8 = (const void *)framed->macs;
	const fw_u32_any *mac4 = (const void *)(framed->macs + 8);

	return !head->session || !((*mac8 ^ head->mac8) | (*mac4 ^ head->mac4));
}

/* The device above `port` that would take it all off, which is then off; 0 if there is none, the
 * frame being as it was. */
static __noinline FW_UNUSED __u32 fw_unframe(fw_ctx *ctx, __u32 port, struct fw_head *head)
{
	struct fw_framing framing = {.port = port};
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const fw_u32_any *word = data + FW_ETH_MAC2;
	fw_u32_any *tag = (void *)head->tag;
	const struct fw_framed *framed;
	const struct fw_pppoe *pppoe;
	__u16 ethertype_be;
	void *inner;

	/* room for an IP packet, too */
	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > end)
		return 0;
	head->mac8 = *(const fw_u64_any *)data;
	head->mac4 = *(const fw_u32_any *)(data + 8);
	head->tags_len = 0;
	head->session = 0;
	tag[0] = 0;
	tag[1] = 0;
	if (fw_is_tag(*(const fw_u16_any *)word)) {
		tag[0] = word[0];
		head->tags_len = FW_TAG_LEN;
		if (fw_is_tag(*(const fw_u16_any *)(word + 1))) {
			tag[1] = word[1];
			head->tags_len = 2 * FW_TAG_LEN;
		}
	}
	for (int i = 0; i < FW_TAGS_MAX; i++) {
		framing.tag[i].tpid_be = head->tag[i].tpid_be;
		framing.tag[i].tci_be = head->tag[i].tci_be & fw_htons(FW_TCI_VLAN);
	}
	pppoe = data + FW_ETH_MAC2 + head->tags_len;
	if ((const void *)pppoe + FW_PPPOE_HEAD_LEN + FW_IP4_LEN > end)
		return 0;
	if (pppoe->ethertype_be == fw_htons(FW_ETH_PPPOE)) {
		if (!fw_pppoe_read(pppoe, head))
			return 0;
		framing.session = head->session;
	}
	framed = fw_framing_get(&framing);
	if (!framed || !fw_framed_so(framed, head) ||
	    fw_adjust_head(ctx, fw_outer_len(head->tags_len, head->session)))
		return 0;
	inner = fw_data(ctx);
	if (inner + FW_ETH_LEN > fw_data_end(ctx))
		return 0;
	if (!head->session) {
		fw_head_write(inner, &head->mac8, NULL, 0);
		return framed->port;
	}
	/* as the session's device shows it, which has no link layer */
	ethertype_be = *(fw_u16_any *)(inner + FW_ETH_MAC2) == fw_htons(FW_PPP_IP6)
			       ? fw_htons(FW_ETH_IP6)
			       : fw_htons(FW_ETH_IP);
	*(fw_u64_any *)inner = 0;
	*(fw_u32_any *)(inner + 8) = 0;
	*(fw_u16_any *)(inner + FW_ETH_MAC2) = ethertype_be;
	return framed->port;
}

/* As it came in. False if the frame is lost, for which there is no reason: the room was there. */
static __always_inline int fw_reframe(fw_ctx *ctx, const struct fw_head *head)
{
	struct fw_pppoe *pppoe;
	void *data;

	if (fw_adjust_head(ctx, -(int)fw_outer_len(head->tags_len, head->session)))
		return 0;
	data = fw_data(ctx);
	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > fw_data_end(ctx))
		return 0;
	fw_head_write(data, &head->mac8, head->tag, head->tags_len);
	if (!head->session)
		return 1;
	pppoe = data + FW_ETH_MAC2 + (head->tags_len & FW_TAGS_MASK);
	if ((void *)pppoe + FW_PPPOE_HEAD_LEN > fw_data_end(ctx))
		return 0;
	fw_pppoe_write(pppoe, head->session, head->len_l3);
	return 1;
}
#endif

/* tc sends through the device of the VLAN or session, which frames. */
static __always_inline int fw_leaves_framed(const struct fw_nexthop *nh)
{
	return !FW_TARGET_IS_TC && nh->outer_len;
}

/* Room ahead of the frame, which is not yet rewritten; without it the frame is as it was. */
static __always_inline int fw_frame_room(fw_ctx *ctx, const struct fw_nexthop *nh, void **data,
					 void **end)
{
	__u32 len = nh->outer_len & FW_OUTER_MASK;

	if (fw_adjust_head(ctx, -(int)len))
		return 0;
	*data = fw_data(ctx) + len;
	*end = fw_data_end(ctx);
	return 1;
}

/* The rewritten frame gets its tags and its session's header. */
static __always_inline int fw_frame(fw_ctx *ctx, const struct fw_nexthop *nh, __u32 len_l3)
{
	void *data = fw_data(ctx), *end = fw_data_end(ctx);
	__u32 tags_len = nh->tags_len & FW_TAGS_MASK;
	struct fw_pppoe *pppoe;

	if (data + FW_ETH_LEN + FW_TAGS_MAX * FW_TAG_LEN > end)
		return 0;
	fw_head_write(data, nh->l2, nh->tag, tags_len);
	if (!nh->session)
		return 1;
	pppoe = data + FW_ETH_MAC2 + tags_len;
	if ((void *)pppoe + FW_PPPOE_HEAD_LEN > end)
		return 0;
	fw_pppoe_write(pppoe, nh->session, len_l3);
	return 1;
}

#endif
