/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* DPDK's structures for longest prefix match, to be measured. EAL runs. */
#ifndef FW_ENGINE_LOOKUP_H
#define FW_ENGINE_LOOKUP_H

#include <linux/types.h>

/* rte_fib of type DIR-24-8, 2-byte next hops; NULL if there is no room. 0 is no route. */
void *fwe_fib_new(const char *name, int socket, __u32 routes, __u32 longs);
int fwe_fib_add(void *fib, __u32 address, __u8 length, __u16 nexthop);
void fwe_fib_free(void *fib);
/* Takes AVX-512 for bursts, or scalar code; negative if that is not there. */
int fwe_fib_vector(void *fib, int vector);
/* Bytes of what lookups read. */
__u64 fwe_fib_bytes(void *fib, __u32 longs);
/* Moves what lookups read first, the 2^24, to pages of 2 MiB in place; 0 or a negative errno. */
int fwe_fib_to_huge(void *fib);

/* Bytes of a struct rte_lpm and so many groups of tbl8. */
__u64 fwe_lpm_bytes(__u32 groups);
/*
 * Writes into such memory, which is 0, what rte_lpm_add() would have written: that looks for each
 * rule among all others of its length, so a full table would take minutes. `slots` are the next
 * hops of the 2^24 /24s; those with bit 15 are the number of a group of 256 next hops.
 */
void fwe_lpm_fill(void *memory, const __u16 *slots, const __u16 *groups, __u32 count);

#endif
