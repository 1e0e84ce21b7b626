/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Longest prefix match for IPv6 destinations: intervals of addresses in trees of cache lines.
 *
 * The first 16 bits of an address choose a chunk, and what follows is read as digits of 32 bits
 * (the last has 16, and zeroes). A tree has the intervals of one digit; one that longer prefixes
 * divide leads to a tree of the next. A node of a tree is a cache line: the last digits of 16
 * intervals, or of what is below 16 of 17 nodes. How many of them an address exceeds says where to
 * go on. So an address in a /48 costs a root and one line for each sixteenfold of intervals below
 * its /16, and whatever no route of its /16 is for costs the root alone.
 *
 * Flat arrays, indexes are masked: for BPF and natively. Addresses are in host order. crates/prefix
 * writes it, as it does prefix4.h's: a chunk is never written while it can be read.
 */
#ifndef FW_PREFIX6_H
#define FW_PREFIX6_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

enum fw_p6_const {
	FW_P6_CHUNK_BITS = 16,
	FW_P6_CHUNKS = 1 << FW_P6_CHUNK_BITS,
	FW_P6_DIGIT_BITS = 32,
	FW_P6_DIGITS = 4,
	/* Intervals of a node, one fewer than nodes below it. */
	FW_P6_KEYS = 16,
	/* 16 x 17^4 intervals are more than there is room for. */
	FW_P6_DEPTH_MAX = 5,
	/*
	 * A word of the root is a next hop by 8; or the word at which a chunk's first tree begins,
	 * a cache line's first, and how deep it is. A value of an interval is a next hop; or, with
	 * this bit, how many words ahead of its own tree another begins, and how deep that is.
	 */
	FW_P6_DEPTH_MASK = 7,
	FW_P6_LEAF_SHIFT = 3,
	FW_P6_TREE = 1U << 31,
	FW_P6_ALIGN_WORDS = 8,
	FW_P6_WORDS = 1 << 20,
};

struct fw_prefix6 {
	/* Where the root that is in force begins: the one word that switches. */
	__u32 generation;
	__u32 unused[15];
	__u32 root[2 * FW_P6_CHUNKS];
	__u64 words[FW_P6_WORDS];
} __attribute__((aligned(64)));

/* 1 if a key is below a digit. */
static __always_inline __u32 fw_p6_below(__u32 key, __u32 digit)
{
	__u64 differ = (__u64)key - digit;

#ifdef __bpf__
	/* the compiler would make a branch of it */
	asm volatile("" : "+r"(differ));
#endif
	return differ >> 63;
}

/* How many of a node's keys are below a digit: of every fourth one, then of those between. */
static __always_inline __u32 fw_p6_rank(const __u32 *keys, __u32 digit)
{
	__u32 rank = fw_p6_below(keys[3], digit) + fw_p6_below(keys[7], digit) +
		     fw_p6_below(keys[11], digit);

	rank *= 4;
#ifdef __bpf__
	/* the verifier of Linux 6.1 knows no bounds of a product */
	asm volatile("" : "+r"(rank));
	rank &= FW_P6_KEYS - 4;
#endif
	keys += rank;
	return rank + fw_p6_below(keys[0], digit) + fw_p6_below(keys[1], digit) +
	       fw_p6_below(keys[2], digit) + fw_p6_below(keys[3], digit);
}

/* A node: they are in the order of their levels, of which only the last one may not be whole. */
static __always_inline const __u32 *fw_p6_line(const struct fw_prefix6 *table, __u32 word)
{
	return (const __u32 *)&table->words[word & (FW_P6_WORDS - FW_P6_ALIGN_WORDS)];
}

/* The value of a node's interval: they lie ahead of the first node, the first one last. */
static __always_inline const __u32 *fw_p6_before(const struct fw_prefix6 *table, __u32 begin,
						 __u32 interval)
{
	return (const __u32 *)table->words + ((2 * begin - 1 - interval) & (2 * FW_P6_WORDS - 1));
}

/* The value of a digit in a tree. */
static __always_inline __u32 fw_p6_value(const struct fw_prefix6 *table, __u32 begin, __u32 depth,
					 __u32 digit)
{
	__u32 node = 0, rank = fw_p6_rank(fw_p6_line(table, begin), digit);

	for (__u32 level = 1; level < FW_P6_DEPTH_MAX && level < depth; level++) {
		node = node * (FW_P6_KEYS + 1) + 1 + rank;
		rank = fw_p6_rank(fw_p6_line(table, begin + node * FW_P6_ALIGN_WORDS), digit);
	}
	return *fw_p6_before(table, begin, node * FW_P6_KEYS + rank);
}

/* The root's word of an address. */
static __always_inline __u32 fw_prefix6_root(const struct fw_prefix6 *table, __u64 high)
{
	__u32 root = *(const volatile __u32 *)&table->generation + (__u32)(high >> 48);

	return *(const volatile __u32 *)&table->root[root & (2 * FW_P6_CHUNKS - 1)];
}

/* The next hop of an address, by its first and last 64 bits, or 0. */
static __always_inline __u32 fw_prefix6_lookup(const struct fw_prefix6 *table, __u64 high,
					       __u64 low)
{
	__u32 value = fw_prefix6_root(table, high);
	__u32 begin = value & ~FW_P6_DEPTH_MASK;

	if (!(value & FW_P6_DEPTH_MASK))
		return value >> FW_P6_LEAF_SHIFT;
	/* the next digit is at the top */
	high = high << 16 | low >> 48;
	low <<= 16;
	for (__u32 at = 0; at < FW_P6_DIGITS; at++) {
		value = fw_p6_value(table, begin, value & FW_P6_DEPTH_MASK, high >> 32);
		if (__builtin_expect(!(value & FW_P6_TREE), 1))
			return value;
		begin -= value & ~(FW_P6_TREE | FW_P6_DEPTH_MASK);
		high = high << 32 | low >> 32;
		low <<= 32;
	}
	return 0;
}

#endif
