/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Internet checksum: RFC 1071, incremental update by RFC 1624 eqn. 3. */
#ifndef FW_CSUM_H
#define FW_CSUM_H

#include "abi.h"
#include "target/bytes.h"

/* Sums are of 16-bit words as they lie in memory, so byte order cancels out. */
static __always_inline __u16 fw_csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* What a 32-bit word that changes adds to a sum: ~old + new, without a carry. */
static __always_inline __u64 fw_csum_diff(__u32 old, __u32 new)
{
	return (__u64)(__u32)~old + new;
}

/*
 * The checksum field after its words changed by delta, which is never 0:
 * ~(~check + delta) in ones' complement, where a sum of 0xffff is 0.
 */
static __always_inline __u16 fw_csum_apply(__u16 check, __u16 delta)
{
	__u32 sum = (__u32)check + (delta ^ 0xffff);

	return sum + ((sum + 1) >> 16);
}

/* UDP sends 0 for "none", so a computed 0 is sent as 0xffff (RFC 768). */
static __always_inline __u16 fw_csum_apply_udp(__u16 check, __u16 delta)
{
	__u32 sum = (__u32)check + (delta ^ 0xffff);

	return check ? sum + (sum >> 16) : 0;
}

/* The sum of an IPv4 header without options: 0xffff if it is right. */
static __always_inline __u16 fw_csum_ip(const void *header)
{
	const fw_u32_any *word = header;

	return fw_csum_fold((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

/*
 * True if it is. Ones' complement is arithmetic modulo 0xffff: right is what that divides, which is
 * what a product by its inverse modulo 2^64 tells (Granlund and Montgomery). The sum is not 0.
 */
static __always_inline int fw_csum_ip_right(const void *header)
{
	const fw_u32_any *word = header;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];

	return sum * 0xfffefffefffeffffULL <= 0x0001000100010001ULL;
}

#endif
