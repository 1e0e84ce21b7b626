/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bench's two threads: a generator, which is the sink too, and a worker. */
#include <rte_cycles.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "bench_flood.h"
#include "bench_rings.h"
#include "dispatch.h"

enum {
	/* A round of the generator takes a microsecond, and a frame's way a few: after so much of a
	 * second somebody else had the core. */
	FWE_PAUSE_HZ = 20000,
	/* Frames that are due at once; what is more is given up, or the pause would be made up
	 * for by a flood. */
	FWE_DUE_MAX = 64,
};

/* Frames that are due, at a rate; times are 256ths of a cycle. */
struct fwe_pace {
	__u64 gap; /* 0: as many as go */
	__u64 next;
	__u64 given_up; /* frames */
};

struct fwe_macswap {
	const struct fwe_bench *bench;
	struct fwe_stats stats;
	__u32 stop;
};

void fwe_bench_table(struct fw_config *config, __u32 flows)
{
	const __u64 secret[FW_HASH_KEYS] = {
		0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
		0xd6e8feb86659fd93, 0xa0761d6478bd642f,
	};

	memset(config, 0, sizeof(*config));
	fw_table_config(config, flows, secret);
	config->hz = 250;
}

__u32 fwe_bench_wire_bytes(const struct fwe_bench_config *config)
{
	return (config->v6 ? FWE_FRAME6_LEN : FWE_FRAME4_LEN) + 4;
}

static int fwe_bench_port(const char *name, struct rte_ring *rx, struct rte_ring *tx,
			  struct rte_mempool *pool)
{
	const struct rte_eth_conf conf = {};
	int port = rte_eth_from_rings(name, &rx, 1, &tx, 1, SOCKET_ID_ANY);

	if (port < 0 || rte_eth_dev_configure(port, 1, 1, &conf) ||
	    rte_eth_rx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL, pool) ||
	    rte_eth_tx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(port))
		return -1;
	return port;
}

struct fwe_bench *fwe_bench_new(__u32 in_flight, const char **error)
{
	struct fwe_bench *bench = calloc(1, sizeof(*bench));
	struct rte_ring *none_in, *none_out;
	int in, out;

	*error = "memory is short";
	if (!bench)
		return NULL;
	bench->in_flight = in_flight;
	bench->idle = calloc(in_flight, sizeof(struct rte_mbuf *));
	bench->pool = rte_pktmbuf_pool_create("bench", in_flight, 0, 0, RTE_PKTMBUF_HEADROOM + 256,
					      SOCKET_ID_ANY);
	/* a ring holds one less than its size */
	bench->in = rte_ring_create("bench_in", 2 * in_flight, SOCKET_ID_ANY,
				    RING_F_SP_ENQ | RING_F_SC_DEQ);
	bench->out = rte_ring_create("bench_out", 2 * in_flight, SOCKET_ID_ANY,
				     RING_F_SP_ENQ | RING_F_SC_DEQ);
	none_in = rte_ring_create("bench_none_in", 64, SOCKET_ID_ANY, 0);
	none_out = rte_ring_create("bench_none_out", 64, SOCKET_ID_ANY, 0);
	if (!bench->idle || !bench->pool || !bench->in || !bench->out || !none_in || !none_out)
		return NULL;
	*error = "the ring ports do not start";
	in = fwe_bench_port("bench0", bench->in, none_out, bench->pool);
	out = fwe_bench_port("bench1", none_in, bench->out, bench->pool);
	if (in < 0 || out < 0)
		return NULL;
	bench->port_in = in;
	bench->port_out = out;
	*error = NULL;
	return bench;
}

