/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The learned action, applied in place to a frame whose headers are all there. */
#ifndef FW_REWRITE_H
#define FW_REWRITE_H

#include "abi.h"
#include "csum.h"
#include "guard.h"
#include "parse.h"

static __always_inline void fw_rewrite_check(struct fw_l4 *l4, const struct fw_flow *f, __u8 proto)
{
	struct fw_icmp *icmp = (void *)l4;

	if (FW_TARGET_IS_TC)
		; /* fw_resum() has seen to the checksum */
	else if (proto == FW_PROTO_TCP)
		l4->tcp.check = fw_csum_apply(l4->tcp.check, f->l4_delta);
	else if (proto == FW_PROTO_UDP)
		l4->udp.check = fw_csum_apply_udp(l4->udp.check, f->l4_delta);
	else if (fw_is_icmp(proto))
		icmp->check = fw_csum_apply(icmp->check, f->l4_delta);
}

static __always_inline void fw_rewrite_l4(struct fw_l4 *l4, const struct fw_flow *f, __u8 proto)
{
	struct fw_icmp *icmp = (void *)l4;

	fw_rewrite_check(l4, f, proto);
	if (fw_has_ports(proto))
		*(fw_u32_any *)&l4->sport_be = *(const fw_u32_any *)&f->sport_be;
	else if (fw_is_icmp(proto))
		icmp->id_be = f->sport_be;
}

#ifndef FW_TARGET_REWRITES_HEAD4
/* The link layer's header, and the TOS behind it, of which ECN stays. */
static __always_inline void fw_rewrite_head4(void *data, const struct fw_flow *f,
					     const struct fw_nexthop *nh)
{
	struct fw_ip4 *ip = data + FW_ETH_LEN;

	ip->tos = f->dscp_out | (ip->tos & FW_TOS_ECN);
	fw_link_write(data, nh->l2);
}

/* From the TTL on; 0: the caller writes them field by field. */
static __always_inline int fw_rewrite_out4(void *data, const struct fw_flow *f)
{
	(void)data;
	(void)f;
	return 0;
}
#endif

static __always_inline void fw_rewrite4(void *data, const struct fw_flow *f,
					const struct fw_nexthop *nh, __u8 proto)
{
	struct fw_ip4 *ip = data + FW_ETH_LEN;

	if (fw_has_ports(proto) && fw_rewrite_out4(data, f)) {
		if (f->flags & FW_FLOW_NAT)
			fw_rewrite_check((void *)(ip + 1), f, proto);
	} else {
		if (f->flags & FW_FLOW_NAT) {
			fw_rewrite_l4((void *)(ip + 1), f, proto);
			*(fw_u64_any *)(data + FW_ETH_LEN + FW_IP4_ADDRESSES) =
				*(const fw_u64_any *)&f->saddr_be;
		}
		ip->check = fw_csum_apply(ip->check, f->l3_delta);
		ip->ttl = f->ttl_out;
	}
	fw_rewrite_head4(data, f, nh);
}

static __always_inline void fw_rewrite6(void *data, const struct fw_flow *f,
					const struct fw_nexthop *nh, __u8 proto)
{
	struct fw_ip6 *ip = data + FW_ETH_LEN;
	__u32 word0;

	if (f->flags & FW_FLOW_NAT) {
		const fw_u64_any *from = (const void *)f->saddr6_be;
		fw_u64_any *to = data + FW_ETH_LEN + FW_IP6_ADDRESSES;

		fw_rewrite_l4((void *)(ip + 1), f, proto);
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
	fw_link_write(data, nh->l2);
}

static __always_inline int fw_rewrite_by(void *data, const void *end, const struct fw_flow *f,
					 const struct fw_nexthop *nh, const __u8 proto,
					 const int v6)
{
	const __u32 len_l4 = proto == FW_PROTO_TCP ? FW_TCP_LEN : FW_L4_MIN;

	if (data + FW_ETH_LEN + (v6 ? FW_IP6_LEN : FW_IP4_LEN) + len_l4 > end)
		return 0;
	if (v6)
		fw_rewrite6(data, f, nh, proto);
	else
		fw_rewrite4(data, f, nh, proto);
	return 1;
}

/* By a protocol that is a constant, or the verifier loses track of how much must be there; 0 if
 * it is not. */
static __always_inline int fw_rewrite(void *data, const void *end, const struct fw_flow *f,
				      const struct fw_nexthop *nh, __u8 proto, const int v6)
{
	if (proto == FW_PROTO_TCP)
		return fw_rewrite_by(data, end, f, nh, FW_PROTO_TCP, v6);
	if (proto == FW_PROTO_UDP)
		return fw_rewrite_by(data, end, f, nh, FW_PROTO_UDP, v6);
	if (fw_is_icmp(proto))
		return fw_rewrite_by(data, end, f, nh, FW_PROTO_ICMP, v6);
	return fw_rewrite_by(data, end, f, nh, FW_PROTO_ESP, v6);
}

#endif
