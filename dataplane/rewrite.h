/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The learned action, applied in place. */
#ifndef FW_REWRITE_H
#define FW_REWRITE_H

#include "abi.h"
#include "csum.h"
#include "guard.h"
#include "parse.h"

static __always_inline void fw_rewrite_l2(void *data, const struct fw_nexthop *nh)
{
	*(fw_u64_any *)data = *(const fw_u64_any *)nh->l2;
	*(fw_u32_any *)(data + 8) = *(const fw_u32_any *)(nh->l2 + 8);
	*(fw_u16_any *)(data + 12) = *(const fw_u16_any *)(nh->l2 + 12);
}

/* Writes nothing if the header is not all there. */
static __always_inline enum fw_reason fw_rewrite_l4(struct fw_l4 *l4, const void *end,
						    const struct fw_flow *f, __u8 proto)
{
	if (proto == FW_PROTO_TCP) {
		if ((void *)l4 + FW_TCP_LEN > end)
			return FW_R_REDIRECT;
		l4->tcp.check = fw_csum_apply(l4->tcp.check, f->l4_delta);
	} else {
		if ((void *)l4 + FW_UDP_LEN > end)
			return FW_R_REDIRECT;
		l4->udp.check = fw_csum_apply_udp(l4->udp.check, f->l4_delta);
	}
	*(fw_u32_any *)&l4->sport_be = *(const fw_u32_any *)&f->sport_be;
	return FW_R_NONE;
}

static __always_inline enum fw_reason fw_rewrite4(void *data, void *end, const struct fw_pkt *p,
						  const struct fw_flow *f)
{
	struct fw_ip4 *ip = data + FW_ETH_LEN;
	struct fw_l4 *l4 = (void *)(ip + 1);

	if ((void *)l4 > end)
		return FW_R_REDIRECT;
	if (f->flags & FW_FLOW_NAT) {
		if (fw_rewrite_l4(l4, end, f, p->proto))
			return FW_R_REDIRECT;
		*(fw_u64_any *)&ip->saddr_be = *(const fw_u64_any *)&f->saddr_be;
	}
	ip->ttl = f->ttl_out;
	ip->tos = f->dscp_out | (p->tos & FW_TOS_ECN);
	ip->check = fw_csum_apply(ip->check, f->l3_delta);
	return FW_R_NONE;
}

static __always_inline enum fw_reason fw_rewrite6(void *data, void *end, const struct fw_pkt *p,
						  const struct fw_flow *f)
{
	struct fw_ip6 *ip = data + FW_ETH_LEN;
	struct fw_l4 *l4 = (void *)(ip + 1);
	__u32 word0;

	if ((void *)l4 > end)
		return FW_R_REDIRECT;
	if (f->flags & FW_FLOW_NAT) {
		const fw_u64_any *from = (const void *)f->saddr6_be;
		fw_u64_any *to = (void *)ip->saddr_be;

		if (fw_rewrite_l4(l4, end, f, p->proto))
			return FW_R_REDIRECT;
		to[0] = from[0];
		to[1] = from[1];
		to[2] = from[2];
		to[3] = from[3];
	}
	ip->hop_limit = f->ttl_out;
	if (f->dscp_out != f->dscp_in) {
		word0 = fw_ntohl(ip->word0_be) & ~((__u32)FW_TOS_DSCP << 20);
		ip->word0_be = fw_htonl(word0 | (__u32)f->dscp_out << 20);
	}
	return FW_R_NONE;
}

#endif
