/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A frame's bucket, by addresses and ports of the packet that it carries: within tags, a PPPoE
 * session, a GRE tunnel. What has no ports, and every fragment, goes by addresses alone, so that
 * all of a packet's fragments are in one bucket. What is no IP packet is in bucket 0.
 */
#ifndef FWE_DISPATCH_HASH_H
#define FWE_DISPATCH_HASH_H

#include <string.h>

#include "../dataplane/target/bytes.h"
#include "../dataplane/bucket.h"

enum fwe_dispatch_hash {
	FWE_HASH_ETH_LEN = 14,
	FWE_HASH_TAG_LEN = 4,
	FWE_HASH_TAGS_MAX = 2,
	/* from behind the Ethernet type to behind PPP's protocol */
	FWE_HASH_PPPOE_LEN = 8,
	FWE_HASH_IP4_LEN = 20,
	FWE_HASH_IP6_LEN = 40,
	FWE_HASH_GRE_LEN = 4,

	FWE_HASH_IP4 = 0x0800,
	FWE_HASH_IP6 = 0x86dd,
	FWE_HASH_TAG = 0x8100,
	FWE_HASH_OUTER_TAG = 0x88a8,
	FWE_HASH_PPPOE = 0x8864,
	FWE_HASH_PPP_IP4 = 0x0021,
	FWE_HASH_PPP_IP6 = 0x0057,
	/* Ethernet in GRE */
	FWE_HASH_BRIDGED = 0x6558,

	FWE_HASH_TCP = 6,
	FWE_HASH_UDP = 17,
	FWE_HASH_GRE = 47,
	/* of GRE's first word: checksum and key are there; of a frame with another bit set nothing
	 * is known, or its receiver wants it in order (RFC 2890) */
	FWE_GRE_CHECKSUM = 0x8000,
	FWE_GRE_KEY = 0x2000,
};

static __always_inline __u16 fwe_hash_u16(const __u8 *at)
{
	return (__u16)(at[0] << 8 | at[1]);
}

/* A packet of IP; NULL: there is none. */
struct fwe_hash_packet {
	const __u8 *ip;
	__u32 v6;
};

/* What an Ethernet type, and what is behind it, leads to. */
static inline struct fwe_hash_packet fwe_hash_within(const __u8 *at, const __u8 *end,
						     __u16 ethertype)
{
	struct fwe_hash_packet none = {};

	for (int tags = 0; ethertype == FWE_HASH_TAG || ethertype == FWE_HASH_OUTER_TAG; tags++) {
		if (tags == FWE_HASH_TAGS_MAX || end - at < FWE_HASH_TAG_LEN)
			return none;
		ethertype = fwe_hash_u16(at + 2);
		at += FWE_HASH_TAG_LEN;
	}
	if (ethertype == FWE_HASH_PPPOE) {
		__u16 proto;

		if (end - at < FWE_HASH_PPPOE_LEN)
			return none;
		proto = fwe_hash_u16(at + 6);
		at += FWE_HASH_PPPOE_LEN;
		ethertype = proto == FWE_HASH_PPP_IP4   ? FWE_HASH_IP4
			    : proto == FWE_HASH_PPP_IP6 ? FWE_HASH_IP6
							: 0;
	}
	if (ethertype == FWE_HASH_IP4 && end - at >= FWE_HASH_IP4_LEN && at[0] >> 4 == 4)
		return (struct fwe_hash_packet){at, 0};
	if (ethertype == FWE_HASH_IP6 && end - at >= FWE_HASH_IP6_LEN && at[0] >> 4 == 6)
		return (struct fwe_hash_packet){at, 1};
	return none;
}

