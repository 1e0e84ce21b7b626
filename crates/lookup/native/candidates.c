/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What else could be the structure: written from the papers, for measurements alone. Each is a
 * block of 32-bit words, whose first ones say where its arrays begin, in words.
 */
#include "loops.h"
#include "prefix4.h"

enum { FWL_LONG = 1 << 15 };

static __always_inline const __u16 *halves(const __u32 *block, __u32 at)
{
	return (const __u16 *)(block + block[at]);
}

/* DIR-24-8 (Gupta, Lin, McKeown 1998): 0: the 2^24; 1: blocks of 256. */
static __always_inline __u32 dir24_lookup(const __u32 *block, __u32 address)
{
	__u32 leaf = halves(block, 0)[address >> 8];

	if (__builtin_expect(leaf & FWL_LONG, 0))
		leaf = halves(block, 1)[(leaf & (FWL_LONG - 1)) << 8 | (address & 255)];
	return leaf;
}
FWL_LOOPS(fwl_dir24, __u32, dir24_lookup)

/* 16, 8 and 8 bits, equal blocks are one: 0: the block of a /16; 1: blocks; 2: of divided /24s. */
static __always_inline __u32 blocks_lookup(const __u32 *block, __u32 address)
{
	__u32 leaf = halves(block, 0)[address >> 16];

	leaf = halves(block, 1)[leaf << 8 | ((address >> 8) & 255)];
	if (__builtin_expect(leaf & FWL_LONG, 0))
		leaf = halves(block, 2)[(leaf & (FWL_LONG - 1)) << 8 | (address & 255)];
	return leaf;
}
FWL_LOOPS(fwl_blocks, __u32, blocks_lookup)

/*
 * DXR, D16X4R (Zec, Rizzo, Mikuc 2012; Zec, Mikuc 2017). 0: for each /16 its 16 descriptors; 1:
 * descriptors, where equal groups of them are one; 2: short ranges, the first /24 in the upper 4
 * bits and the next hop in 12; 3: long ranges, the first address in the upper half. A descriptor
 * is a next hop (0 ranges), or where its ranges begin, above the number of them less 1 and whether
 * they are long.
 */
static __always_inline __u32 dxr_descriptor(const __u32 *block, __u32 address)
{
	__u32 group = halves(block, 0)[address >> 16];

	return (block + block[1])[group << 4 | ((address >> 12) & 15)];
}

enum { FWL_DXR_RANGES = 0, FWL_DXR_LONG = 1 << 5, FWL_DXR_HIT = 31, FWL_DXR_AT = 6 };

/* Long ranges of more than 30 have their number ahead of them. */
static __always_inline __u32 dxr_long(const __u32 *block, __u32 descriptor, __u32 address)
{
	const __u32 *range = block + block[3] + (descriptor >> FWL_DXR_AT);
	__u32 count = *range++, key = (address & 4095) << 16 | 0xffff;

	while (count > 1) {
		__u32 half = count / 2;

		if (range[half] <= key)
			range += half;
		count -= half;
	}
	return *range & 0xffff;
}

/* As FreeBSD does: halves until one is left, with a branch for each. */
static __always_inline __u32 dxr_lookup(const __u32 *block, __u32 address)
{
	__u32 descriptor = dxr_descriptor(block, address), low = 0, high = descriptor & 31;
	const __u16 *range;
	__u32 key;

	if (high == FWL_DXR_HIT)
		return descriptor >> FWL_DXR_AT;
	if (descriptor & FWL_DXR_LONG)
		return dxr_long(block, descriptor, address);
	range = halves(block, 2) + (descriptor >> FWL_DXR_AT);
	key = (address >> 8) & 15;
	while (low < high) {
		__u32 middle = (low + high + 1) / 2;

		if ((__u32)(range[middle] >> 12) <= key)
			low = middle;
		else
			high = middle - 1;
	}
	return range[low] & 0xfff;
}
FWL_LOOPS(fwl_dxr, __u32, dxr_lookup)

/* Branch-free: four steps, whatever the number of ranges. Those read beyond do not count. */
static __always_inline __u32 dxr_flat_lookup(const __u32 *block, __u32 address)
{
	__u32 descriptor = dxr_descriptor(block, address), last = descriptor & 31, at = 0;
	__u32 key = (address >> 8) & 15;
	const __u16 *range = halves(block, 2);

	if (last == FWL_DXR_HIT)
		return descriptor >> FWL_DXR_AT;
	if (__builtin_expect(descriptor & FWL_DXR_LONG, 0))
		return dxr_long(block, descriptor, address);
	range += descriptor >> FWL_DXR_AT;
	for (__u32 step = 8; step; step /= 2) {
		__u32 next = at + step;

		at = (__u32)(range[next] >> 12) <= key && next <= last ? next : at;
	}
	return range[at] & 0xfff;
}
FWL_LOOPS(fwl_dxr_flat, __u32, dxr_flat_lookup)

/*
 * Compressed nodes of 6 bits below a direct level of 16, with runs of equal leaves as one (after
 * Asai, Ohara 2015). 0: for each /16 a node, or with the upper bit a leaf; 1: nodes; 2: leaves.
 */
struct fwl_node {
	__u64 children;
	__u64 runs;
	__u32 child;
	__u32 leaf;
};

static __always_inline __u32 poptrie_lookup(const __u32 *block, __u32 address)
{
	const struct fwl_node *nodes = (const void *)(block + block[1]), *node;
	__u32 at = (block + block[0])[address >> 16], slot;
	/* two bits more, so that three levels end with it */
	__u64 key = (__u64)address << 2;

	if (at >> 31)
		return at & 0xffff;
	for (__u32 shift = 12;; shift -= 6) {
		node = &nodes[at];
		slot = (key >> shift) & 63;
		if (!(node->children >> slot & 1))
			break;
		at = node->child - 1 + fw_popcount(node->children & fw_bits_to(slot));
	}
	return halves(block, 2)[node->leaf - 1 + fw_popcount(node->runs & fw_bits_to(slot))];
}
FWL_LOOPS(fwl_poptrie, __u32, poptrie_lookup)

/* What XDP and the engine take. */
FWL_SINGLE(fwl_bitmap, struct fw_prefix4, fw_prefix4_lookup)
__u64 fwl_bitmap_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero);
__u64 fwl_bitmap_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero)
{
	__u16 nexthops[FWL_BURST];
	__u64 sum = zero;

	for (__u32 i = 0; i < count; i += FWL_BURST) {
		fw_prefix4_burst(at, keys + i, nexthops, FWL_BURST);
		for (__u32 j = 0; j < FWL_BURST; j++)
			sum += nexthops[j];
	}
	return sum;
}
