/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A lane: between the I/O core of a port and one worker. Frames that came in go to the worker, and
 * what the worker sends by the port comes back, if the I/O core transmits. Each count has one
 * writer.
 */
#ifndef FWE_LANE_H
#define FWE_LANE_H

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "dispatch.h"
#include "../dataplane/target/bytes.h"

struct fwe_lane {
	struct rte_ring *in;
	struct rte_ring *out; /* NULL: the worker transmits itself */
	__u32 polled;         /* the worker polls the port's queue, too */
	struct fwe_waker *worker;
	struct fwe_waker *io;
	/* the I/O core's: put into `in`, and given to the device out of `out` */
	__u64 handed __attribute__((aligned(64)));
	__u64 returned;
	/* the worker's: taken out of `in`, of which it has sent what it sends, and put into `out`
	 */
	__u64 taken __attribute__((aligned(64)));
	__u64 done;
	__u64 put;
};

static __always_inline __u32 fwe_lane_take(struct fwe_lane *lane, struct rte_mbuf **frames,
					   __u32 room)
{
	__u32 count = rte_ring_sc_dequeue_burst(lane->in, (void **)frames, room, NULL);

	lane->taken += count;
	return count;
}

/* All that was taken has been sent, or is somebody else's. */
static __always_inline void fwe_lane_done(struct fwe_lane *lane)
{
	if (lane->done != lane->taken)
		__atomic_store_n(&lane->done, lane->taken, __ATOMIC_RELEASE);
}

/* As rte_eth_tx_burst(). */
static __always_inline __u32 fwe_lane_put(struct fwe_lane *lane, struct rte_mbuf **frames,
					  __u32 count)
{
	__u32 put = rte_ring_sp_enqueue_burst(lane->out, (void **)frames, count, NULL);

	/* ahead of `done`, which tells the I/O core that it may look */
	__atomic_store_n(&lane->put, lane->put + put, __ATOMIC_RELEASE);
	fwe_wake(lane->io);
	return put;
}

#endif
