/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One pass over the headers; all later stages use what it found. */
#ifndef FW_PARSE_H
#define FW_PARSE_H

#include "abi.h"
#include "csum.h"
#include "l4.h"
#include "table.h"

enum fw_proto_const {
	FW_ETH_LEN = 14,
	FW_ETH_MAC2 = 12,
	FW_IP4_ADDRESSES = 12,
	FW_IP4_LEN = 20,
	FW_IP6_ADDRESSES = 8,
	FW_IP6_LEN = 40,
	FW_ETH_IP = 0x0800,
	FW_ETH_IP6 = 0x86dd,
	FW_ETH_8021Q = 0x8100,
	FW_ETH_8021AD = 0x88a8,
};

/* Of devices without a link layer, such as tun and WireGuard; target/raw.h. */
#ifndef FW_TARGET_IS_RAW
#define FW_TARGET_IS_RAW 0
#endif

struct fw_ip4 {
	__u8 version_ihl;
	__u8 tos;
	__u16 tot_len_be;
	__u16 id_be;
	__u16 frag_be;
	__u8 ttl;
	__u8 proto;
	__u16 check;
	__u32 saddr_be;
	__u32 daddr_be;
} FW_WIRE;

struct fw_ip6 {
	__u32 word0_be; /* version, traffic class, flow label */
	__u16 payload_len_be;
	__u8 next_header;
	__u8 hop_limit;
	__u32 saddr_be[4];
	__u32 daddr_be[4];
} FW_WIRE;

/* What the parser found. Offsets are from the start of the frame. */
struct fw_pkt {
	__u32 now_tick; /* one reading of the clock serves all stages */
	__u16 len_l3;
	__u16 len_segment; /* L3, of a segment of a merged frame; else len_l3 */
	__u16 l2_len;
	__u16 l4_check;
	__u8 family; /* FW_AF_*, 0 before the IP header was understood */
	__u8 proto;
	__u8 ttl;
	__u8 tos; /* or traffic class */
	__u8 tcp_flags;
	__u8 tuple;  /* addresses and ports were found: the packet can be named */
	__u8 owned;  /* its flow is this path's */
	__u8 framed; /* it was given room for a link layer's header: no longer the kernel's */
	__u8 copied; /* it leaves at each port of a list */
};

/* What the frame carries; the caller has seen to the link layer's header. */
static __always_inline __u16 fw_ethertype_be(const void *data, const void *end)
{
	const __u8 *version = data + FW_ETH_LEN;
	__u32 ethertype_be;

	if (!FW_TARGET_IS_RAW)
		return *(const fw_u16_any *)(data + FW_ETH_MAC2);
	if ((const void *)(version + 1) > end)
		return 0;
	ethertype_be = *version >> 4 == 6 ? fw_htons(FW_ETH_IP6) : fw_htons(FW_ETH_IP);
	/* or the compiler asks the version again later on, and the verifier loses track */
	asm volatile("" : "+r"(ethertype_be));
	return ethertype_be;
}

static __always_inline int fw_is_tag(__u16 ethertype_be)
{
	return ethertype_be == fw_htons(FW_ETH_8021Q) || ethertype_be == fw_htons(FW_ETH_8021AD);
}

/* To more than one receiver, says the link layer. */
static __always_inline int fw_link_multicast(const void *data)
{
	return !FW_TARGET_IS_RAW && (*(const __u8 *)data & 1);
}

/* To more than one receiver, says the address, of which the first four octets tell. */
static __always_inline int fw_is_group(__u32 daddr_be, __u8 family)
{
	__u32 daddr = fw_ntohl(daddr_be);

	return family == FW_AF_INET ? daddr >> 28 == 0xe : daddr >> 24 == 0xff;
}

/* And beyond the link: not 224.0.0.0/24 (RFC 5771), nor of a scope up to 2 (RFC 4291). */
static __always_inline int fw_is_routed_group(__u32 daddr_be, __u8 family)
{
	__u32 daddr = fw_ntohl(daddr_be);

	if (!fw_is_group(daddr_be, family))
		return 0;
	return family == FW_AF_INET ? daddr >> 8 != 0xe00000 : ((daddr >> 16) & 0xf) > 2;
}

/* The frame's first 16 octets, of which 14 are the link layer's header; zeros if it has none. */
static __always_inline void fw_link_copy(void *to, const void *data)
{
	fw_u64_any *words = to;

	words[0] = FW_TARGET_IS_RAW ? 0 : *(const fw_u64_any *)data;
	words[1] = FW_TARGET_IS_RAW ? 0 : *(const fw_u64_any *)(data + 8);
}

