/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies between the memory of nodes: see copy.h. */
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "copy.h"

struct fwe_copied fwe_copy(struct rte_mempool *pool, struct rte_mbuf **frames, __u32 count)
{
	struct fwe_copied done = {};

	for (__u32 i = 0; i < count; i++) {
		struct rte_mbuf *copy;

		if (frames[i]->pool == pool)
			continue;
		copy = rte_pktmbuf_copy(frames[i], pool, 0, UINT32_MAX);
		if (!copy) {
			done.not_copied++;
			continue;
		}
		rte_pktmbuf_free(frames[i]);
		frames[i] = copy;
		done.copied++;
	}
	return done;
}

double fwe_copy_cost(struct rte_mempool *from, struct rte_mempool *to, __u32 len, __u64 frames,
		     int copied)
{
	struct rte_mbuf *burst[FWE_BURST];
	__u64 cycles = 0;

	for (__u64 done = 0; done < frames; done += FWE_BURST) {
		__u64 since;

		if (rte_pktmbuf_alloc_bulk(from, burst, FWE_BURST))
			return -1;
		/* as the device that received it has done */
		for (__u32 i = 0; i < FWE_BURST; i++)
			memset(rte_pktmbuf_append(burst[i], len), (int)done, len);
		since = rte_rdtsc();
		if (copied && fwe_copy(to, burst, FWE_BURST).not_copied)
			return -1;
		rte_pktmbuf_free_bulk(burst, FWE_BURST);
		cycles += rte_rdtsc() - since;
	}
	return cycles * 1e9 / rte_get_tsc_hz() / frames;
}
