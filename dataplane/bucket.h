/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Buckets of flows, which a dispatcher gives to workers. A connection's bucket is the sum of what
 * its two ends are worth, so both directions are in one bucket. A translated connection's are, too,
 * if the end that was put in place of the other is worth the same.
 */
#ifndef FW_BUCKET_H
#define FW_BUCKET_H

#include "abi.h"

enum {
	FW_BUCKET_BITS = 9,
	FW_BUCKETS = 1 << FW_BUCKET_BITS,
};

/* A product alone has what is in a row, hosts and ports, in a row as well: with some keys in few
 * buckets. */
static __always_inline __u32 fw_bucket_fold(__u64 product, const __u64 *key)
{
	return ((product ^ product >> 32) * key[1]) >> (64 - FW_BUCKET_BITS);
}

/* Of an IPv4 address and port. `key`: fw_config.hash_key, secret, so that nobody can crowd a
 * bucket. */
static __always_inline __u32 fw_bucket_end4(__u32 addr_be, __u16 port_be, const __u64 *key)
{
	return fw_bucket_fold(((__u64)port_be << 32 | addr_be) * key[0], key);
}

/* Of an IPv6 address, as two words in memory's order, and port. */
static __always_inline __u32 fw_bucket_end6(__u64 addr_high, __u64 addr_low, __u16 port_be,
					    const __u64 *key)
{
	return fw_bucket_fold(addr_high * key[0] + addr_low * key[1] + port_be * key[2], key);
}

/* Of either family. */
static __always_inline __u32 fw_bucket_end(const struct fw_source_end *end, const __u64 *key)
{
	__u64 words[2];

	if (end->family == FW_AF_INET)
		return fw_bucket_end4(end->addr_be[0], end->port_be, key);
	__builtin_memcpy(words, end->addr_be, sizeof(words));
	return fw_bucket_end6(words[0], words[1], end->port_be, key);
}

static __always_inline __u32 fw_bucket(__u32 end, __u32 other_end)
{
	return (end + other_end) & (FW_BUCKETS - 1);
}

#endif
