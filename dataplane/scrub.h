/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the scrubber drops: plain IP packets to the port itself whose address is in a set by which
 * the first rule that they would meet drops. In doubt the packet is the kernel's, which drops it
 * too.
 */
#ifndef FW_SCRUB_H
#define FW_SCRUB_H

#include "abi.h"
#include "csum.h"
#include "l4.h"
#include "parse.h"

/* Of a packet: the rules that look at an address of it, and what their conditions ask. */
struct fw_scrub_pkt {
	__u32 now_tick;
	__u32 proto;
	__u32 ports; /* source << 16 | destination */
	__u32 has_ports;
};

enum { FW_SCRUB_NONE = -1 };

/* Of a word that a MAC address begins. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FW_SCRUB_MAC(word) ((word) << 16)
#else
#define FW_SCRUB_MAC(word) ((word) >> 16)
#endif

/* Whose rules these are of; the hits are its own. */
struct fw_scrub_found {
	__u32 class;
	__u32 *hits;
};

static __always_inline int fw_scrub_lives(__u32 class, __u32 until_tick, __u32 now)
{
	return class >= FW_SCRUB_CLASS_FIRST && (!until_tick || !fw_reached(now, until_tick));
}

/* By what a line says. */
static __always_inline int fw_scrub_surely4(__u32 meta, __u32 now)
{
	const __u32 unit = FW_SCRUB_CLASSES;
	__u32 until = meta & -unit;

	return !until || (__s32)(until - (now & -unit)) > 0;
}

/* The same by the tick. Only who has less than a second left is looked for elsewhere. */
static __always_inline int fw_scrub_lives4(__u32 meta, __u64 place, __u64 way, __u32 now)
{
	const __u32 unit = FW_SCRUB_CLASSES;
	__s32 ahead = (meta & -unit) - (now & -unit);

	if (fw_scrub_surely4(meta, now))
		return 1;
	return !ahead &&
	       !fw_reached(now, FW_READ_ONCE((fw_scrub_side4_get(place) + way)->until_tick));
}

/* An IPv4 address's way into the table. */
struct fw_scrub_seek4 {
	__u64 home; /* a line */
	__u64 tag;
};

static __always_inline struct fw_scrub_seek4 fw_scrub_seek4(__u32 addr_be)
{
	__u64 sum = addr_be * fw_scrub_cfg.hash_key[0];

	/* adjacent addresses are many, and a product alone lays them out as a grid: with some keys
	   on the same few lines */
	sum = (sum ^ sum >> 32) * fw_scrub_cfg.hash_key[1];
	return (struct fw_scrub_seek4){
		.home = sum >> fw_scrub_cfg.shift4,
		.tag = sum >> FW_SCRUB_TAG_SHIFT & 0xff,
	};
}

/* Of the ways of a line those with this tag, as the highest bits of their bytes. */
static __always_inline __u64 fw_scrub_tagged(__u64 tags, __u64 tag)
{
	const __u64 low = 0x0001010101010101;
	__u64 differs = tags ^ tag * low;

	/* above one with the tag another may seem to have it: addresses are compared */
	return (differs - low) & ~differs & low << 7;
}

/* The number of one of them. Of several it is any number, and it has no address there. */
static __always_inline __u64 fw_scrub_way(__u64 ways)
{
	/* bit 8 * i + 7 brings i up to the highest bits */
	const __u64 numbers =
		1ULL << 46 | 2ULL << 38 | 3ULL << 30 | 4ULL << 22 | 5ULL << 14 | 6ULL << 6;

	return ways * numbers >> 61;
}

/*
 * What a way says of an address; 0: nothing. Read between two looks at the address, or it might be
 * what is said of another, which has the way from now on.
 */
static __always_inline __u32 fw_scrub_meta4(const struct fw_scrub4 *line, __u64 way, __u32 addr_be)
{
	__u32 meta;

	if (FW_READ_ONCE(line->addr_be[way]) != addr_be)
		return 0;
	meta = FW_READ_ONCE(line->meta[way]);
	return FW_READ_ONCE(line->addr_be[way]) == addr_be ? meta : 0;
}

