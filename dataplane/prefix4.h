/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Longest prefix match for IPv4 destinations: a ranked bitmap for each 64 of the 2^24 /24s.
 *
 * A /18 is a record: 64 bits, of which one is set where a /24's next hop differs from that of the
 * /24 before, and after them its next hops. The number of bits set so far (rank, Jacobson 1989) is
 * the place of a /24's. A /11 is a chunk: where its 128 records are, and those, equal ones being
 * one. A /24 that longer prefixes divide has a bitmap of its own in the chunk. So a lookup is four
 * dependent loads, of which the first stays in L1, the second in L2, and the last is beside the
 * third; and no branch but one for divided /24s, no loop.
 *
 * Flat arrays, indexes are masked: for BPF and natively. Addresses are in host order. crates/prefix
 * writes it. A chunk is never written while it can be read: a change is a new chunk elsewhere, and
 * a new root beside the old one.
 */
#ifndef FW_PREFIX4_H
#define FW_PREFIX4_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

enum fw_p4_const {
	FW_P4_CHUNKS = 1 << 11,
	/* Bits of an address in a chunk, in a record. */
	FW_P4_CHUNK_BITS = 21,
	FW_P4_RECORD_BITS = 14,
	/*
	 * A record begins with its 64 /24s by eight: whether each but the first differs from the
	 * one before, and above that the place of the first one's leaf. Leaves follow.
	 */
	FW_P4_GROUPS = 8,
	FW_P4_BIT_SHIFT = 3,
	FW_P4_RANK_SHIFT = 10,
	FW_P4_GROUP_BITS = (1 << FW_P4_RANK_SHIFT) - (1 << FW_P4_BIT_SHIFT),
	FW_P4_RECORDS = 1 << (FW_P4_CHUNK_BITS - FW_P4_RECORD_BITS),
	/*
	 * A chunk: 16 bits for each record, the word at which it begins; a word with that of the
	 * divided /24s; records; divided /24s; their next hops.
	 */
	FW_P4_INDEX_WORDS = FW_P4_RECORDS / 4,
	FW_P4_HEAD_WORDS = FW_P4_INDEX_WORDS + 1,
	/* Chunks begin at a cache line. */
	FW_P4_ALIGN_WORDS = 8,
	/* Words of all chunks, those in force and those that replace them. */
	FW_P4_WORDS = 1 << 20,
	/* A leaf: a next hop, 0 is none; or, with this bit, the number of a divided /24. */
	FW_P4_LONG = 1 << 15,
	FW_P4_NEXTHOP_MAX = FW_P4_LONG - 1,
	/* No index of a chunk leads beyond it, but the verifier does not know: a record begins in
	   16 bits of words, and its leaves have places of two octets. */
	FW_P4_BEYOND = (1 << 16) + 128,
	FW_P4_BURST = 64,
};

/* A /24 that longer prefixes divide; offsets are in words of its chunk. */
struct fw_p4_long {
	__u64 bits[4];
	__u32 leaves;
	/* Bits set in the words before. */
	__u8 ranks[4];
};

struct fw_prefix4 {
	/* Where the root that is in force begins: the one word that switches. */
	__u32 generation;
	__u32 unused[15];
	/*
	 * Constant: bits that are set in a group up to a /24, by both. Arithmetic takes twice the
	 * instructions, and BPF has no population count.
	 */
	__u8 ranks[1 << FW_P4_RANK_SHIFT];
	/* Where the chunks begin; two of them. */
	__u32 root[2 * FW_P4_CHUNKS];
	__u64 words[FW_P4_WORDS + FW_P4_BEYOND];
} __attribute__((aligned(64)));

/* Bits set. BPF has no instruction for it; Hacker's Delight, 5-1. */
static __always_inline __u32 fw_popcount(__u64 word)
{
	word -= (word >> 1) & 0x5555555555555555;
	word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (word * 0x0101010101010101) >> 56;
}

/* The bits 0 to `last`, 0..63. */
static __always_inline __u64 fw_bits_to(__u32 last)
{
	return ~0ULL >> (63 - last);
}

static __always_inline const __u64 *fw_p4_at(const struct fw_prefix4 *table, __u32 word)
{
	return &table->words[word & (FW_P4_WORDS - 1)];
}

