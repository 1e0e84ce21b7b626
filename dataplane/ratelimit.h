/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Limits of what sources may send to the router's own MAC address: a token bucket for each limit
 * and prefix of sources, kept as the time at which it is full again. All CPUs share it.
 *
 * Who stays below a limit is never dropped for others: buckets are compared whole, and where there
 * is no room the one that lacks least is forgotten, which is to its source's advantage. What CPUs
 * do at the same time may let a packet more through, not fewer.
 */
#ifndef FW_RATELIMIT_H
#define FW_RATELIMIT_H

#include "abi.h"
#include "nd.h"
#include "parse.h"

enum {
	/* Another CPU may have been quicker; then the packet goes on. */
	FW_RATELIMIT_TRIES = 4,
	/* By so many ticks another CPU's reading of the clock may have been ahead. */
	FW_RATELIMIT_SKEW = 16,
};

/* Time that a bucket lacks. */
static __always_inline __u64 fw_ratelimit_lacks(const struct fw_ratelimit_bucket *bucket, __u64 now)
{
	__s64 lacks = FW_READ_ONCE(bucket->full_at) - now;

	return lacks > 0 ? lacks : 0;
}

/* A line that begins with a bucket. */
static __always_inline __u64 fw_ratelimit_home(const __u64 prefix[2], __u32 owner)
{
	const volatile __u64 *key = fw_ratelimit_cfg.hash_key;
	__u64 sum = prefix[0] * key[0] + prefix[1] * key[1] + owner * key[2];

	sum = (sum ^ sum >> 32) * key[0];
	return (sum >> fw_ratelimit_cfg.shift) * FW_RATELIMIT_WAYS;
}

/* Is the packet one too many? Else it has been counted. */
static __always_inline int fw_ratelimit_take(struct fw_ratelimit_bucket *bucket,
					     const struct fw_ratelimit_rule *rule,
					     const __u64 prefix[2], __u64 now)
{
	const __u64 skew = (__u64)FW_RATELIMIT_SKEW << FW_RATELIMIT_SHIFT;

	for (int i = 0; i < FW_RATELIMIT_TRIES; i++) {
		__u64 full_at = FW_READ_ONCE(bucket->full_at);
		__u64 lacks = full_at - now;

		/* what was read may be another's, who has it from now on */
		if (FW_READ_ONCE(bucket->prefix[0]) != prefix[0] ||
		    FW_READ_ONCE(bucket->prefix[1]) != prefix[1])
			return 0;
		if ((__s64)lacks <= 0 || lacks > rule->depth + skew)
			lacks = 0;
		if (lacks + rule->cost > rule->depth) {
			bucket->dropped++;
			return 1;
		}
		if (__sync_val_compare_and_swap(&bucket->full_at, full_at,
						now + lacks + rule->cost) == full_at)
			return 0;
	}
	return 0;
}

/* The first packet of a source: a place for its bucket, in a line. */
static __always_inline void fw_ratelimit_enter(__u64 home, const struct fw_ratelimit_rule *rule,
					       __u32 owner, const __u64 prefix[2], __u64 now,
					       struct fw_ratelimit_count *count)
{
	struct fw_ratelimit_bucket *bucket, *chosen = NULL;
	__u64 lacks, least = -1ULL;
	__u32 has, had = 0;

	for (int i = 0; i < FW_RATELIMIT_WAYS; i++) {
		bucket = fw_ratelimit_bucket_get(home + i);
		has = FW_READ_ONCE(bucket->owner);
		lacks = fw_ratelimit_lacks(bucket, now);
		if (has == FW_RATELIMIT_TAKEN || lacks >= least)
			continue;
		chosen = bucket;
		least = lacks;
		had = has;
	}
	if (!chosen || __sync_val_compare_and_swap(&chosen->owner, had, FW_RATELIMIT_TAKEN) != had)
		return;
	if (least)
		count->forgotten++;
	FW_WRITE_ONCE(chosen->prefix[0], prefix[0]);
	FW_WRITE_ONCE(chosen->prefix[1], prefix[1]);
	FW_WRITE_ONCE(chosen->full_at, now + rule->cost);
	chosen->dropped = 0;
	/* after all of that: a full barrier */
	__sync_lock_test_and_set(&chosen->owner, owner);
}

/*
 * Is a source over a limit? Of external linkage: the verifier looks at it once, not once for each
 * limit. `number`: with FW_RATELIMIT_OWNER_IP6 of IPv6. The address is as in the packet.
 */
int fw_ratelimit_exceeds(__u32 number, __u64 upper, __u64 lower, __u64 now, __u32 bytes);