/* What a tunnel carries; none: the tunnel is one flow. */
static inline struct fwe_hash_packet fwe_hash_tunnelled(const __u8 *gre, const __u8 *end)
{
	struct fwe_hash_packet none = {};
	__u16 flags, ethertype;
	const __u8 *at = gre + FWE_HASH_GRE_LEN;

	if (end - gre < FWE_HASH_GRE_LEN)
		return none;
	flags = fwe_hash_u16(gre);
	ethertype = fwe_hash_u16(gre + 2);
	if (flags & ~(FWE_GRE_CHECKSUM | FWE_GRE_KEY))
		return none;
	at += (flags & FWE_GRE_CHECKSUM ? 4 : 0) + (flags & FWE_GRE_KEY ? 4 : 0);
	if (ethertype == FWE_HASH_BRIDGED) {
		if (end - at < FWE_HASH_ETH_LEN)
			return none;
		ethertype = fwe_hash_u16(at + FWE_HASH_ETH_LEN - 2);
		at += FWE_HASH_ETH_LEN;
	}
	return fwe_hash_within(at, end, ethertype);
}

/* Where the payload is, and its protocol; NULL: of a fragment nobody looks at it. */
static __always_inline const __u8 *fwe_hash_payload(struct fwe_hash_packet p, __u8 *proto)
{
	if (p.v6) {
		*proto = p.ip[6];
		return p.ip + FWE_HASH_IP6_LEN;
	}
	*proto = p.ip[9];
	/* more fragments, or not the first one */
	if (fw_unlikely(fwe_hash_u16(p.ip + 6) & 0x3fff))
		return NULL;
	return p.ip + (p.ip[0] & 15) * 4;
}

static __always_inline __u32 fwe_bucket_between(struct fwe_hash_packet p, __u16 sport_be,
						__u16 dport_be, const __u64 *key)
{
	const fw_u32_any *words = (const void *)(p.ip + 12);
	const fw_u64_any *longs = (const void *)(p.ip + 8);

	if (fw_likely(!p.v6))
		return fw_bucket(fw_bucket_end4(words[0], sport_be, key),
				 fw_bucket_end4(words[1], dport_be, key));
	return fw_bucket(fw_bucket_end6(longs[0], longs[1], sport_be, key),
			 fw_bucket_end6(longs[2], longs[3], dport_be, key));
}

static __always_inline int fwe_hash_has_ports(__u8 proto)
{
	return proto == FWE_HASH_UDP || proto == FWE_HASH_TCP;
}

static __noinline FW_UNUSED __u32 fwe_bucket_of_others(const __u8 *data, const __u8 *end,
						       const __u64 *key)
{
	struct fwe_hash_packet p, inner;
	const fw_u16_any *ports;
	const __u8 *payload;
	__u8 proto;

	if (end - data < FWE_HASH_ETH_LEN)
		return 0;
	p = fwe_hash_within(data + FWE_HASH_ETH_LEN, end, fwe_hash_u16(data + 12));
	if (!p.ip)
		return 0;
	payload = fwe_hash_payload(p, &proto);
	if (payload && proto == FWE_HASH_GRE) {
		inner = fwe_hash_tunnelled(payload, end);
		if (inner.ip) {
			p = inner;
			payload = fwe_hash_payload(p, &proto);
		}
	}
	ports = (const void *)payload;
	if (payload && fwe_hash_has_ports(proto) && end - payload >= 4)
		return fwe_bucket_between(p, ports[0], ports[1], key);
	return fwe_bucket_between(p, 0, 0, key);
}

/* Of a frame whose first segment is that. */
static __always_inline __u32 fwe_bucket_of(const __u8 *data, const __u8 *end, const __u64 *key)
{
	const __u8 *ip = data + FWE_HASH_ETH_LEN;
	const fw_u16_any *ports = (const void *)(ip + FWE_HASH_IP4_LEN);

	/* most: IPv4 with ports and without options */
	if (fw_likely(end - ip >= FWE_HASH_IP4_LEN + 4 &&
		      *(const fw_u16_any *)(data + 12) == fw_htons(FWE_HASH_IP4) && ip[0] == 0x45 &&
		      fwe_hash_has_ports(ip[9]) &&
		      !(*(const fw_u16_any *)(ip + 6) & fw_htons(0x3fff))))
		return fwe_bucket_between((struct fwe_hash_packet){ip, 0}, ports[0], ports[1], key);
	return fwe_bucket_of_others(data, end, key);
}

#endif
