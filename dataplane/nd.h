/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Neighbour discovery, which no limit may touch. */
#ifndef FW_ND_H
#define FW_ND_H

#include "parse.h"

enum fw_nd_const {
	/* RFC 4861: router and neighbour solicitation and advertisement, redirect */
	FW_ND_FIRST = 133,
	FW_ND_LAST = 137,
	FW_ND_HOP_LIMIT = 255,
};

/* Neighbour discovery: without it IPv6 ends. Only a host of the link can send it. */
static __always_inline int fw_is_nd(const void *data, const void *end, const struct fw_pkt *p)
{
	const __u8 *type = data + FW_ETH_LEN + FW_IP6_LEN;

	if (p->family != FW_AF_INET6 || p->proto != FW_PROTO_ICMP6 || p->ttl != FW_ND_HOP_LIMIT)
		return 0;
	return (const void *)(type + 1) <= end && *type >= FW_ND_FIRST && *type <= FW_ND_LAST;
}

#endif
