/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: buckets of tagged indices before an array of flows. Lookups
 * are inlined, without a helper call; the manager writes through mmap(2).
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
 * Multiply-shift (Dietzfelbinger): the upper bits of the sum of the words, each
 * times a secret odd number.
 */
static __always_inline __u64 fw_hash4(const struct fw_words4 *key,
				      const volatile struct fw_config *c)
{
	return (key->addresses * c->hash_key[0] + key->ports * c->hash_key[1]) >> c->hash_shift;
}

static __always_inline __u64 fw_hash6(const struct fw_words6 *key,
				      const volatile struct fw_config *c)
{
	return (key->ports * c->hash_key[0] + key->addresses[0] * c->hash_key[1] +
		key->addresses[1] * c->hash_key[2] + key->addresses[2] * c->hash_key[3] +
		key->addresses[3] * c->hash_key[4]) >>
	       c->hash_shift;
}

/* The slot that a flow takes if it is free, which is looked at first. */
static __always_inline __u64 fw_hash_home(__u64 hash)
{
	return hash >> 8;
}

/* Numbers of the two buckets, to be masked by their count. */
static __always_inline __u64 fw_hash_bucket(__u64 hash)
{
	return fw_hash_home(hash) / FW_BUCKET_SLOTS;
}

static __always_inline __u64 fw_hash_second(__u64 hash)
{
	return hash * 0x9e3779b97f4a7c15ULL >> 32;
}

static __always_inline __u32 fw_hash_tag(__u64 hash)
{
	return (__u32)hash << 24;
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
