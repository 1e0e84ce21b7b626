/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What lies behind the IP header, by protocol: what tells a flow's packets there,
 * and which checksum covers what. Four octets name a flow beside its addresses, in
 * the place of the ports:
 *
 *   TCP, UDP     ports
 *   ESP          SPI (RFC 4303)
 *   GRE          flags, version 0, and protocol (RFC 2784, 2890)
 *   ICMP echoes  identifier, then type and code (RFC 792, 4443), as conntrack has them
 */
#ifndef FW_L4_H
#define FW_L4_H

#include "abi.h"
#include "target/bytes.h"

enum fw_l4_const {
	FW_PROTO_ICMP = 1,
	FW_PROTO_TCP = 6,
	FW_PROTO_UDP = 17,
	FW_PROTO_ROUTING = 43,
	FW_PROTO_FRAG6 = 44,
	FW_PROTO_GRE = 47,
	FW_PROTO_ESP = 50,
	FW_PROTO_AH = 51,
	FW_PROTO_ICMP6 = 58,
	FW_PROTO_DSTOPTS = 60,
	FW_TCP_LEN = 20,
	FW_UDP_LEN = 8,
	/* as much of any flow's packet must be there */
	FW_L4_MIN = FW_UDP_LEN,
	/* types: they differ between question and answer in these bits */
	FW_ICMP_ECHO = 8,
	FW_ICMP6_ECHO = 128,
	FW_ICMP6_ECHO_REPLY = 129,
	/* version 0 (1 is PPTP's, whose calls conntrack's helper follows) */
	FW_GRE_VERSION = 0x0007,
};

enum fw_tcp_flag {
	FW_TCP_FIN = 0x01,
	FW_TCP_SYN = 0x02,
	FW_TCP_RST = 0x04,
	FW_TCP_ACK = 0x10,
};

struct fw_l4 {
	__u16 sport_be;
	__u16 dport_be;
	union {
		struct {
			__u32 seq_be;
			__u32 ack_be;
			__u8 doff;
			__u8 flags;
			__u16 window_be;
			__u16 check;
			__u16 urgent_be;
		} FW_WIRE tcp;
		struct {
			__u16 len_be;
			__u16 check;
		} udp;
	};
} FW_WIRE;

struct fw_icmp {
	__u8 type;
	__u8 code;
	__u16 check;
	__u16 id_be;
	__u16 seq_be;
} FW_WIRE;

static __always_inline int fw_has_ports(__u8 proto)
{
	return proto == FW_PROTO_TCP || proto == FW_PROTO_UDP;
}

static __always_inline int fw_is_icmp(__u8 proto)
{
	return proto == FW_PROTO_ICMP || proto == FW_PROTO_ICMP6;
}

/* Is there a checksum that addresses or ports have a part in? */
static __always_inline int fw_has_check(__u8 proto)
{
	return fw_has_ports(proto) || fw_is_icmp(proto);
}

/* Is it over the pseudo header too? */
static __always_inline int fw_sums_addresses(__u8 proto)
{
	return fw_has_ports(proto) || proto == FW_PROTO_ICMP6;
}

/* Where it is. */
static __always_inline __u32 fw_check_at(__u8 proto)
{
	if (proto == FW_PROTO_TCP)
		return __builtin_offsetof(struct fw_l4, tcp.check);
	if (proto == FW_PROTO_UDP)
		return __builtin_offsetof(struct fw_l4, udp.check);
	return __builtin_offsetof(struct fw_icmp, check);
}

/* The four octets, as they lie in memory; FW_L4_MIN octets are there. */
static __always_inline __u32 fw_l4_id(const void *l4, __u8 proto)
{
	const fw_u32_any *first = l4;
	const struct fw_icmp *icmp = l4;
	const fw_u16_any *type_code = l4;

	if (!fw_is_icmp(proto))
		return *first;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (__u32)*type_code << 16 | icmp->id_be;
#else
	return (__u32)icmp->id_be << 16 | *type_code;
#endif
}

/* What else tells one packet of a flow from the next, and no kernel changes: a sequence number, or
 * what GRE has behind its protocol. TCP has more. */
static __always_inline __u32 fw_l4_serial(const void *l4, __u8 proto)
{
	if (proto == FW_PROTO_UDP)
		return 0;
	if (fw_is_icmp(proto))
		return ((const struct fw_icmp *)l4)->seq_be;
	return *(const fw_u32_any *)(l4 + 4);
}

/* A question or an answer, in the family that it is of. */
static __always_inline int fw_is_echo(const struct fw_icmp *icmp, __u8 family, __u8 proto)
{
	if (icmp->code || (family == FW_AF_INET) != (proto == FW_PROTO_ICMP))
		return 0;
	if (proto == FW_PROTO_ICMP)
		return icmp->type == FW_ICMP_ECHO || icmp->type == 0;
	return icmp->type == FW_ICMP6_ECHO || icmp->type == FW_ICMP6_ECHO_REPLY;
}

#endif
