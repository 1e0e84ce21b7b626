/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: an array of flows with open addressing, so that a hit touches
 * no memory but the flow's own. Lookups are inlined, without a helper call; the
 * manager writes through mmap(2).
 */
#ifndef FW_TABLE_H
#define FW_TABLE_H

#include "abi.h"
#include "target/bytes.h"

/*
 * A key in registers. Composed of words, not written field by field: a load
 * that spans several smaller stores would wait for all of them to retire.
 */
struct fw_words4 {
	__u64 addresses;
	__u64 ports; /* ports and port_proto, as they lie in struct fw_key4 */
};

struct fw_words6 {
	__u64 addresses[4];
	__u64 ports;
};

static __always_inline __u64 fw_words_ports(__u32 ports_be, __u32 port_proto)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (__u64)port_proto << 32 | ports_be;
#else
	return (__u64)ports_be << 32 | port_proto;
#endif
}

/*
 * Flows that differ only in the lower bits of their higher port, the ephemeral
 * one, share a group of adjacent places: the connections of one client to one
 * server, whose ports are close, share pages and are fetched ahead.
 */
struct fw_member {
	__u64 ports; /* without those bits */
	__u32 number;
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { FW_SPORT_BIT = 0, FW_DPORT_BIT = 16 };
#else
enum { FW_SPORT_BIT = 48, FW_DPORT_BIT = 32 };
#endif

static __always_inline struct fw_member fw_member_of(__u64 ports)
{
	const __u64 bits = fw_htons(FW_GROUP - 1);
	__u16 sport = fw_ntohs(ports >> FW_SPORT_BIT), dport = fw_ntohs(ports >> FW_DPORT_BIT);

	if (sport > dport)
		return (struct fw_member){ports & ~(bits << FW_SPORT_BIT), sport};
	return (struct fw_member){ports & ~(bits << FW_DPORT_BIT), dport};
}

/* Where a group's members begin differs from group to group: ports may be the same in all. */
static __always_inline __u64 fw_home(__u64 place, __u32 member)
{
	return place ^ (member & (FW_GROUP - 1));
}

/*
 * Multiply-shift (Dietzfelbinger): the sum of the words, each times a secret odd
 * number. `ports` are the key's, or what a group's members have in common of them.
 */
static __always_inline __u64 fw_sum4(const struct fw_words4 *key, __u64 ports,
				     const volatile struct fw_config *c)
{
	return key->addresses * c->hash_key[0] + ports * c->hash_key[1];
}

static __always_inline __u64 fw_sum6(const struct fw_words6 *key, __u64 ports,
				     const volatile struct fw_config *c)
{
	return ports * c->hash_key[0] + key->addresses[0] * c->hash_key[1] +
	       key->addresses[1] * c->hash_key[2] + key->addresses[2] * c->hash_key[3] +
	       key->addresses[3] * c->hash_key[4];
}

/*
 * The upper bits of the sum name the group and its beginning. `shift` leaves as many
 * bits as a table's places have.
 */
static __always_inline __u64 fw_spread4(const struct fw_words4 *key,
					const volatile struct fw_config *c, __u32 shift)
{
	struct fw_member member = fw_member_of(key->ports);

	return fw_home(fw_sum4(key, member.ports, c) >> shift, member.number);
}

static __always_inline __u64 fw_spread6(const struct fw_words6 *key,
					const volatile struct fw_config *c, __u32 shift)
{
	struct fw_member member = fw_member_of(key->ports);

	return fw_home(fw_sum6(key, member.ports, c) >> shift, member.number);
}

static __always_inline __u64 fw_home4(const struct fw_words4 *key,
				      const volatile struct fw_config *c)
{
	return fw_spread4(key, c, c->hash_shift);
}

static __always_inline __u64 fw_home6(const struct fw_words6 *key,
				      const volatile struct fw_config *c)
{
	return fw_spread6(key, c, c->hash_shift);
}

/* Triangular probing by groups and a place more, so that a displaced group stays together. */
static __always_inline __u64 fw_place(__u64 home, __u32 step)
{
	return home + step + step * (step + 1) / 2 * FW_GROUP;
}

/* 0 if equal. */
static __always_inline __u64 fw_key4_differs(const struct fw_flow *f, const struct fw_words4 *key)
{
	const fw_u64_any *have = (const void *)&f->key;

	return (have[0] ^ key->addresses) | (have[1] ^ key->ports);
}

static __always_inline __u64 fw_key6_differs(const struct fw_flow *f, const struct fw_words6 *key)
{
	const fw_u64_any *have = (const void *)f->key_saddr6_be;
	const fw_u64_any *ports = (const void *)&f->key.sport_be;

	return (have[0] ^ key->addresses[0]) | (have[1] ^ key->addresses[1]) |
	       (have[2] ^ key->addresses[2]) | (have[3] ^ key->addresses[3]) |
	       (*ports ^ key->ports);
}

#endif