static __u64 fwe_random(__u64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

int fwe_bench_fill(struct fwe_bench *bench, const struct fwe_bench_config *config,
		   const struct fwe_memory *memory, __u32 now_tick)
{
	struct fw_control *control = (void *)memory->control;
	struct fw_nexthop *nh = (void *)&memory->nexthops[FWE_BENCH_NEXTHOP];
	__u64 seed = 0x5eed;
	struct fw_flow flow;

	bench->config = *config;
	bench->at = 0;
	bench->frame_len = fwe_frame_write(bench->frame, 0, config->v6);
	free(bench->steps);
	bench->steps = calloc(config->flows, sizeof(*bench->steps));
	if (!bench->steps)
		return -1;
	for (__u32 i = 0; i < config->flows; i++) {
		bench->steps[i] = fwe_step_of(i, config->v6, config->daddrs);
		if (config->daddrs)
			continue;
		fwe_flow_write(&flow, i, config->v6, now_tick);
		if (!fw_table_insert(memory->flows, memory->config, &flow, i + 1))
			return -1;
	}
	/* Fisher and Yates */
	for (__u32 i = config->flows - 1; config->random && i; i--) {
		__u32 with = fwe_random(&seed) % (i + 1);
		struct fwe_bench_step step = bench->steps[i];

		bench->steps[i] = bench->steps[with];
		bench->steps[with] = step;
	}
	*nh = (struct fw_nexthop){
		.port = FWE_BENCH_PORT_OUT, .valid = FW_NH_PORT, .l2_len = FWE_ETH_LEN};
	memcpy(nh->l2, fwe_l2_out, 12);
	memcpy(nh->l2 + 12, bench->frame + 12, 2);
	*control = (struct fw_control){
		.on = FW_ST_ACTIVE, .epoch = 1, .deadline_tick = now_tick + 0x3fffffff};
	return 0;
}

__u32 fwe_bench_missing(const struct fwe_bench *bench)
{
	return rte_mempool_in_use_count(bench->pool) +
	       (bench->flood_pool ? rte_mempool_in_use_count(bench->flood_pool) : 0);
}

static int fwe_macswap_run(void *argument)
{
	struct fwe_macswap *macswap = argument;
	const struct fwe_bench *bench = macswap->bench;
	struct fwe_stats *stats = &macswap->stats;
	struct rte_mbuf *frames[FWE_BURST_MAX];
	__u64 since = rte_rdtsc(), now;

	while (!__atomic_load_n(&macswap->stop, __ATOMIC_ACQUIRE)) {
		__u32 count, sent;

		since = rte_rdtsc();
		count = rte_eth_rx_burst(bench->port_in, 0, frames, bench->config.burst);
		if (!count)
			continue;
		for (__u32 i = 0; i < count; i++)
			rte_prefetch0(frames[i]);
		for (__u32 i = 0; i < count; i++)
			rte_prefetch0(rte_pktmbuf_mtod(frames[i], void *));
		for (__u32 i = 0; i < count; i++) {
			struct rte_ether_hdr *eth =
				rte_pktmbuf_mtod(frames[i], struct rte_ether_hdr *);
			struct rte_ether_addr addr = eth->dst_addr;

			eth->dst_addr = eth->src_addr;
			eth->src_addr = addr;
		}
		sent = rte_eth_tx_burst(bench->port_out, 0, frames, count);
		if (sent < count) {
			stats->tx_dropped += count - sent;
			rte_pktmbuf_free_bulk(frames + sent, count - sent);
		}
		now = rte_rdtsc();
		stats->sent += sent;
		stats->bursts++;
		stats->packets += count;
		stats->cycles += now - since;
	}
	return 0;
}

/* Has a cache line nowhere but in memory. */
static __always_inline void fwe_flush(const void *line)
{
#ifdef __aarch64__
	asm volatile("dc civac, %0" ::"r"(line) : "memory");
#else
	__builtin_ia32_clflush(line);
#endif
}

static __u32 fwe_generate(struct fwe_bench *bench, __u32 count, __u64 stamp, __u32 cold)
{
	struct rte_mbuf **frames;
	__u32 sent;

	if (count > bench->idle_count)
		count = bench->idle_count;
	frames = bench->idle + bench->idle_count - count;
	for (__u32 i = 0; i < count; i++)
		rte_prefetch0(rte_pktmbuf_mtod(frames[i], void *));
	for (__u32 i = 0; i < count; i++) {
		const struct fwe_bench_step *step = &bench->steps[bench->at];

		if (++bench->at == bench->config.flows)
			bench->at = 0;
		if (bench->config.v6)
			fwe_write(bench, frames[i], step, stamp, 1);
		else
			fwe_write(bench, frames[i], step, stamp, 0);
		if (cold)
			fwe_flush(rte_pktmbuf_mtod(frames[i], const void *));
	}
	sent = rte_ring_sp_enqueue_burst(bench->in, (void **)frames, count, NULL);
	/* the rest keeps its place: there is none unless a flood fills the ring */
	memmove(frames, frames + sent, (count - sent) * sizeof(*frames));
	bench->idle_count -= sent;
	return sent;
}

static void fwe_check(const struct fwe_bench *bench, struct fwe_bench_run *run,
		      const struct rte_mbuf *frame)
{
	const __u8 *data = rte_pktmbuf_mtod(frame, const __u8 *);

	run->checked++;
	if (run->worker == FWE_BENCH_MACSWAP)
		run->wrong += memcmp(data, fwe_l2_in + 6, 6) || memcmp(data + 6, fwe_l2_in, 6);
	else if (bench->config.daddrs)
		run->wrong += !fwe_route_right(data, frame->pkt_len, bench->config.flows,
					       bench->config.daddrs);
	else
		run->wrong += !fwe_frame_right(data, frame->pkt_len, bench->config.flows,
					       bench->config.v6);
}

static void fwe_measure(const struct fwe_bench *bench, struct fwe_bench_run *run,
			const struct rte_mbuf *frame, __u64 now)
{
	__u32 at = FWE_ETH_LEN + (bench->config.v6 ? FWE_IP6_LEN : FWE_IP4_LEN) + FWE_UDP_LEN;
	__u64 stamp;

	if (run->latencies_count == run->latencies_max)
		return;
	memcpy(&stamp, rte_pktmbuf_mtod(frame, const __u8 *) + at, 8);
	run->latencies[run->latencies_count++] = now - stamp;
}

static __u32 fwe_sink(struct fwe_bench *bench, struct fwe_bench_run *run, int measured)
{
	struct rte_mbuf **frames = bench->idle + bench->idle_count;
	__u32 room = bench->in_flight - bench->idle_count, count;
	__u64 now;

	if (room > FWE_BENCH_BURST)
		room = FWE_BENCH_BURST;
	count = rte_ring_sc_dequeue_burst(bench->out, (void **)frames, room, NULL);
	now = rte_rdtsc();
	for (__u32 i = 0; i < count; i++) {
		if (run->check_each && (run->received + i) % run->check_each == 0)
			fwe_check(bench, run, frames[i]);
		if (measured)
			fwe_measure(bench, run, frames[i], now);
	}
	bench->idle_count += count;
	run->received += count;
	return count;
}

static struct fwe_pace fwe_pace_of(__u64 rate_pps)
{
	return (struct fwe_pace){.gap = rate_pps ? (rte_get_tsc_hz() << 8) / rate_pps : 0};
}

/* Frames that are due, so many cycles after the beginning. */
static __always_inline __u32 fwe_due(struct fwe_pace *pace, __u64 now)
{
	__u32 due = 0;

	if (!pace->gap)
		return FWE_BENCH_BURST;
	if (now << 8 < pace->next)
		return 0;
	due = ((now << 8) - pace->next) / pace->gap + 1;
	if (due > FWE_DUE_MAX) {
		pace->next = (now << 8) + pace->gap;
		pace->given_up += due - 1;
		return 1;
	}
	if (due > FWE_BENCH_BURST)
		due = FWE_BENCH_BURST;
	pace->next += due * pace->gap;
	return due;
}

static void fwe_slices(struct fwe_bench *bench, struct fwe_bench_run *run,
		       const struct fwe_stats *stats, struct fwe_io *io)
{
	const __u64 pause = rte_get_tsc_hz() / FWE_PAUSE_HZ;
	struct fwe_pace hits = fwe_pace_of(run->rate_pps), misses = fwe_pace_of(run->flood_pps),
			taken = fwe_pace_of(run->taken_pps);
	__u64 since = rte_rdtsc(), before = since, arrived = since, now, received = 0, lost = 0;
	const __u64 begin = since;
	const struct fwe_io_stats none = {}, *of_io = io ? fwe_io_stats(io) : &none;
	struct fwe_io_stats last_io = {};
	struct fwe_stats last = {};
	__u32 pauses = 1; /* the worker has yet to begin */
	__u64 flooded = 0;
	__u32 due, sent;

	while (run->slices_count < run->slices_max) {
		now = rte_rdtsc();
		pauses += now - before > pause;
		before = now;
		if (fwe_sink(bench, run, !!run->latencies) || run->received == run->sent)
			arrived = now;
		pauses += now - arrived > pause;
		if (run->flood_pps) {
			run->flooded +=
				fwe_flood(bench, fwe_due(&misses, now - begin), run->flood_held);
			fwe_flood_take(bench, fwe_due(&taken, now - begin));
		}
		due = fwe_due(&hits, now - begin);
		sent = fwe_generate(bench, due, rte_rdtsc(), run->cold);
		run->sent += sent;
		lost += due - sent;
		if (io)
			fwe_io_turn(io);
		if (now - since < run->slice)
			continue;
		run->slices[run->slices_count++] = (struct fwe_bench_slice){
			.elapsed = now - since,
			.received = run->received - received,
			.packets = stats->packets - last.packets,
			.bursts = stats->bursts - last.bursts,
			.cycles = stats->cycles - last.cycles,
			.lost = lost + hits.given_up + stats->tx_dropped - last.tx_dropped,
			.flooded = run->flooded - flooded,
			.pauses = pauses,
			.latencies = run->latencies_count,
			.io_packets = of_io->packets - last_io.packets,
			.io_receive = of_io->receive_cycles - last_io.receive_cycles,
			.io_hash = of_io->hash_cycles - last_io.hash_cycles,
			.io_ring = of_io->ring_cycles - last_io.ring_cycles,
			.io_transmit = of_io->transmit_cycles - last_io.transmit_cycles,
		};
		last_io = *of_io;
		last.packets = stats->packets;
		last.bursts = stats->bursts;
		last.cycles = stats->cycles;
		last.tx_dropped = stats->tx_dropped;
		received = run->received;
		since = now;
		flooded = run->flooded;
		hits.given_up = 0;
		pauses = 0;
		lost = 0;
	}
}

/* All that is on its way arrives, or has been counted as lost. */
static void fwe_drain(struct fwe_bench *bench, struct fwe_bench_run *run,
		      const struct fwe_stats *stats, struct fwe_io *io)
{
	__u64 since = rte_rdtsc();

	while (run->received + FW_READ_ONCE(stats->tx_dropped) + FW_READ_ONCE(stats->exceptions) +
			       FW_READ_ONCE(stats->dropped) <
		       run->sent + run->flooded &&
	       rte_rdtsc() - since < 5 * rte_get_tsc_hz()) {
		if (io)
			fwe_io_turn(io);
		if (run->flood_pps)
			fwe_flood_take(bench, FWE_BENCH_BURST);
		if (fwe_sink(bench, run, 0))
			since = rte_rdtsc();
	}
	/* what was freed meanwhile is the pool's already */
	rte_pktmbuf_free_bulk(bench->idle, bench->idle_count);
	bench->idle_count = 0;
}

/* An I/O core, which is the generator's thread, ahead of one worker. */
static struct fwe_io *fwe_bench_io(const struct fwe_bench *bench, struct fwe_lane *const *lanes,
				   const struct fwe_memory *memory, const char **error)
{
	const struct fwe_io_port ports[] = {
		{.id = bench->port_in, .rx_queues = 1, .lanes = lanes},
		{.id = bench->port_out, .rx_queues = 1, .lanes = lanes + 1}};
	const struct fwe_io_config config = {.ports = ports,
					     .lanes = lanes,
					     .ports_count = 2,
					     .lanes_count = 2,
					     .workers = 1,
					     .burst = bench->config.burst,
					     .numa = -1};
	struct fwe_io *io = fwe_io_new(&config, error);

	for (__u32 i = 0; io && i < 2; i++)
		fwe_io_resume(io, i, memory->config->hash_key);
	return io;
}

int fwe_bench_run(struct fwe_bench *bench, const struct fwe_memory *memory,
		  const struct fwe_clock *clock, struct fwe_bench_run *run, const char **error)
{
	const int dispatched = run->worker == FWE_BENCH_DISPATCH;
	struct fwe_lane *lanes[] = {dispatched ? fwe_lane_new(run->transmits, -1) : NULL,
				    dispatched ? fwe_lane_new(run->transmits, -1) : NULL};
	const struct fwe_port ports[] = {
		{.id = bench->port_in, .ifindex = FWE_BENCH_PORT_IN, .lane = lanes[0]},
		{.id = bench->port_out, .ifindex = FWE_BENCH_PORT_OUT, .lane = lanes[1]}};
	const struct fwe_config config = {.memory = *memory,
					  .clock = clock,
					  .ports = ports,
					  .ports_count = 2,
					  .burst = bench->config.burst,
					  .exception = run->flood_pps ? fwe_exits_exception : NULL,
					  .context = bench->exits,
					  .numa = -1};
	const __u64 refused = bench->exits ? fwe_exits_sum(bench->exits).no_room : 0;
	struct fwe_macswap *macswap = NULL;
	struct fwe_worker *worker = NULL;
	const struct fwe_stats *stats;
	struct fwe_io *io = NULL;

	run->slices_count = run->latencies_count = 0;
	run->sent = run->received = run->checked = run->wrong = run->flooded = 0;
	*error = "the pool is not whole";
	/* a ring to a worker holds one less than its size */
	bench->idle_count = dispatched ? bench->in_flight - FWE_BENCH_BURST : bench->in_flight;
	if (rte_pktmbuf_alloc_bulk(bench->pool, bench->idle, bench->idle_count))
		return -1;
	for (__u32 i = 0; i < bench->idle_count; i++)
		bench->idle[i]->pkt_len = bench->idle[i]->data_len = bench->frame_len;
	*error = "memory is short";
	if (run->worker == FWE_BENCH_MACSWAP) {
		macswap = aligned_alloc(64, (sizeof(*macswap) + 63) / 64 * 64);
		if (!macswap)
			return -1;
		memset(macswap, 0, sizeof(*macswap));
		macswap->bench = bench;
		stats = &macswap->stats;
	} else {
		worker = fwe_worker_new(&config, error);
		if (!worker)
			return -1;
		fwe_worker_set_routes(worker, run->routes);
		stats = fwe_worker_stats(worker);
	}
	if (dispatched) {
		if (lanes[0] && lanes[1])
			io = fwe_bench_io(bench, lanes, memory, error);
		if (!io)
			return -1;
	}
	*error = "the worker's lcore is not there";
	if (worker ? rte_eal_remote_launch(fwe_worker_run, worker, bench->config.lcore)
		   : rte_eal_remote_launch(fwe_macswap_run, macswap, bench->config.lcore))
		return -1;
	fwe_slices(bench, run, stats, io);
	fwe_drain(bench, run, stats, io);
	if (worker)
		fwe_worker_stop(worker);
	else
		__atomic_store_n(&macswap->stop, 1, __ATOMIC_RELEASE);
	rte_eal_wait_lcore(bench->config.lcore);
	if (run->flood_pps)
		fwe_flood_end(bench);
	run->stats = *stats;
	run->refused = bench->exits ? fwe_exits_sum(bench->exits).no_room - refused : 0;
	fwe_worker_free(worker);
	fwe_io_free(io);
	fwe_lane_free(lanes[0]);
	fwe_lane_free(lanes[1]);
	free(macswap);
	*error = NULL;
	return 0;
}