/* Writes the link layer's 14 octets. */
static __always_inline void fw_link_write(void *data, const void *l2)
{
	*(fw_u64_any *)data = *(const fw_u64_any *)l2;
	*(fw_u32_any *)(data + 8) = *(const fw_u32_any *)(l2 + 8);
	*(fw_u16_any *)(data + 12) = *(const fw_u16_any *)(l2 + 12);
}

/* Echoes, ESP and GRE. */
static __always_inline enum fw_reason fw_parse_other(const void *l4, const void *end,
						     struct fw_pkt *p, __u32 len_l4)
{
	const struct fw_l4 *header = l4;
	const struct fw_icmp *icmp = l4;
	enum fw_reason reason = fw_is_icmp(p->proto) ? FW_R_ICMP : FW_R_PROTOCOL;

	if (!fw_is_icmp(p->proto) && p->proto != FW_PROTO_ESP && p->proto != FW_PROTO_GRE)
		return reason;
	if (l4 + FW_L4_MIN > end || len_l4 < FW_L4_MIN)
		return reason;
	if (fw_is_icmp(p->proto)) {
		if (!fw_is_echo(icmp, p->family, p->proto))
			return reason;
		p->l4_check = icmp->check;
	} else if (p->proto == FW_PROTO_GRE && (header->sport_be & fw_htons(FW_GRE_VERSION))) {
		return reason;
	}
	p->tuple = 1;
	return FW_R_NONE;
}

static __always_inline enum fw_reason fw_parse_ports(const struct fw_l4 *l4, const void *end,
						     struct fw_pkt *p, __u32 len_l4)
{
	if (p->proto == FW_PROTO_TCP) {
		if ((const void *)l4 + FW_TCP_LEN > end)
			return FW_R_SHORT;
		p->tuple = 1;
		p->tcp_flags = l4->tcp.flags;
		p->l4_check = l4->tcp.check;
		/* nf_conntrack_proto_tcp.c, tcp_error() */
		if ((l4->tcp.doff >> 4) < 5 || (__u32)(l4->tcp.doff >> 4) * 4 > len_l4)
			return FW_R_L4_HEADER;
		return FW_R_NONE;
	}
	if (p->proto == FW_PROTO_UDP) {
		__u32 len;

		if ((const void *)l4 + FW_UDP_LEN > end)
			return FW_R_SHORT;
		p->tuple = 1;
		p->l4_check = l4->udp.check;
		len = fw_ntohs(l4->udp.len_be);
		/* udp_error() in nf_conntrack_proto_udp.c takes a shorter one, but sums up the
		 * whole packet */
		if (len < FW_UDP_LEN || len != len_l4)
			return FW_R_L4_HEADER;
		return FW_R_NONE;
	}
	return fw_parse_other(l4, end, p, len_l4);
}

static __always_inline enum fw_reason fw_parse_ip4(const void *data, const void *end,
						   __u32 frame_len, struct fw_pkt *p)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	__u32 len;

	if ((const void *)(ip + 1) > end)
		return FW_R_SHORT;
	if (ip->version_ihl != 0x45)
		return (ip->version_ihl >> 4) == 4 && (ip->version_ihl & 15) > 5 ? FW_R_IP_OPTIONS
										 : FW_R_IP_HEADER;
	len = fw_ntohs(ip->tot_len_be);
	p->len_l3 = len;
	p->ttl = ip->ttl;
	p->tos = ip->tos;
	p->proto = ip->proto;
	if (len < FW_IP4_LEN || FW_ETH_LEN + len > frame_len)
		return FW_R_IP_HEADER;
	if (fw_csum_ip(ip) != 0xffff)
		return FW_R_IP_CHECKSUM;
	p->family = FW_AF_INET;
	/* any of MF, offset; DF may be set */
	if (ip->frag_be & fw_htons(0x3fff))
		return FW_R_FRAGMENT;
	return fw_parse_ports((const void *)(ip + 1), end, p, len - FW_IP4_LEN);
}

static __always_inline enum fw_reason fw_parse_ip6(const void *data, const void *end,
						   __u32 frame_len, struct fw_pkt *p)
{
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	__u32 len, word0;
	enum fw_reason reason;

	if ((const void *)(ip + 1) > end)
		return FW_R_SHORT;
	word0 = fw_ntohl(ip->word0_be);
	if (word0 >> 28 != 6)
		return FW_R_IP_HEADER;
	len = fw_ntohs(ip->payload_len_be) + FW_IP6_LEN;
	p->len_l3 = len;
	p->ttl = ip->hop_limit;
	p->tos = word0 >> 20;
	p->proto = ip->next_header;
	if (FW_ETH_LEN + len > frame_len)
		return FW_R_IP_HEADER;
	p->family = FW_AF_INET6;
	reason = fw_parse_ports((const void *)(ip + 1), end, p, len - FW_IP6_LEN);
	if (reason != FW_R_PROTOCOL)
		return reason;
	if (p->proto == FW_PROTO_FRAG6)
		return FW_R_FRAGMENT;
	if (p->proto == 0 || p->proto == FW_PROTO_ROUTING || p->proto == 60 || p->proto == 51)
		return FW_R_IP6_EXTENSION;
	return FW_R_PROTOCOL;
}

