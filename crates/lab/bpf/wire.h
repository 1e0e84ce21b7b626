/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Offsets of the Ethernet frames that the lab sends: no IP options, no extension headers. With a
 * VLAN tag each is TAG_LEN more. */
#ifndef LAB_WIRE_H
#define LAB_WIRE_H

#include <linux/types.h>

enum {
	ETH_LEN = 14,
	TAG_LEN = 4,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	TCP_LEN = 20,
	ETHERTYPE = 12,

	V4_TOT_LEN = ETH_LEN + 2,
	V4_FRAG = ETH_LEN + 6,
	V4_FRAG_PART = 0x3fff, /* more fragments, or an offset */
	V4_PROTO = ETH_LEN + 9,
	V4_CSUM = ETH_LEN + 10,
	V4_SADDR = ETH_LEN + 12,
	V4_DADDR = ETH_LEN + 16,
	V4_L4 = ETH_LEN + IPV4_LEN,

	V6_PAYLOAD_LEN = ETH_LEN + 4,
	V6_NEXT = ETH_LEN + 6,
	V6_SADDR = ETH_LEN + 8,
	V6_DADDR = ETH_LEN + 24,
	V6_L4 = ETH_LEN + IPV6_LEN,
};

enum {
	PROTO_TCP = 6,
	PROTO_UDP = 17,
	TYPE_IPV4 = 0x0800,
	TYPE_VLAN = 0x8100,
	TYPE_IPV6 = 0x86dd,
	TYPE_PPPOE = 0x8864,
	PPP_IPV4 = 0x0021,
	PPP_IPV6 = 0x0057,
};

enum {
	TCP_FLAG_SYN = 0x02,
	TCP_FLAG_ACK = 0x10,
};

#define U16(p, off) (*(__u16 *)((__u8 *)(p) + (off)))
#define U32(p, off) (*(__u32 *)((__u8 *)(p) + (off)))
#define U64(p, off) (*(__u64 *)((__u8 *)(p) + (off)))
#define U8(p, off)  (*((__u8 *)(p) + (off)))

/* One's complement sum of 16-bit words, folded; the result is not complemented. */
static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

#endif
