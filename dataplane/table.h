/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: buckets of tagged indices before an array of flows. Lookups
 * are inlined, without a helper call; the manager writes through mmap(2).
 */
#ifndef FW_TABLE_H
#define FW_TABLE_H

#include "abi.h"
#include "target/bytes.h"

#define FW_HASH_1 0x9e3779b97f4a7c15ULL
#define FW_HASH_2 0xc2b2ae3d27d4eb4fULL
#define FW_HASH_3 0x165667b19e3779f9ULL
#define FW_HASH_4 0xd6e8feb86659fd93ULL
#define FW_HASH_5 0xa0761d6478bd642fULL

static __always_inline __u64 fw_hash_finish(__u64 sum)
{
	sum ^= sum >> 29;
	sum *= FW_HASH_3;
	return sum ^ sum >> 32;
}

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

static __always_inline __u64 fw_hash4(const struct fw_words4 *key, __u64 seed)
{
	return fw_hash_finish((key->addresses ^ seed) * FW_HASH_1 +
			      (key->ports ^ seed >> 7) * FW_HASH_2);
}

static __always_inline __u64 fw_hash6(const struct fw_words6 *key, __u64 seed)
{
	return fw_hash_finish((key->addresses[0] ^ seed) * FW_HASH_1 +
			      (key->addresses[1] ^ seed >> 7) * FW_HASH_2 +
			      (key->addresses[2] ^ seed >> 13) * FW_HASH_3 +
			      (key->addresses[3] ^ seed >> 19) * FW_HASH_4 +
			      (key->ports ^ seed >> 23) * FW_HASH_5);
}

static __always_inline __u32 fw_hash_bucket(__u64 hash, __u32 mask)
{
	return hash & mask;
}

static __always_inline __u32 fw_hash_second(__u64 hash, __u32 mask)
{
	return (hash >> 32 ^ 1) & mask;
}

static __always_inline __u32 fw_hash_tag(__u64 hash)
{
	return (__u32)(hash >> 24 & 0xff) << 24;
}

static __always_inline int fw_key4_is(const struct fw_flow *f, const struct fw_words4 *key)
{
	const fw_u64_any *have = (const void *)&f->key;

	return !((have[0] ^ key->addresses) | (have[1] ^ key->ports));
}

static __always_inline int fw_key6_is(const struct fw_flow *f, const struct fw_words6 *key)
{
	const fw_u64_any *have = (const void *)f->key_saddr6_be;
	const fw_u64_any *ports = (const void *)&f->key.sport_be;

	return !((have[0] ^ key->addresses[0]) | (have[1] ^ key->addresses[1]) |
		 (have[2] ^ key->addresses[2]) | (have[3] ^ key->addresses[3]) |
		 (*ports ^ key->ports));
}

#endif