/*
 * Fills p; FW_R_NONE if the frame could belong to a flow. frame_len counts the
 * whole frame, of which [data, end) need only hold the headers.
 */
static __always_inline enum fw_reason fw_parse(const void *data, const void *end, __u32 frame_len,
					       struct fw_pkt *p)
{
	__u16 ethertype_be;

	if (data + FW_ETH_LEN > end)
		return FW_R_SHORT;
	p->l2_len = FW_TARGET_IS_RAW ? 0 : FW_ETH_LEN;
	ethertype_be = fw_ethertype_be(data, end);
	if (ethertype_be == fw_htons(FW_ETH_IP))
		return fw_parse_ip4(data, end, frame_len, p);
	if (ethertype_be == fw_htons(FW_ETH_IP6))
		return fw_parse_ip6(data, end, frame_len, p);
	return fw_is_tag(ethertype_be) ? FW_R_VLAN : FW_R_NOT_IP;
}

/* Only the kernel judges how connections begin and end. */
static __always_inline int fw_tcp_closes(const struct fw_pkt *p)
{
	return p->proto == FW_PROTO_TCP && (p->tcp_flags & (FW_TCP_SYN | FW_TCP_FIN | FW_TCP_RST));
}

/* ACK, and beside it nothing but PSH, URG, ECE and CWR. */
static __always_inline int fw_tcp_plain(const struct fw_pkt *p)
{
	return p->proto != FW_PROTO_TCP || (p->tcp_flags & FW_TCP_ACK);
}

/* GRO merges such frames, also within GRE; small ones are acknowledgements. */
static __always_inline int fw_bulk(__u8 proto, __u32 len_l3)
{
	return (proto == FW_PROTO_TCP || proto == FW_PROTO_GRE) && len_l3 >= 128;
}

static __always_inline const struct fw_ip4 *fw_ip4_at(const void *data)
{
	return data + FW_ETH_LEN;
}

static __always_inline const struct fw_ip6 *fw_ip6_at(const void *data)
{
	return data + FW_ETH_LEN;
}

static __always_inline const struct fw_l4 *fw_l4_at(const void *data, __u8 family)
{
	return data + FW_ETH_LEN + (family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN);
}

/* L3 length of one segment of a merged frame. */
static __always_inline __u16 fw_segment_len(const void *data, const void *end,
					    const struct fw_pkt *p, __u32 gso_size)
{
	const struct fw_l4 *l4 = fw_l4_at(data, p->family);
	__u32 len = (const void *)l4 - data - FW_ETH_LEN;

	if (p->proto == FW_PROTO_TCP) {
		if ((const void *)l4 + FW_TCP_LEN > end)
			return p->len_l3;
		len += (l4->tcp.doff >> 4) * 4;
	} else {
		len += FW_UDP_LEN;
	}
	return len + gso_size;
}

/*
 * Keys: the caller has parsed the frame, so the headers are there. Addresses are
 * read from the frame, not from its structures, whose alignment would make two
 * loads of one.
 */
static __always_inline struct fw_words4 fw_key4_of(const void *data, __u32 port, __u8 proto)
{
	const fw_u64_any *addresses = data + FW_ETH_LEN + FW_IP4_ADDRESSES;
	__u32 id = fw_l4_id(data + FW_ETH_LEN + FW_IP4_LEN, proto);

	return (struct fw_words4){
		.addresses = *addresses,
		.ports = fw_words_ports(id, port << 8 | proto),
	};
}

static __always_inline struct fw_words6 fw_key6_of(const void *data, __u32 port, __u8 proto)
{
	const fw_u64_any *addresses = data + FW_ETH_LEN + FW_IP6_ADDRESSES;
	__u32 id = fw_l4_id(data + FW_ETH_LEN + FW_IP6_LEN, proto);

	return (struct fw_words6){
		.addresses = {addresses[0], addresses[1], addresses[2], addresses[3]},
		.ports = fw_words_ports(id, FW_KEY_IP6 | port << 8 | proto),
	};
}

#endif