__noinline int fw_ratelimit_exceeds(__u32 number, __u64 upper, __u64 lower, __u64 now, __u32 bytes)
{
	__u32 at = number & (FW_RATELIMITS - 1);
	const struct fw_ratelimit_rule *rule = &fw_ratelimit.rule[at];
	struct fw_ratelimit_count *count =
		fw_ratelimit_count_get((__u64)fw_cpu_id() * FW_RATELIMITS + at);
	__u32 ip6 = number & FW_RATELIMIT_OWNER_IP6;
	__u32 owner = rule->owner | ip6;
	__u64 prefix[2], home;

	prefix[0] = upper & (ip6 ? rule->mask_be[0] : rule->mask4_be);
	prefix[1] = lower & rule->mask_be[1];
	home = fw_ratelimit_home(prefix, owner);
	for (int i = 0; i < FW_RATELIMIT_WAYS; i++) {
		struct fw_ratelimit_bucket *bucket = fw_ratelimit_bucket_get(home + i);

		if (FW_READ_ONCE(bucket->owner) != owner || bucket->prefix[0] != prefix[0] ||
		    bucket->prefix[1] != prefix[1])
			continue;
		if (!fw_ratelimit_take(bucket, rule, prefix, now))
			return 0;
		count->dropped++;
		count->bytes += bytes;
		return 1;
	}
	fw_ratelimit_enter(home, rule, owner, prefix, now, count);
	return 0;
}

/* SYN alone: it begins a connection. */
static __always_inline enum fw_ratelimit_kind fw_ratelimit_tcp(const void *l4, const void *end)
{
	enum { FIN = 1 << 0, SYN = 1 << 1, RST = 1 << 2, ACK = 1 << 4, FLAGS_AT = 13 };
	const __u8 *flags = l4 + FLAGS_AT;

	if ((const void *)(flags + 1) > end)
		return FW_RATELIMIT_TCP;
	return (*flags & (FIN | SYN | RST | ACK)) == SYN ? FW_RATELIMIT_SYN : FW_RATELIMIT_TCP;
}

static __always_inline enum fw_ratelimit_kind fw_ratelimit_kind(__u32 proto, const void *l4,
								const void *end, __u32 is_first)
{
	switch (proto) {
	case FW_PROTO_TCP:
		return is_first ? fw_ratelimit_tcp(l4, end) : FW_RATELIMIT_TCP;
	case FW_PROTO_UDP:
		return FW_RATELIMIT_UDP;
	default:
		return FW_RATELIMIT_OTHER;
	}
}

/* Applies the limits of a kind of packets, in their order. */
static __always_inline int fw_ratelimit_any(enum fw_ratelimit_kind kind, __u32 ip6,
					    const __u64 addr[2], __u32 bytes)
{
	__u32 limits = fw_ratelimit_here.limits[kind];
	__u64 now;

	if (!limits)
		return 0;
	now = fw_now_long();
	if (!fw_ctl.on || fw_reached(now, fw_ctl.deadline_tick))
		return 0;
	now <<= FW_RATELIMIT_SHIFT;
	for (__u32 i = 0; i < FW_RATELIMITS && limits; i++, limits >>= 1)
		if ((limits & 1) && fw_ratelimit_exceeds(i | ip6, addr[0], addr[1], now, bytes))
			return 1;
	return 0;
}

static __always_inline int fw_ratelimit_ip4(const void *data, const void *end)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	enum fw_ratelimit_kind kind;
	__u64 addr[2] = {};
	__u32 len;

	if ((const void *)(ip + 1) > end || ip->version_ihl >> 4 != 4)
		return 0;
	len = (ip->version_ihl & 15) * 4;
	addr[0] = ip->saddr_be;
	kind = fw_ratelimit_kind(ip->proto, (const void *)ip + len, end,
				 !(ip->frag_be & fw_htons(0x1fff)));
	if (ip->proto == FW_PROTO_ICMP)
		kind = FW_RATELIMIT_ICMP;
	return fw_ratelimit_any(kind, 0, addr, end - data);
}

static __always_inline int fw_ratelimit_ip6(const void *data, const void *end)
{
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	const fw_u64_any *saddr_be = (const void *)ip->saddr_be;
	struct fw_pkt p = {.family = FW_AF_INET6};
	enum fw_ratelimit_kind kind;
	__u64 addr[2];

	if ((const void *)(ip + 1) > end || fw_ntohl(ip->word0_be) >> 28 != 6)
		return 0;
	p.proto = ip->next_header;
	p.ttl = ip->hop_limit;
	if (fw_is_nd(data, end, &p))
		return 0;
	addr[0] = saddr_be[0];
	addr[1] = saddr_be[1];
	kind = fw_ratelimit_kind(p.proto, ip + 1, end, 1);
	if (p.proto == FW_PROTO_ICMP6)
		kind = FW_RATELIMIT_ICMP;
	return fw_ratelimit_any(kind, FW_RATELIMIT_OWNER_IP6, addr, end - data);
}

/* True if the frame is to be dropped. */
static __always_inline int fw_ratelimit_drops(const void *data, const void *end)
{
	const fw_u16_any *mac = data, *own = (const void *)fw_ratelimit_here.mac;
	__u16 ethertype_be;

	if (data + FW_ETH_LEN > end)
		return 0;
	if ((mac[0] ^ own[0]) | (mac[1] ^ own[1]) | (mac[2] ^ own[2]))
		return 0;
	ethertype_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
	if (ethertype_be == fw_htons(FW_ETH_IP))
		return fw_ratelimit_ip4(data, end);
	if (ethertype_be == fw_htons(FW_ETH_IP6))
		return fw_ratelimit_ip6(data, end);
	return 0;
}

#endif