/* The next hop of an address in a divided /24. */
static __always_inline __u32 fw_prefix4_divided(const struct fw_prefix4 *table, __u32 chunk,
						__u32 address, __u32 leaf)
{
	__u32 longs = (__u32)*fw_p4_at(table, chunk + FW_P4_INDEX_WORDS);
	const struct fw_p4_long *node = (const void *)fw_p4_at(
		table, chunk + longs + (leaf & FW_P4_NEXTHOP_MAX) * (__u32)(sizeof(*node) / 8));
	__u32 word = (address >> 6) & 3;
	__u32 rank = node->ranks[word] + fw_popcount(node->bits[word] & fw_bits_to(address & 63));

	return ((const __u16 *)fw_p4_at(table, chunk + node->leaves))[rank];
}

/* The word at which the chunk of an address begins. */
static __always_inline __u32 fw_prefix4_chunk(const struct fw_prefix4 *table, __u32 address)
{
	__u32 root = *(const volatile __u32 *)&table->generation + (address >> FW_P4_CHUNK_BITS);

	return *(const volatile __u32 *)&table->root[root & (2 * FW_P4_CHUNKS - 1)];
}

/* Where a chunk says at which of its words the record of an address begins. */
static __always_inline const __u16 *fw_prefix4_index(const struct fw_prefix4 *table, __u32 chunk,
						     __u32 address)
{
	const __u16 *index = (const __u16 *)fw_p4_at(table, chunk);

	return index + ((address >> FW_P4_RECORD_BITS) & (FW_P4_RECORDS - 1));
}

static __always_inline const __u16 *fw_prefix4_record(const struct fw_prefix4 *table, __u32 chunk,
						      __u32 at)
{
	/* 16 bits: within what is beyond the last chunk's beginning */
	return (const __u16 *)fw_p4_at(table, chunk) + 4 * at;
}

/* The next hop of an address, by its record. */
static __always_inline __u32 fw_prefix4_nexthop(const struct fw_prefix4 *table, __u32 chunk,
						const __u16 *record, __u32 address)
{
	__u32 group = record[(address >> 11) & (FW_P4_GROUPS - 1)];
	__u32 within = (group & FW_P4_GROUP_BITS) | ((address >> 8) & 7);
	__u32 rank, leaf;

#ifdef __bpf__
	/* the verifier of Linux 6.1 knows no bounds of a sum by OR */
	asm volatile("" : "+r"(within));
	within &= (1 << FW_P4_RANK_SHIFT) - 1;
#endif
	rank = (group >> FW_P4_RANK_SHIFT) + table->ranks[within];
	leaf = record[FW_P4_GROUPS + rank];

	if (__builtin_expect(leaf & FW_P4_LONG, 0))
		leaf = fw_prefix4_divided(table, chunk, address, leaf);
	return leaf;
}

/* The next hop of an address, or 0. */
static __always_inline __u32 fw_prefix4_lookup(const struct fw_prefix4 *table, __u32 address)
{
	__u32 chunk = fw_prefix4_chunk(table, address);
	__u32 at = *fw_prefix4_index(table, chunk, address);

	return fw_prefix4_nexthop(table, chunk, fw_prefix4_record(table, chunk, at), address);
}

#ifndef __bpf__
/* Those of at most FW_P4_BURST addresses: records are on their way while others are looked for. */
static __always_inline void fw_prefix4_burst(const struct fw_prefix4 *table, const __u32 *addresses,
					     __u16 *nexthops, __u32 count)
{
	__u32 chunk[FW_P4_BURST];
	const __u16 *record[FW_P4_BURST];

	for (__u32 i = 0; i < count; i++) {
		__u32 at;

		chunk[i] = fw_prefix4_chunk(table, addresses[i]);
		at = *fw_prefix4_index(table, chunk[i], addresses[i]);
		record[i] = fw_prefix4_record(table, chunk[i], at);
		__builtin_prefetch(record[i]);
	}
	for (__u32 i = 0; i < count; i++)
		nexthops[i] = fw_prefix4_nexthop(table, chunk[i], record[i], addresses[i]);
}
#endif

#endif
