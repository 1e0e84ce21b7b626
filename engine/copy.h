/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames that leave on another node than the one they came in at, copied to that node's memory. */
#ifndef FWE_COPY_H
#define FWE_COPY_H

#include "engine.h"

struct fwe_copied {
	__u32 copied;
	__u32 not_copied;
};

/*
 * Copies those of the frames that are not in the pool; where it has no buffer free they stay as
 * they are, which is as right.
 */
struct fwe_copied fwe_copy(struct rte_mempool *pool, struct rte_mbuf **frames, __u32 count);

/*
 * Nanoseconds of a worker that a frame of so many octets costs between the device that received it
 * and the one that has sent it: handed over as it is, or copied to the other pool; and freed. The
 * mean of so many frames, in bursts. Negative: a pool is empty.
 */
double fwe_copy_cost(struct rte_mempool *from, struct rte_mempool *to, __u32 len, __u64 frames,
		     int copied);

#endif