static __noinline int fw_scrub_find4(struct fw_scrub_found *found, __u32 addr_be, __u32 now)
{
	struct fw_scrub_seek4 seek = fw_scrub_seek4(addr_be);

	if (!found)
		return 0;
	for (__u32 i = 0; i < FW_SCRUB_LINES4; i++) {
		struct fw_scrub4 *line = fw_scrub4_get(seek.home + i);
		__u64 tags = FW_READ_ONCE(line->tags);
		__u64 ways = fw_scrub_tagged(tags, seek.tag);

		for (__u32 j = 0; j < FW_SCRUB_WAYS4 && ways; j++, ways &= ways - 1) {
			__u64 way = fw_scrub_way(ways & -ways);
			__u64 place = (seek.home + i) * FW_SCRUB_SIDES4;
			__u32 meta = fw_scrub_meta4(line, way, addr_be);

			if (!meta || !fw_scrub_lives4(meta, place, way, now))
				continue;
			/* the end may be a later one's */
			if (FW_READ_ONCE(line->meta[way]) != meta)
				return 0;
			found->class = meta;
			found->hits = &(fw_scrub_side4_get(place) + way)->hits;
			return 1;
		}
		if (!(tags >> FW_SCRUB_MORE_SHIFT))
			return 0;
	}
	return 0;
}

static __always_inline void fw_scrub_find6(struct fw_scrub_found *found, const __u64 addr[2],
					   __u32 pair, __u32 now)
{
	__u64 sum = (addr[0] ^ (__u64)pair << 32) * fw_scrub_cfg.hash_key[0] +
		    addr[1] * fw_scrub_cfg.hash_key[1] + pair * fw_scrub_cfg.hash_key[2];
	__u64 at = (sum >> fw_scrub_cfg.shift6) * FW_SCRUB_WAYS6;

	for (int i = 0; i < FW_SCRUB_LINES6 * FW_SCRUB_WAYS6; i++) {
		struct fw_scrub6 *entry = fw_scrub6_get(at + i);
		__u32 class = FW_READ_ONCE(entry->class);
		const fw_u64_any *have = (const void *)entry->addr_be;

		if (class == FW_SCRUB_FREE)
			return;
		if (have[0] != addr[0] || have[1] != addr[1] || entry->pair != pair)
			continue;
		if (fw_scrub_lives(class, entry->until_tick, now)) {
			found->class = class;
			found->hits = &entry->hits;
		}
		if (class != FW_SCRUB_LEFT)
			return;
	}
}

static __always_inline void fw_scrub_net_found(struct fw_scrub_found *found,
					       struct fw_scrub_net *net, __u32 now)
{
	if (!net || !fw_scrub_lives(net->class, net->until_tick, now))
		return;
	found->class = net->class;
	found->hits = &net->hits;
}

/*
 * Does the packet meet a rule's conditions? Of external linkage, as the next: the verifier looks at
 * each once, not on every way that leads to it.
 */
int fw_scrub_meets(__u32 number, __u32 proto, __u32 ports, __u32 has_ports);

__noinline int fw_scrub_meets(__u32 number, __u32 proto, __u32 ports, __u32 has_ports)
{
	const struct fw_scrub_rule *rule = &fw_scrub.rule[number & (FW_SCRUB_RULES - 1)];
	__u32 dport = ports & 0xffff;

	if (rule->proto && rule->proto != proto)
		return 0;
	if (!rule->dports)
		return 1;
	if (!has_ports)
		return 0;
	for (int i = 0; i < FW_SCRUB_RANGES; i++) {
		if (i >= rule->dports)
			return 0;
		if (dport >= rule->dport_first[i] && dport <= rule->dport_last[i])
			return 1;
	}
	return 0;
}

/* The first of the rules whose conditions the packet meets. */
int fw_scrub_conditional(__u64 rules, __u32 proto, __u32 ports, __u32 has_ports);

