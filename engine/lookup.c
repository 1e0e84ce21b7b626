/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* DPDK's structures for longest prefix match, and the loops that measure them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_lpm.h>
#include <rte_malloc.h>

#include "lookup.h"
#include "loops.h"

void *fwe_fib_new(const char *name, int socket, __u32 routes, __u32 longs)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = routes,
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = longs},
	};

	return rte_fib_create(name, socket, &conf);
}

int fwe_fib_add(void *fib, __u32 address, __u8 length, __u16 nexthop)
{
	return rte_fib_add(fib, address, length, nexthop);
}

void fwe_fib_free(void *fib)
{
	rte_fib_free(fib);
}

int fwe_fib_vector(void *fib, int vector)
{
	return rte_fib_select_lookup(fib, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
						 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE);
}

__u64 fwe_fib_bytes(void *fib, __u32 longs)
{
	size_t bytes = 0;

	(void)rte_malloc_validate(rte_fib_get_dp(fib), &bytes);
	return bytes + (__u64)longs * 256 * sizeof(__u16);
}

int fwe_fib_to_huge(void *fib)
{
	const uintptr_t page = 2 << 20;
	uintptr_t at = (uintptr_t)rte_fib_get_dp(fib), first = (at + page - 1) & ~(page - 1), last;
	size_t bytes = 0;
	void *huge;

	if (rte_malloc_validate((void *)at, &bytes) < 0)
		return -EINVAL;
	last = (at + bytes) & ~(page - 1);
	huge = mmap(NULL, last - first, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);
	if (huge == MAP_FAILED)
		return -errno;
	memcpy(huge, (void *)first, last - first);
	if (mremap(huge, last - first, last - first, MREMAP_MAYMOVE | MREMAP_FIXED,
		   (void *)first) == MAP_FAILED) {
		int error = errno;

		munmap(huge, last - first);
		return -error;
	}
	return 0;
}

/* There is no other way to ask for one. */
static __always_inline __u32 fib_lookup(const void *table, __u32 address)
{
	uint64_t nexthop;

	rte_fib_lookup_bulk((struct rte_fib *)(uintptr_t)table, &address, &nexthop, 1);
	return nexthop;
}
FWL_SINGLE(fwe_fib, void, fib_lookup)

__u64 fwe_fib_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero);
__u64 fwe_fib_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero)
{
	uint64_t nexthops[FWL_BURST], sum = zero;

	for (__u32 i = 0; i < count; i += FWL_BURST) {
		rte_fib_lookup_bulk((struct rte_fib *)(uintptr_t)at, (__u32 *)(uintptr_t)&keys[i],
				    nexthops, FWL_BURST);
		for (__u32 j = 0; j < FWL_BURST; j++)
			sum += nexthops[j];
	}
	return sum;
}

__u64 fwe_lpm_bytes(__u32 groups)
{
	return sizeof(struct rte_lpm) +
	       (__u64)groups * RTE_LPM_TBL8_GROUP_NUM_ENTRIES * sizeof(struct rte_lpm_tbl_entry);
}

static struct rte_lpm_tbl_entry entry(__u32 nexthop, __u32 group)
{
	/* the depth is for changes alone */
	return (struct rte_lpm_tbl_entry){
		.next_hop = nexthop, .valid = group || nexthop, .valid_group = group, .depth = 24};
}

void fwe_lpm_fill(void *memory, const __u16 *slots, const __u16 *groups, __u32 count)
{
	struct rte_lpm *lpm = memory;

	lpm->tbl8 = (struct rte_lpm_tbl_entry *)(lpm + 1);
	for (__u32 i = 0; i < RTE_LPM_TBL24_NUM_ENTRIES; i++)
		lpm->tbl24[i] = entry(slots[i] & 0x7fff, slots[i] >> 15);
	for (__u32 i = 0; i < count * RTE_LPM_TBL8_GROUP_NUM_ENTRIES; i++) {
		lpm->tbl8[i] = entry(groups[i], 0);
		/* as rte_lpm_add() has it in groups */
		lpm->tbl8[i].valid_group = lpm->tbl8[i].valid;
	}
}

static __always_inline __u32 lpm_lookup(const void *table, __u32 address)
{
	__u32 nexthop = 0;

	if (rte_lpm_lookup((struct rte_lpm *)(uintptr_t)table, address, &nexthop))
		return 0;
	return nexthop;
}
FWL_SINGLE(fwe_lpm, void, lpm_lookup)

__u64 fwe_lpm_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero);
__u64 fwe_lpm_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero)
{
	struct rte_lpm *lpm = (struct rte_lpm *)(uintptr_t)at;
	__u64 sum = zero;
	__u32 entries[FWL_BURST];

	for (__u32 i = 0; i < count; i += FWL_BURST) {
		rte_lpm_lookup_bulk(lpm, &keys[i], entries, FWL_BURST);
		for (__u32 j = 0; j < FWL_BURST; j++)
			sum += entries[j] & RTE_LPM_LOOKUP_SUCCESS ? entries[j] & 0xffffff : 0;
	}
	return sum;
}
