/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bench's rings and frames. */
#ifndef FWE_BENCH_RINGS_H
#define FWE_BENCH_RINGS_H

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "bench_frame.h"

enum {
	FWE_BENCH_BURST = 32,
};

struct fwe_bench {
	struct fwe_bench_config config;
	struct rte_mempool *pool;
	struct rte_mempool *flood_pool; /* of frames that are of no flow */
	struct fwe_exits *exits;        /* for these, without a thread */
	struct rte_ring *in;
	struct rte_ring *out;
	__u16 port_in;
	__u16 port_out;
	__u32 in_flight;
	__u32 frame_len;
	__u8 frame[FWE_FRAME_MAX];
	struct fwe_bench_step *steps; /* of a round */
	struct rte_mbuf **idle;
	__u32 idle_count;
	__u32 at; /* next step */
};

/* The whole header anew: the worker has rewritten it. */
static __always_inline void fwe_write(const struct fwe_bench *bench, struct rte_mbuf *frame,
				      const struct fwe_bench_step *step, __u64 stamp,
				      const __u32 v6)
{
	__u8 *data = rte_pktmbuf_mtod(frame, __u8 *);
	__u8 *ip = data + FWE_ETH_LEN, *l4 = ip + (v6 ? FWE_IP6_LEN : FWE_IP4_LEN);

	memcpy(data, bench->frame, v6 ? FWE_FRAME6_LEN : FWE_FRAME4_LEN);
	memcpy(ip + (v6 ? 20 : 12), &step->saddr_be, 4);
	memcpy(ip + (v6 ? 36 : 16), &step->daddr_be, 4);
	if (!v6)
		memcpy(ip + 10, &step->ip_check, 2);
	memcpy(l4, &step->sport_be, 2);
	memcpy(l4 + 6, &step->l4_check, 2);
	memcpy(l4 + FWE_UDP_LEN, &stamp, 8);
	stamp = ~stamp;
	memcpy(l4 + FWE_UDP_LEN + 8, &stamp, 8);
}

#endif