__noinline int fw_scrub_conditional(__u64 rules, __u32 proto, __u32 ports, __u32 has_ports)
{
	for (__u32 i = 0; i < FW_SCRUB_RULES; i++)
		if ((rules >> i & 1) && fw_scrub_meets(i, proto, ports, has_ports))
			return i;
	return FW_SCRUB_NONE;
}

/* The rule of those of this port by which what was found is dropped. */
static __always_inline int fw_scrub_rule_of(const struct fw_scrub_found *found, __u64 here,
					    const struct fw_scrub_pkt *p)
{
	const struct fw_scrub_class *class;
	__u64 rules;

	if (!found->hits)
		return FW_SCRUB_NONE;
	class = &fw_scrub.class[found->class & (FW_SCRUB_CLASSES - 1)];
	rules = class->rules & here;
	if (fw_likely(class->plain & here))
		return class->first & (FW_SCRUB_RULES - 1);
	return rules ? fw_scrub_conditional(rules, p->proto, p->ports, p->has_ports)
		     : FW_SCRUB_NONE;
}

/* Concatenations: by each kind that there is of this IP version. */
static __noinline int fw_scrub_pairs(const struct fw_scrub_pkt *p, const __u64 addr[2], __u64 here,
				     __u32 ip4)
{
	for (__u32 bits = 1; bits < FW_SCRUB_PAIR_IP4; bits++) {
		struct fw_scrub_found found = {};
		__u32 kind = bits | ip4, pair = kind << FW_SCRUB_PAIR_SHIFT;
		int rule;

		if (!p || !addr)
			return FW_SCRUB_NONE;
		if (!(fw_scrub.pairs >> kind & 1))
			continue;
		if (bits & FW_SCRUB_PAIR_PROTO)
			pair |= p->proto << 16;
		if ((bits & (FW_SCRUB_PAIR_DPORT | FW_SCRUB_PAIR_SPORT)) && !p->has_ports)
			continue;
		if (bits & FW_SCRUB_PAIR_DPORT)
			pair |= p->ports & 0xffff;
		else if (bits & FW_SCRUB_PAIR_SPORT)
			pair |= p->ports >> 16;
		fw_scrub_find6(&found, addr, pair, p->now_tick);
		rule = fw_scrub_rule_of(&found, here, p);
		if (rule >= 0)
			return rule;
	}
	return FW_SCRUB_NONE;
}

static __always_inline int fw_scrub_by4(const struct fw_scrub_pkt *p, __u32 addr_be, __u64 here,
					struct fw_scrub_found *found)
{
	__u64 addr[2] = {addr_be};
	int rule;

	if (!here)
		return FW_SCRUB_NONE;
	fw_scrub_find4(found, addr_be, p->now_tick);
	rule = fw_scrub_rule_of(found, here, p);
	if (rule >= 0)
		return rule;
	found->hits = NULL;
	if (fw_scrub.ranges & FW_SCRUB_NETS4) {
		fw_scrub_net_found(found, fw_scrub_net4_get(addr_be), p->now_tick);
		rule = fw_scrub_rule_of(found, here, p);
		if (rule >= 0)
			return rule;
		found->hits = NULL;
	}
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	addr[0] <<= 32;
#endif
	return fw_scrub.pairs ? fw_scrub_pairs(p, addr, here, FW_SCRUB_PAIR_IP4) : FW_SCRUB_NONE;
}

static __always_inline int fw_scrub_by6(const struct fw_scrub_pkt *p, const fw_u64_any *addr_be,
					__u64 here, struct fw_scrub_found *found)
{
	__u64 addr[2];
	int rule;

	if (!here)
		return FW_SCRUB_NONE;
	addr[0] = addr_be[0];
	addr[1] = addr_be[1];
	fw_scrub_find6(found, addr, 0, p->now_tick);
	rule = fw_scrub_rule_of(found, here, p);
	if (rule >= 0)
		return rule;
	found->hits = NULL;
	if (fw_scrub.ranges & FW_SCRUB_NETS6) {
		fw_scrub_net_found(found, fw_scrub_net6_get(addr), p->now_tick);
		rule = fw_scrub_rule_of(found, here, p);
		if (rule >= 0)
			return rule;
		found->hits = NULL;
	}
	return fw_scrub.pairs ? fw_scrub_pairs(p, addr, here, 0) : FW_SCRUB_NONE;
}

