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
 * ~(~check + delta) in ones' complement, which is check - delta.
 */
static __always_inline __u16 fw_csum_apply(__u16 check, __u16 delta)
{
#ifdef __bpf__
	__u32 left = (__u32)check - delta;

	return left + (left >> 16);
#else
	__u16 left;

	/* a machine with a carry flag takes the borrow by it */
	return __builtin_sub_overflow(check, delta, &left) ? left - 1 : left;
#endif
}

/* UDP sends 0 for "none", so a computed 0 is sent as 0xffff (RFC 768). */
static __always_inline __u16 fw_csum_apply_udp(__u16 check, __u16 delta)
{
#ifdef __bpf__
	__u32 sum = (__u32)check + (delta ^ 0xffff);

	return check ? sum + (sum >> 16) : 0;
#else
	__u16 without = ~delta, sum;

	if (fw_unlikely(!check))
		return 0;
	return __builtin_add_overflow(check, without, &sum) ? sum + 1 : sum;
#endif
}

/* The sum of an IPv4 header without options: 0xffff if it is right. */
static __always_inline __u16 fw_csum_ip(const void *header)
{
	const fw_u32_any *word = header;

	return fw_csum_fold((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

/*
 * 0 if the IPv4 header sums up, which is: its sum is a multiple of 65535. Times
 * the inverse of 65535 modulo 2^64 a multiple is the quotient, and small; any
 * other number is more than the greatest quotient.
 */
static __always_inline __u64 fw_csum_differs(const void *header)
{
	const __u64 inverse = -0x0001000100010001ULL;
	const fw_u32_any *word = header;
#ifdef __bpf__
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];

	return sum * inverse >> 20;
#else
	const fw_u64_any *words = header;
	unsigned long long carry, sum;

	/* eight octets at a time, and the carry goes around: still the same modulo 65535 */
	sum = __builtin_addcll(word[4], words[0], 0, &carry);
	sum = __builtin_addcll(sum, words[1], carry, &carry);
	return (sum + carry) * inverse > ~0ULL / 0xffff;
#endif
}

#endif
