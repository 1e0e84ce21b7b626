/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies of frames for who looks on: see mirror.h. */
#include <rte_mbuf.h>

#include "dispatch_hash.h"
#include "mirror.h"

/* What rules ask of a frame. */
struct fwe_mirror_key {
	const __u8 *addr[2]; /* source, destination; NULL: it is no IP packet */
	__u16 port[2];
	__u8 v6;
	__u8 proto;
	__u8 has_ports; /* no fragment has */
};

enum {
	/* Extension headers that are looked behind. */
	FWE_MIRROR_EXTENSIONS_MAX = 8,
	FWE_MIRROR_HOP_BY_HOP = 0,
	FWE_MIRROR_ROUTING = 43,
	FWE_MIRROR_FRAGMENT = 44,
	FWE_MIRROR_AUTHENTICATION = 51,
	FWE_MIRROR_DESTINATION = 60,
};

/*
 * Behind IPv6's extension headers (RFC 8200, RFC 4302). NULL: it is a fragment, or there are too
 * many; *proto is the last one that was seen.
 */
static const __u8 *fwe_mirror_payload6(const __u8 *at, const __u8 *end, __u8 *proto)
{
	for (int i = 0; i < FWE_MIRROR_EXTENSIONS_MAX; i++) {
		__u32 len;

		if (*proto != FWE_MIRROR_HOP_BY_HOP && *proto != FWE_MIRROR_ROUTING &&
		    *proto != FWE_MIRROR_FRAGMENT && *proto != FWE_MIRROR_AUTHENTICATION &&
		    *proto != FWE_MIRROR_DESTINATION)
			return at;
		if (end - at < 8)
			return NULL;
		if (*proto == FWE_MIRROR_FRAGMENT) {
			*proto = at[0];
			/* more fragments, or not the first one */
			if (fwe_hash_u16(at + 2) & 0xfff9)
				return NULL;
			at += 8;
			continue;
		}
		len = *proto == FWE_MIRROR_AUTHENTICATION ? (at[1] + 2) * 4 : (at[1] + 1) * 8;
		*proto = at[0];
		if (end - at < len)
			return NULL;
		at += len;
	}
	return NULL;
}

static struct fwe_mirror_key fwe_mirror_key(const __u8 *data, const __u8 *end)
{
	struct fwe_mirror_key key = {};
	struct fwe_hash_packet p;
	const __u8 *payload;

	if (end - data < FWE_HASH_ETH_LEN)
		return key;
	p = fwe_hash_within(data + FWE_HASH_ETH_LEN, end, fwe_hash_u16(data + 12));
	if (!p.ip)
		return key;
	key.v6 = p.v6;
	key.addr[0] = p.ip + (p.v6 ? 8 : 12);
	key.addr[1] = p.ip + (p.v6 ? 24 : 16);
	payload = fwe_hash_payload(p, &key.proto);
	if (p.v6)
		payload = fwe_mirror_payload6(payload, end, &key.proto);
	if (payload && fwe_hash_has_ports(key.proto) && end - payload >= 4) {
		key.has_ports = 1;
		key.port[0] = fwe_hash_u16(payload);
		key.port[1] = fwe_hash_u16(payload + 2);
	}
	return key;
}

static int fwe_mirror_in_net(const struct fwe_mirror_net *net, const __u8 *addr)
{
	__u32 octets = net->len / 8, bits = net->len % 8;

	if (memcmp(net->addr, addr, octets))
		return 0;
	return !bits || !((net->addr[octets] ^ addr[octets]) >> (8 - bits));
}

static int fwe_mirror_is_end(const struct fwe_mirror_end *end, const struct fwe_mirror_key *key,
			     int side)
{
	int found = !end->nets_count;

	for (__u32 i = 0; i < end->nets_count && !found; i++)
		found = end->nets[i].v6 == key->v6 &&
			fwe_mirror_in_net(&end->nets[i], key->addr[side]);
	if (!found || !end->ports_count)
		return found;
	if (!key->has_ports)
		return 0;
	for (__u32 i = 0; i < end->ports_count; i++)
		if (key->port[side] >= end->ports[i].first && key->port[side] <= end->ports[i].last)
			return 1;
	return 0;
}

static int fwe_mirror_takes(const struct fwe_mirror_rule *rule, const struct fwe_mirror_key *key)
{
	const struct fwe_mirror_end *src = &rule->src, *dst = &rule->dst;

	if (rule->proto == FWE_MIRROR_ANY_PROTO && !src->nets_count && !src->ports_count &&
	    !dst->nets_count && !dst->ports_count)
		return 1;
	if (!key->addr[0] || (rule->proto != FWE_MIRROR_ANY_PROTO && rule->proto != key->proto))
		return 0;
	return (fwe_mirror_is_end(src, key, 0) && fwe_mirror_is_end(dst, key, 1)) ||
	       (fwe_mirror_is_end(src, key, 1) && fwe_mirror_is_end(dst, key, 0));
}

int fwe_mirror_match(const struct fwe_mirror *mirror, __u32 port, const __u8 *data, __u32 len)
{
	struct fwe_mirror_key key = fwe_mirror_key(data, data + len);

	for (__u32 i = 0; i < mirror->rules_count; i++)
		if ((mirror->rules[i].at >> port & 1) && fwe_mirror_takes(&mirror->rules[i], &key))
			return i;
	return -1;
}

__u64 fwe_mirror_ports(const struct fwe_mirror *mirror)
{
	__u64 ports = 0;

	for (__u32 i = 0; i < mirror->rules_count; i++)
		ports |= mirror->rules[i].at;
	return ports;
}

void fwe_mirror_copy(const struct fwe_mirror *mirror, __u32 port, struct rte_mbuf *const *frames,
		     __u32 count, struct fwe_mirrored *copies)
{
	copies->count = 0;
	copies->failed = 0;
	for (__u32 i = 0; i < count; i++) {
		int rule = fwe_mirror_match(mirror, port, rte_pktmbuf_mtod(frames[i], const __u8 *),
					    frames[i]->data_len);
		struct rte_mbuf *copy;

		if (rule < 0)
			continue;
		copy = rte_pktmbuf_copy(frames[i], mirror->pool, 0, UINT32_MAX);
		if (!copy) {
			copies->failed++;
			continue;
		}
		copies->bucket[copies->count] = frames[i]->hash.rss & (FW_BUCKETS - 1);
		copies->target[copies->count] = mirror->rules[rule].target;
		copies->frame[copies->count++] = copy;
	}
}