static __always_inline void fw_scrub_ports(struct fw_scrub_pkt *p, const void *l4, const void *end,
					   __u32 len_l4)
{
	const fw_u16_any *port = l4;

	p->has_ports = 0;
	if (len_l4 < 4 || l4 + 4 > end)
		return;
	p->has_ports = 1;
	p->ports = (__u32)fw_ntohs(port[0]) << 16 | fw_ntohs(port[1]);
}

/* fw_scrub_straight() has looked at the header, but for its checksum. */
static __always_inline int fw_scrub_ip4(const void *data, const void *end, struct fw_scrub_pkt *p,
					struct fw_scrub_found *found)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	int rule;

	if ((const void *)(ip + 1) > end)
		return FW_SCRUB_NONE;
	p->proto = ip->proto;
	fw_scrub_ports(p, ip + 1, end, fw_ntohs(ip->tot_len_be) - FW_IP4_LEN);
	rule = fw_scrub_by4(p, ip->saddr_be, fw_scrub_here.by_source, found);
	if (rule < 0)
		rule = fw_scrub_by4(p, ip->daddr_be, fw_scrub_here.by_destination, found);
	return rule >= 0 && !fw_csum_differs(ip) ? rule : FW_SCRUB_NONE;
}

static __always_inline int fw_scrub_ip6(const void *data, const void *end, struct fw_scrub_pkt *p,
					struct fw_scrub_found *found)
{
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	const __u64 extensions = 1ULL << 0 | 1ULL << 43 | 1ULL << 44 | 1ULL << 51 | 1ULL << 60;
	__u32 len;
	int rule;

	if ((const void *)(ip + 1) > end || fw_ntohl(ip->word0_be) >> 28 != 6)
		return FW_SCRUB_NONE;
	p->proto = ip->next_header;
	/* the kernel may answer these, and the protocol is behind them */
	if (p->proto == 135 || (p->proto < 64 && (extensions >> p->proto & 1)))
		return FW_SCRUB_NONE;
	len = fw_ntohs(ip->payload_len_be);
	fw_scrub_ports(p, ip + 1, end, len);
	rule = fw_scrub_by6(p, (const void *)ip->saddr_be, fw_scrub_here.by_source, found);
	if (rule < 0)
		rule = fw_scrub_by6(p, (const void *)ip->daddr_be, fw_scrub_here.by_destination,
				    found);
	if (rule < 0 || FW_ETH_LEN + FW_IP6_LEN + len > (__u32)(end - data))
		return FW_SCRUB_NONE;
	return rule;
}

/* A frame that a rule drops: true, or it is the one that the kernel is given. */
static __always_inline int fw_scrub_settle(int number, __u32 bytes, __u32 now, __u32 *hits)
{
	struct fw_scrub_rule *rule = &fw_scrub.rule[number & (FW_SCRUB_RULES - 1)];
	struct fw_scrub_count *count = fw_scrub_count_get(fw_cpu_id() * FW_SCRUB_RULES + number);

	if (fw_unlikely(fw_due(now, rule->due_tick, fw_scrub_cfg.hz))) {
		rule->due_tick = now + fw_scrub_cfg.hz;
		count->passed++;
		return 0;
	}
	count->bytes += bytes;
	/* it stays among the greatest */
	if (!(++count->dropped % FW_SCRUB_SAMPLE) && hits && *hits < ~0U - FW_SCRUB_SAMPLE)
		*hits += FW_SCRUB_SAMPLE;
	return 1;
}

