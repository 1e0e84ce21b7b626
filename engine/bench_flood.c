/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* See bench_flood.h. */
#include <rte_cycles.h>

#include "bench_flood.h"

enum {
	/* More than the ring to the kernel and those of the ports hold. */
	FWE_FLOOD_FRAMES = 4095,
	/* Of these each core keeps some. What the worker frees another core takes, where the
	 * engine's own workers take it: so it goes there in small parts. */
	FWE_FLOOD_CACHE = 32,
	/* A port at which no flow's frames come. */
	FWE_FLOOD_SPORT = 7,
	/* So much of a second it is looked at how many frames the kernel takes. */
	FWE_FLOOD_HZ = 5,
};

/* Frames of no flow; 0 if there are not so many. */
static __u32 fwe_flood_write(const struct fwe_bench *bench, struct rte_mbuf **frames, __u32 count)
{
	const __u32 l4_at = FWE_ETH_LEN + (bench->config.v6 ? FWE_IP6_LEN : FWE_IP4_LEN);
	const __u16 sport_be = fw_htons(FWE_FLOOD_SPORT);

	if (!count || rte_pktmbuf_alloc_bulk(bench->flood_pool, frames, count))
		return 0;
	for (__u32 i = 0; i < count; i++) {
		fwe_write(bench, frames[i], &bench->steps[bench->at], 0, bench->config.v6);
		memcpy(rte_pktmbuf_mtod(frames[i], __u8 *) + l4_at, &sport_be, sizeof(sport_be));
		frames[i]->pkt_len = frames[i]->data_len = bench->frame_len;
	}
	return count;
}

__u32 fwe_flood(const struct fwe_bench *bench, __u32 count, __u32 held)
{
	struct rte_mbuf *frames[FWE_BENCH_BURST];
	__u32 sent = 0;

	count = fwe_flood_write(bench, frames, count);
	if (!held)
		sent = rte_ring_sp_enqueue_burst(bench->in, (void **)frames, count, NULL);
	rte_pktmbuf_free_bulk(frames + sent, count - sent);
	return sent;
}

void fwe_flood_take(const struct fwe_bench *bench, __u32 count)
{
	struct rte_mbuf *frames[FWE_BENCH_BURST];

	if (count)
		rte_pktmbuf_free_bulk(frames, fwe_exits_take(bench->exits, 0, frames, count));
}

void fwe_flood_end(const struct fwe_bench *bench)
{
	for (__u32 taken = 0; taken < FWE_FLOOD_FRAMES; taken += FWE_BENCH_BURST)
		fwe_flood_take(bench, FWE_BENCH_BURST);
}

int fwe_bench_flood(struct fwe_bench *bench, int tap, double *taken_pps)
{
	/* of the one port at which frames come in */
	const struct fwe_face face = {.queues = &tap, .queues_count = 1};
	const struct fwe_port port = {};
	struct rte_mbuf *frames[FWE_BENCH_BURST];
	struct fwe_exits_counts counts;
	__u8 reasons[FWE_BENCH_BURST];
	__u64 since, given = 0;

	memset(reasons, FW_R_MISS, sizeof(reasons));
	bench->flood_pool =
		rte_pktmbuf_pool_create("bench_flood", FWE_FLOOD_FRAMES, FWE_FLOOD_CACHE, 0,
					RTE_PKTMBUF_HEADROOM + 256, SOCKET_ID_ANY);
	bench->exits = bench->flood_pool ? fwe_exits_new(&face, 1, 1, bench->flood_pool) : NULL;
	if (!bench->exits)
		return -1;
	since = rte_rdtsc();
	while (rte_rdtsc() - since < rte_get_tsc_hz() / FWE_FLOOD_HZ) {
		__u32 count = fwe_flood_write(bench, frames, FWE_BENCH_BURST);

		fwe_exits_exception(bench->exits, &port, frames, reasons, count);
		given += count;
		if (fwe_exits_turn(bench->exits, 0))
			return -1;
	}
	counts = fwe_exits_sum(bench->exits);
	*taken_pps = (double)(given - counts.not_taken - counts.no_room) * rte_get_tsc_hz() /
		     (rte_rdtsc() - since);
	fwe_flood_end(bench);
	/* the kernel greets its neighbours at a new TAP */
	for (__u32 count = 1; count;) {
		count = fwe_exits_source(bench->exits, &port, frames, FWE_BENCH_BURST);
		rte_pktmbuf_free_bulk(frames, count);
	}
	return 0;
}
