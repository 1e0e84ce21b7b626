/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What must be equal for the learned action to hold. */
#ifndef FW_GUARD_H
#define FW_GUARD_H

#include "abi.h"
#include "parse.h"

enum fw_tos_const {
	FW_TOS_DSCP = 0xfc,
	FW_TOS_ECN = 0x03,
	/* of an IPv6 header's first word */
	FW_IP6_ECN = FW_TOS_ECN << 20,
	FW_IP6_LABEL = 0x000fffff,
};

/* Of the frame's octets 8 to 23: IPv4 without ECN, length, identification, and the protocol, which
 * the key has; IPv6 without its header. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FW_HEAD4_MASK_8  0xfcffffffffffffffULL
#define FW_HEAD4_MASK_16 0x00ffff3f00000000ULL
#define FW_HEAD6_MASK_8  0x0000ffffffffffffULL
#else
#define FW_HEAD4_MASK_8  0xfffffffffffffffcULL
#define FW_HEAD4_MASK_16 0x000000003fffff00ULL
#define FW_HEAD6_MASK_8  0xffffffffffff0000ULL
#endif

/* Does it lead to a list of ports? */
static __always_inline int fw_is_olist(__u32 kind)
{
	return kind >= FW_NH_OLIST;
}

/* Multipath routes may choose by it: ip6_multipath_l3_keys() in net/ipv6/route.c. */
static __always_inline int fw_label_differs(const struct fw_flow *f, __u32 label_be)
{
	return !!((label_be ^ f->word0_in_be) & fw_htonl(FW_IP6_LABEL));
}

/* The whole raw L2 header: both MACs and the ethertype. */
static __always_inline int fw_l2_equal(const void *a, const void *b)
{
	const fw_u64_any *a8 = a, *b8 = b;
	const fw_u32_any *a4 = a + 8, *b4 = b + 8;
	const fw_u16_any *a2 = a + 12, *b2 = b + 12;

	return !((*a8 ^ *b8) | (*a4 ^ *b4) | (*a2 ^ *b2));
}

/* The same of a frame. */
static __always_inline int fw_link_equal(const void *data, const void *l2)
{
	return FW_TARGET_IS_RAW || fw_l2_equal(data, l2);
}

static __always_inline enum fw_reason fw_guard(const struct fw_flow *f, const void *data,
					       const struct fw_pkt *p)
{
	if (fw_unlikely(!fw_link_equal(data, f->l2_in)))
		return FW_R_GUARD_L2;
	if (fw_unlikely(p->ttl != f->ttl_in))
		return FW_R_GUARD_TTL;
	if (fw_unlikely((p->tos & FW_TOS_DSCP) != f->dscp_in))
		return FW_R_GUARD_DSCP;
	if (fw_unlikely(p->family == FW_AF_INET6 && fw_label_differs(f, fw_ip6_at(data)->word0_be)))
		return FW_R_GUARD_LABEL;
	if (fw_unlikely(p->len_segment > f->state.len_max))
		return FW_R_LENGTH;
	return FW_R_NONE;
}

#endif