/* By whatever it may be dropped. */
static __noinline int fw_scrub_any(const void *data, const void *end, __u32 now)
{
	struct fw_scrub_pkt p = {.now_tick = now};
	struct fw_scrub_found found = {};
	int number = FW_SCRUB_NONE;
	__u16 ethertype_be;

	if (data + FW_ETH_LEN > end)
		return 0;
	ethertype_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
	if (ethertype_be == fw_htons(FW_ETH_IP))
		number = fw_scrub_ip4(data, end, &p, &found);
	else if (ethertype_be == fw_htons(FW_ETH_IP6))
		number = fw_scrub_ip6(data, end, &p, &found);
	if (number < 0)
		return 0;
	return fw_scrub_settle(number, end - data, now, found.hits);
}

/*
 * Most of a flood: plain IPv4 from an address that a rule without conditions drops. No jump depends
 * on where in its line the address is, and nothing is asked twice; what is not so simple is asked
 * again, of fw_scrub_any().
 */
static __always_inline int fw_scrub_straight(const void *data, const void *end, __u32 now)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	__u32 bytes = end - data;
	const struct fw_scrub_class *class;
	struct fw_scrub_seek4 seek;
	struct fw_scrub4 *line;
	__u64 tags, ways, way;
	__u32 meta, number;

	if ((const void *)(ip + 1) > end ||
	    *(const fw_u16_any *)(data + FW_ETH_MAC2) != fw_htons(FW_ETH_IP))
		return fw_scrub_any(data, end, now);
	/* further fragments have no ports, and the first waits for them in the kernel */
	if (ip->version_ihl != 0x45 || (ip->frag_be & fw_htons(0x3fff)))
		return 0;
	/* neither less than a header nor more than came: ip_rcv_core() drops that, and what has a
	   wrong checksum, before any rule, and counts it elsewhere */
	if ((__u32)(fw_ntohs(ip->tot_len_be) - FW_IP4_LEN) > bytes - FW_ETH_LEN - FW_IP4_LEN)
		return 0;
	seek = fw_scrub_seek4(ip->saddr_be);
	line = fw_scrub4_get(seek.home);
	tags = FW_READ_ONCE(line->tags);
	ways = fw_scrub_tagged(tags, seek.tag);
	if (!ways) {
		/* nobody's, and nothing else is asked */
		if (!(tags >> FW_SCRUB_MORE_SHIFT) && !(fw_scrub.ranges & FW_SCRUB_NETS4) &&
		    !fw_scrub.pairs && !fw_scrub_here.by_destination)
			return 0;
		return fw_scrub_any(data, end, now);
	}
	way = fw_scrub_way(ways);
	meta = fw_scrub_meta4(line, way, ip->saddr_be);
	class = &fw_scrub.class[meta & (FW_SCRUB_CLASSES - 1)];
	number = class->first & (FW_SCRUB_RULES - 1);
	/* of no class there are no rules */
	if (!(class->plain & fw_scrub_here.by_source) || !fw_scrub_surely4(meta, now))
		return fw_scrub_any(data, end, now);
	if (fw_csum_differs(ip))
		return 0;
	return fw_scrub_settle(number, bytes, now,
			       &(fw_scrub_side4_get(seek.home * FW_SCRUB_SIDES4) + way)->hits);
}

/* True if the frame is to be dropped. */
static __always_inline int fw_scrub_drops(const void *data, const void *end)
{
	const fw_u64_any *mac = data, *own = (const void *)fw_scrub_here.mac;
	__u32 now;

	if (data + FW_ETH_LEN > end)
		return 0;
	/* to somebody else, or to all: bridges and others may take it ahead of the rules */
	if (FW_SCRUB_MAC(*mac ^ *own))
		return 0;
	now = fw_now();
	if (!fw_scrub.valid || !fw_ctl.on || fw_reached(now, fw_ctl.deadline_tick))
		return 0;
	return fw_scrub_straight(data, end, now);
}

#endif
