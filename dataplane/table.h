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

static __always_inline __u64 fw_hash4(const struct fw_key4 *key, __u64 seed)
{
	const fw_u64_any *word = (const void *)key;

	return fw_hash_finish((word[0] ^ seed) * FW_HASH_1 + (word[1] ^ seed >> 7) * FW_HASH_2);
}

static __always_inline __u64 fw_hash6(const struct fw_key6 *key, __u64 seed)
{
	const fw_u64_any *word = (const void *)key;

	return fw_hash_finish((word[0] ^ seed) * FW_HASH_1 + (word[1] ^ seed >> 7) * FW_HASH_2 +
			      (word[2] ^ seed >> 13) * FW_HASH_3 +
			      (word[3] ^ seed >> 19) * FW_HASH_4 +
			      (word[4] ^ seed >> 23) * FW_HASH_5);
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

static __always_inline int fw_key4_is(const struct fw_flow *f, const struct fw_key4 *key)
{
	const fw_u64_any *a = (const void *)&f->key, *b = (const void *)key;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

static __always_inline int fw_key6_is(const struct fw_flow *f, const struct fw_key6 *key)
{
	const fw_u64_any *a = (const void *)f->key_saddr6_be, *b = (const void *)key;
	const fw_u64_any *ports = (const void *)&f->key.sport_be;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) |
		 (*ports ^ b[4]));
}

#endif
