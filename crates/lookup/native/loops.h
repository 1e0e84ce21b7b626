/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The loops that are timed, alike for all structures. They return the sum of the next hops, which
 * must be the same for all of them.
 */
#ifndef FW_LOOPS_H
#define FW_LOOPS_H

#include <linux/types.h>

enum { FWL_BURST = 64 };

/*
 * NAME_single: one at a time, each independent of the one before.
 * NAME_dependent: each address is known when the next hop before is: `zero` is 0, which the
 * compiler does not know.
 * NAME_burst: 64 at a time, next hops to memory; `count` is a multiple of it.
 */
#define FWL_SINGLE(name, type, lookup)                                                             \
	__u64 name##_single(const void *at, const __u32 *keys, __u32 count, __u32 zero);           \
	__u64 name##_single(const void *at, const __u32 *keys, __u32 count, __u32 zero)            \
	{                                                                                          \
		const type *table = at;                                                            \
		__u64 sum = zero;                                                                  \
                                                                                                   \
		for (__u32 i = 0; i < count; i++)                                                  \
			sum += lookup(table, keys[i]);                                             \
		return sum;                                                                        \
	}                                                                                          \
	__u64 name##_dependent(const void *at, const __u32 *keys, __u32 count, __u32 zero);        \
	__u64 name##_dependent(const void *at, const __u32 *keys, __u32 count, __u32 zero)         \
	{                                                                                          \
		const type *table = at;                                                            \
		__u32 nexthop = 0;                                                                 \
		__u64 sum = 0;                                                                     \
                                                                                                   \
		for (__u32 i = 0; i < count; i++) {                                                \
			nexthop = lookup(table, keys[i] ^ (nexthop & zero));                       \
			sum += nexthop;                                                            \
		}                                                                                  \
		return sum;                                                                        \
	}

#define FWL_BURST_OF(name, type, lookup)                                                           \
	__u64 name##_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero);            \
	__u64 name##_burst(const void *at, const __u32 *keys, __u32 count, __u32 zero)             \
	{                                                                                          \
		const type *table = at;                                                            \
		__u16 nexthops[FWL_BURST];                                                         \
		__u64 sum = zero;                                                                  \
                                                                                                   \
		for (__u32 i = 0; i < count; i += FWL_BURST) {                                     \
			for (__u32 j = 0; j < FWL_BURST; j++)                                      \
				nexthops[j] = lookup(table, keys[i + j]);                          \
			for (__u32 j = 0; j < FWL_BURST; j++)                                      \
				sum += nexthops[j];                                                \
		}                                                                                  \
		return sum;                                                                        \
	}

#define FWL_LOOPS(name, type, lookup)                                                              \
	FWL_SINGLE(name, type, lookup)                                                             \
	FWL_BURST_OF(name, type, lookup)

#endif
