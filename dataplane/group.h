/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets to groups as a bridge sees them that snoops on IGMP and MLD: what it goes by, and
 * which ones it may be left out for. br_multicast_rcv() in the kernel has the rest: reports,
 * queries, and what is no proper packet.
 */
#ifndef FW_GROUP_H
#define FW_GROUP_H

#include "abi.h"
#include "csum.h"
#include "parse.h"

enum {
	FW_PROTO_IGMP = 2,
	/* That of the first extension header, in which MLD's messages have their alert. */
	FW_PROTO_HOP_BY_HOP = 0,
	FW_SCOPE_LINK = 2,
};

/* All of 224.0.0.0/4 but 224.0.0.0/24, which stays within the link. */
static __always_inline int fw_is_group4(__u32 daddr_be)
{
	__u32 daddr = fw_ntohl(daddr_be);

	return daddr >> 28 == 0xe && daddr >> 8 != 0xe00000;
}

/* Of ff00::/8 what reaches further than the link. */
static __always_inline int fw_is_group6(__u32 daddr_be)
{
	__u32 daddr = fw_ntohl(daddr_be);

	return daddr >> 24 == 0xff && (daddr >> 16 & 0xf) > FW_SCOPE_LINK;
}

/*
 * Source and group of a packet, of whose header 40 octets are there; false if it is none to a
 * group, or one that the bridge itself may be meant by.
 */
static __always_inline int fw_group_read(struct fw_group *group, const void *packet,
					 __u16 ethertype_be)
{
	const struct fw_ip4 *ip4 = packet;
	const struct fw_ip6 *ip6 = packet;

	__builtin_memset(group, 0, sizeof(*group));
	if (ethertype_be == fw_htons(FW_ETH_IP)) {
		group->saddr_be[0] = ip4->saddr_be;
		group->daddr_be[0] = ip4->daddr_be;
		return ip4->version_ihl == 0x45 && ip4->proto != FW_PROTO_IGMP &&
		       fw_is_group4(ip4->daddr_be);
	}
	if (ethertype_be != fw_htons(FW_ETH_IP6))
		return 0;
	for (int i = 0; i < 4; i++) {
		group->saddr_be[i] = ip6->saddr_be[i];
		group->daddr_be[i] = ip6->daddr_be[i];
	}
	return fw_ntohl(ip6->word0_be) >> 28 == 6 && ip6->next_header != FW_PROTO_HOP_BY_HOP &&
	       fw_is_group6(ip6->daddr_be[0]);
}

static __always_inline int fw_group_differs(const struct fw_group *a, const struct fw_group *b)
{
	__u32 differs = 0;

	for (int i = 0; i < 4; i++)
		differs |= (a->saddr_be[i] ^ b->saddr_be[i]) | (a->daddr_be[i] ^ b->daddr_be[i]);
	return differs != 0;
}

/* What the bridge drops is none: ip_mc_check_iphdr(), ipv6_mc_check_ip6hdr(). `room`: octets there
 * are behind the link layer's header. */
static __always_inline int fw_group_whole(const void *packet, __u16 ethertype_be, __u32 room)
{
	const struct fw_ip4 *ip4 = packet;
	const struct fw_ip6 *ip6 = packet;
	__u32 len;

	if (ethertype_be == fw_htons(FW_ETH_IP)) {
		len = fw_ntohs(ip4->tot_len_be);
		return len >= FW_IP4_LEN && len <= room && fw_csum_ip(packet) == 0xffff;
	}
	len = fw_ntohs(ip6->payload_len_be);
	return len && len + FW_IP6_LEN <= room;
}

#endif
