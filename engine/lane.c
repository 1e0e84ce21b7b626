/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lanes: see lane.h. */
#include <stdio.h>
#include <rte_malloc.h>

#include "lane.h"

static struct rte_ring *fwe_lane_ring(int numa)
{
	static __u32 number;
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "fwe_lane_%u",
		 __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
	return rte_ring_create(name, FWE_LANE_ROOM, numa, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

static void fwe_lane_drain(struct rte_ring *ring)
{
	void *frame;

	while (ring && !rte_ring_sc_dequeue(ring, &frame))
		rte_pktmbuf_free(frame);
	rte_ring_free(ring);
}

struct fwe_lane *fwe_lane_new(__u32 transmits, int numa)
{
	struct fwe_lane *lane =
		rte_zmalloc_socket("fwe_lane", sizeof(*lane), RTE_CACHE_LINE_SIZE, numa);

	if (!lane)
		return NULL;
	lane->in = fwe_lane_ring(numa);
	if (transmits)
		lane->out = fwe_lane_ring(numa);
	if (lane->in && (lane->out || !transmits))
		return lane;
	fwe_lane_free(lane);
	return NULL;
}

void fwe_lane_free(struct fwe_lane *lane)
{
	if (!lane)
		return;
	fwe_lane_drain(lane->in);
	fwe_lane_drain(lane->out);
	rte_free(lane);
}

void fwe_lane_set_wakers(struct fwe_lane *lane, struct fwe_waker *worker, struct fwe_waker *io)
{
	lane->worker = worker;
	lane->io = io;
}

void fwe_lane_set_polled(struct fwe_lane *lane, __u32 polled)
{
	FW_WRITE_ONCE(lane->polled, polled);
	fwe_wake(lane->worker);
}
