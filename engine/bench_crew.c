/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Several workers behind an I/O core, or behind a card's hash: see bench.h. */
#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_thash.h>

#include "bench_rings.h"
#include "dispatch_hash.h"
#include "lane.h"

enum {
	/* Workers that share a CPU leave it to each other when they have nothing. */
	FWE_CREW_SLEEP_US = 20,
	FWE_CREW_CHECK_EACH = 61,
	FWE_CREW_PORTS = 2,
	FWE_CREW_IN_FLIGHT = FWE_LANE_ROOM - 64,
	FWE_RSS_QUEUES = 128,
};

/* The key of Microsoft's verification suite, which cards come with. */
static const __u8 fwe_rss_key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

struct fwe_crew {
	struct fwe_bench *bench;
	struct fwe_crew_config config;
	struct fwe_worker *worker[FWE_WORKERS_MAX];
	struct fwe_lane *lanes[FWE_CREW_PORTS * FWE_WORKERS_MAX];
	struct fwe_io *io;
	__u32 running; /* workers */
	__u32 at;      /* in the order */
	__u64 next[FWE_CREW_FLOWS];
	__u64 wanted[FWE_CREW_FLOWS];
	/* with FWE_CREW_RSS: each flow's worker, and its bucket */
	__u8 queue[FWE_CREW_FLOWS];
	__u16 bucket[FWE_CREW_FLOWS];
};

static __u32 fwe_crew_extra(const struct rte_mbuf *frame)
{
	return frame->hash.fdir.hi;
}

/* As a card would. */
static void fwe_crew_spread(struct fwe_crew *crew, const __u64 *key)
{
	__u32 flows = crew->bench->config.flows;

	for (__u32 flow = 0; flow < flows; flow++) {
		const struct fwe_bench_step *step = &crew->bench->steps[flow];
		__u32 tuple[3] = {fw_ntohl(step->saddr_be), fw_ntohl(step->daddr_be),
				  (__u32)fw_ntohs(step->sport_be) << 16 | FWE_DPORT};
		__u8 frame[FWE_FRAME_MAX];
		__u32 len = fwe_frame_write(frame, flow, 0);

		crew->queue[flow] =
			rte_softrss(tuple, 3, fwe_rss_key) % FWE_RSS_QUEUES % crew->config.workers;
		crew->bucket[flow] = fwe_bucket_of(frame, frame + len, key);
	}
}

static int fwe_crew_start(struct fwe_crew *crew, const struct fwe_memory *memory,
			  const struct fwe_clock *clock, __u32 number, const char **error)
{
	const struct fwe_bench *bench = crew->bench;
	__u32 workers = crew->config.workers;
	const struct fwe_port ports[FWE_CREW_PORTS] = {
		{.id = bench->port_in, .ifindex = FWE_BENCH_PORT_IN, .lane = crew->lanes[number]},
		{.id = bench->port_out,
		 .ifindex = FWE_BENCH_PORT_OUT,
		 .lane = crew->lanes[workers + number]}};
	const struct fwe_config config = {.memory = *memory,
					  .clock = clock,
					  .ports = ports,
					  .ports_count = FWE_CREW_PORTS,
					  .burst = bench->config.burst,
					  .numa = -1,
					  .extra = fwe_crew_extra,
					  .sleep_us_max = FWE_CREW_SLEEP_US};

	crew->worker[number] = fwe_worker_new(&config, error);
	if (!crew->worker[number])
		return -1;
	*error = "a worker's lcore is not there";
	if (fwe_lcore_launch(fwe_worker_run, crew->worker[number], crew->config.lcore + number))
		return -1;
	crew->running++;
	return 0;
}

static int fwe_crew_dispatch(struct fwe_crew *crew, const struct fwe_memory *memory,
			     const char **error)
{
	__u32 workers = crew->config.workers;
	const struct fwe_io_port ports[FWE_CREW_PORTS] = {
		{.id = crew->bench->port_in, .rx_queues = 1, .lanes = crew->lanes},
		{.id = crew->bench->port_out, .rx_queues = 1, .lanes = crew->lanes + workers}};
	const struct fwe_io_config config = {.ports = ports,
					     .lanes = crew->lanes,
					     .ports_count = FWE_CREW_PORTS,
					     .lanes_count = FWE_CREW_PORTS * workers,
					     .workers = workers,
					     .numa = -1};

	crew->io = fwe_io_new(&config, error);
	for (__u32 i = 0; crew->io && i < FWE_CREW_PORTS; i++)
		fwe_io_resume(crew->io, i, memory->config->hash_key);
	return crew->io ? 0 : -1;
}

struct fwe_crew *fwe_crew_new(struct fwe_bench *bench, const struct fwe_memory *memory,
			      const struct fwe_clock *clock, const struct fwe_crew_config *config,
			      const char **error)
{
	struct fwe_crew *crew = calloc(1, sizeof(*crew));

	*error = "memory is short";
	if (!crew)
		return NULL;
	crew->bench = bench;
	crew->config = *config;
	/* the I/O core sends: the output's ring has one writer */
	for (__u32 i = 0; i < FWE_CREW_PORTS * config->workers; i++) {
		crew->lanes[i] = fwe_lane_new(1, -1);
		if (!crew->lanes[i])
			goto failed;
	}
	fwe_crew_spread(crew, memory->config->hash_key);
	if (fwe_crew_dispatch(crew, memory, error))
		goto failed;
	for (__u32 i = 0; i < config->workers; i++)
		if (fwe_crew_start(crew, memory, clock, i, error))
			goto failed;
	/* a ring to a worker that has not been on its CPU for a while has room for all of them */
	bench->idle_count =
		bench->in_flight < FWE_CREW_IN_FLIGHT ? bench->in_flight : FWE_CREW_IN_FLIGHT;
	if (rte_pktmbuf_alloc_bulk(bench->pool, bench->idle, bench->idle_count)) {
		*error = "the pool is not whole";
		goto failed;
	}
	for (__u32 i = 0; i < bench->idle_count; i++)
		bench->idle[i]->pkt_len = bench->idle[i]->data_len = bench->frame_len;
	*error = NULL;
	return crew;
failed:
	fwe_crew_free(crew);
	return NULL;
}

/* Numbered within its flow, in the place of a time. */
static void fwe_crew_write(struct fwe_crew *crew, struct rte_mbuf *frame, __u32 flow)
{
	fwe_write(crew->bench, frame, &crew->bench->steps[flow], crew->next[flow]++, 0);
	frame->hash.rss = crew->bucket[flow];
	frame->hash.fdir.hi = crew->config.extra ? crew->config.extra[flow] : 0;
}

static void fwe_crew_generate(struct fwe_crew *crew, struct fwe_crew_counts *counts)
{
	struct fwe_bench *bench = crew->bench;
	__u32 count = bench->idle_count < FWE_BENCH_BURST ? bench->idle_count : FWE_BENCH_BURST;

	for (__u32 i = 0; i < count; i++) {
		struct rte_mbuf *frame = bench->idle[--bench->idle_count];
		__u32 flow = crew->config.order[crew->at++ & (crew->config.order_count - 1)];
		struct rte_ring *to = crew->config.mode == FWE_CREW_RSS
					      ? crew->lanes[crew->queue[flow]]->in
					      : bench->in;

		fwe_crew_write(crew, frame, flow);
		/* there is room for more than all */
		counts->sent += !rte_ring_sp_enqueue(to, frame);
	}
}

static void fwe_crew_look(struct fwe_crew *crew, const struct rte_mbuf *frame,
			  struct fwe_crew_counts *counts)
{
	const __u8 *l4 = rte_pktmbuf_mtod(frame, const __u8 *) + FWE_ETH_LEN + FWE_IP4_LEN;
	__u32 flow = (l4[0] << 8 | l4[1]) - FWE_SPORT_OUT;
	__u64 number;

	if (flow >= crew->bench->config.flows) {
		counts->wrong++;
		return;
	}
	memcpy(&number, l4 + FWE_UDP_LEN, sizeof(number));
	if (number < crew->wanted[flow])
		counts->reordered++;
	else
		crew->wanted[flow] = number + 1;
	if (counts->received % FWE_CREW_CHECK_EACH)
		return;
	counts->checked++;
	counts->wrong += !fwe_frame_right(rte_pktmbuf_mtod(frame, const __u8 *), frame->pkt_len,
					  crew->bench->config.flows, 0);
}

static __u32 fwe_crew_sink(struct fwe_crew *crew, struct fwe_crew_counts *counts)
{
	struct fwe_bench *bench = crew->bench;
	struct rte_mbuf **frames = bench->idle + bench->idle_count;
	__u32 room = bench->in_flight - bench->idle_count;
	__u32 count = rte_ring_sc_dequeue_burst(
		bench->out, (void **)frames, room < FWE_BENCH_BURST ? room : FWE_BENCH_BURST, NULL);

	for (__u32 i = 0; i < count; i++) {
		fwe_crew_look(crew, frames[i], counts);
		counts->received++;
	}
	bench->idle_count += count;
	return count;
}

void fwe_crew_run(struct fwe_crew *crew, __u64 cycles, struct fwe_crew_counts *counts)
{
	__u64 since = rte_rdtsc();

	while (rte_rdtsc() - since < cycles) {
		fwe_crew_generate(crew, counts);
		fwe_io_turn(crew->io);
		fwe_crew_sink(crew, counts);
	}
}

void fwe_crew_end(struct fwe_crew *crew, struct fwe_crew_counts *counts)
{
	__u64 since = rte_rdtsc();

	while (counts->received < counts->sent && rte_rdtsc() - since < 5 * rte_get_tsc_hz()) {
		fwe_io_turn(crew->io);
		if (fwe_crew_sink(crew, counts))
			since = rte_rdtsc();
	}
	for (; crew->running; crew->running--) {
		fwe_worker_stop(crew->worker[crew->running - 1]);
		fwe_lcore_wait(crew->config.lcore + crew->running - 1);
	}
	rte_pktmbuf_free_bulk(crew->bench->idle, crew->bench->idle_count);
	crew->bench->idle_count = 0;
}

void fwe_crew_free(struct fwe_crew *crew)
{
	struct fwe_crew_counts counts = {};

	if (crew->running)
		fwe_crew_end(crew, &counts);
	for (__u32 i = 0; i < crew->config.workers; i++)
		fwe_worker_free(crew->worker[i]);
	fwe_io_free(crew->io);
	for (__u32 i = 0; i < FWE_CREW_PORTS * crew->config.workers; i++)
		fwe_lane_free(crew->lanes[i]);
	free(crew);
}

struct fwe_io *fwe_crew_io(const struct fwe_crew *crew)
{
	return crew->io;
}

const struct fwe_worker *fwe_crew_worker(const struct fwe_crew *crew, __u32 number)
{
	return crew->worker[number];
}
