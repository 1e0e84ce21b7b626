/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An I/O core: see dispatch.h. */
#include <stdlib.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>

#include "dispatch_hash.h"
#include "engine.h"
#include "lane.h"
#include "sleep.h"
#include "socket.h"

enum {
	FWE_NO_BUCKET = FW_BUCKETS,
	/* A move is called off after so much of a second: workers need microseconds, unless they
	 * stand still. */
	FWE_MOVE_HZ = 50,
};

enum fwe_move_stage {
	/* the old worker has frames that it was handed before */
	FWE_MOVE_DONE,
	/* the I/O cores have frames that the old worker sent before */
	FWE_MOVE_RETURNED,
	/* what is parked goes to `owner` */
	FWE_MOVE_UNPARK,
};

/* A bucket on its way from one worker to another. */
struct fwe_move {
	__u32 bucket; /* FWE_NO_BUCKET: none moves */
	__u32 stage;
	__u32 from;
	__u32 to;
	__u32 owner; /* what came of it: one of both */
	__u32 parked_count;
	__u64 since;  /* cycles */
	__u64 handed; /* to the old worker, when it began */
	struct rte_mbuf *parked[FWE_PARKED_MAX];
};

/* A port as its I/O core has it. */
struct fwe_gate {
	struct fwe_io_port port;
	struct fwe_lane *lanes[FWE_WORKERS_MAX];
	__u64 key[FW_HASH_KEYS];
	__u32 to_do;  /* assignment that is looked through */
	__u32 at;     /* the next bucket of it */
	__u32 marked; /* on the way to be quiet: no worker has frames of the port any more */
	struct fwe_move move;
	__u64 returned[]; /* of all lanes: what is to have been returned */
};

/* Somebody else's words to the I/O core. */
struct fwe_gate_orders {
	__u32 paused;
	__u32 assigned; /* rises with each assignment */
	__u32 quiet;    /* the answer to `paused` */
	__u8 wanted[FW_BUCKETS];
	__u8 owner[FW_BUCKETS]; /* the I/O core's */
} __attribute__((aligned(64)));

struct fwe_io {
	struct fwe_io_stats stats;
	__u32 stop __attribute__((aligned(64)));
	__u64 move_max; /* cycles */
	struct fwe_io_config config;
	struct fwe_sleeper *sleeper; /* NULL: it polls */
	struct fwe_lane **lanes;     /* of all ports */
	struct fwe_gate *gate[FWE_PORTS_MAX];
	struct fwe_gate_orders orders[FWE_PORTS_MAX];
};

static const char *fwe_io_wrong(const struct fwe_io_config *config)
{
	if (!config->ports_count || config->ports_count > FWE_PORTS_MAX)
		return "an I/O core has 1 to 64 ports";
	if (!config->workers || config->workers > FWE_WORKERS_MAX)
		return "an I/O core has 1 to 16 workers";
	if (config->burst > FWE_BURST_MAX)
		return "a burst has 1 to 64 frames";
	for (__u32 i = 0; i < config->ports_count; i++)
		if (!config->ports[i].sockets && !rte_eth_dev_is_valid_port(config->ports[i].id))
			return "a port that there is not";
	return NULL;
}

static struct fwe_gate *fwe_gate_new(const struct fwe_io_config *config,
				     const struct fwe_io_port *port)
{
	struct fwe_gate *gate = rte_zmalloc_socket(
		"fwe_gate", sizeof(*gate) + config->lanes_count * sizeof(gate->returned[0]),
		RTE_CACHE_LINE_SIZE, config->numa);

	if (!gate)
		return NULL;
	gate->port = *port;
	memcpy(gate->lanes, port->lanes, config->workers * sizeof(gate->lanes[0]));
	gate->port.lanes = gate->lanes;
	gate->move.bucket = FWE_NO_BUCKET;
	gate->at = FW_BUCKETS;
	return gate;
}

/* All queues of its ports, in their order. */
static struct fwe_sleeper *fwe_io_sleeper(const struct fwe_io_config *config)
{
	struct fwe_sleeper *sleeper;
	struct fwe_input *inputs;
	__u32 all = 0, at = 0;

	for (__u32 i = 0; i < config->ports_count; i++)
		all += config->ports[i].rx_queues;
	inputs = calloc(all, sizeof(*inputs));
	if (!inputs)
		return NULL;
	for (__u32 i = 0; i < config->ports_count; i++) {
		const struct fwe_io_port *port = &config->ports[i];

		for (__u32 queue = 0; queue < port->rx_queues; queue++)
			inputs[at++] =
				(struct fwe_input){port->sockets, port->id, queue, port->wakes};
	}
	sleeper = fwe_sleeper_new(config->waker, config->sleep_us_max, inputs, all);
	free(inputs);
	return sleeper;
}

struct fwe_io *fwe_io_new(const struct fwe_io_config *config, const char **error)
{
	struct fwe_io *io;

	*error = fwe_io_wrong(config);
	if (*error)
		return NULL;
	*error = "memory is short";
	io = rte_zmalloc_socket("fwe_io", sizeof(*io), RTE_CACHE_LINE_SIZE, config->numa);
	if (!io)
		return NULL;
	io->config = *config;
	if (!config->burst)
		io->config.burst = FWE_BURST;
	io->move_max = rte_get_tsc_hz() / FWE_MOVE_HZ;
	if (config->sleep_us_max)
		io->sleeper = fwe_io_sleeper(config);
	io->lanes = rte_zmalloc("fwe_lanes", config->lanes_count * sizeof(io->lanes[0]) + 1, 0);
	for (__u32 i = 0; i < config->ports_count && io->lanes; i++) {
		io->gate[i] = fwe_gate_new(config, &config->ports[i]);
		io->orders[i].paused = io->orders[i].quiet = 1;
		if (!io->gate[i])
			break;
	}
	if (!io->lanes || !io->gate[config->ports_count - 1] ||
	    (config->sleep_us_max && !io->sleeper)) {
		fwe_io_free(io);
		return NULL;
	}
	memcpy(io->lanes, config->lanes, config->lanes_count * sizeof(io->lanes[0]));
	*error = NULL;
	return io;
}

void fwe_io_free(struct fwe_io *io)
{
	if (!io)
		return;
	for (__u32 i = 0; i < io->config.ports_count; i++) {
		struct fwe_move *move = io->gate[i] ? &io->gate[i]->move : NULL;

		if (move)
			rte_pktmbuf_free_bulk(move->parked, move->parked_count);
		rte_free(io->gate[i]);
	}
	fwe_sleeper_free(io->sleeper);
	rte_free(io->lanes);
	rte_free(io);
}

void fwe_io_stop(struct fwe_io *io)
{
	__atomic_store_n(&io->stop, 1, __ATOMIC_RELEASE);
	fwe_wake(io->config.waker);
}

const struct fwe_io_stats *fwe_io_stats(const struct fwe_io *io)
{
	return &io->stats;
}

void fwe_io_pause(struct fwe_io *io, __u32 port)
{
	/* what was quiet before is no answer */
	FW_WRITE_ONCE(io->orders[port].quiet, 0);
	__atomic_store_n(&io->orders[port].paused, 1, __ATOMIC_RELEASE);
	fwe_wake(io->config.waker);
}

int fwe_io_is_quiet(const struct fwe_io *io, __u32 port)
{
	return __atomic_load_n(&io->orders[port].quiet, __ATOMIC_ACQUIRE) != 0;
}

void fwe_io_resume(struct fwe_io *io, __u32 port, const __u64 *key)
{
	memcpy(io->gate[port]->key, key, sizeof(io->gate[port]->key));
	__atomic_store_n(&io->orders[port].paused, 0, __ATOMIC_RELEASE);
	fwe_wake(io->config.waker);
}

void fwe_io_assign(struct fwe_io *io, __u32 port, const __u8 *worker)
{
	struct fwe_gate_orders *orders = &io->orders[port];

	for (__u32 i = 0; i < FW_BUCKETS; i++)
		FW_WRITE_ONCE(orders->wanted[i], worker[i] < io->config.workers ? worker[i] : 0);
	__atomic_store_n(&orders->assigned, orders->assigned + 1, __ATOMIC_RELEASE);
	fwe_wake(io->config.waker);
}

void fwe_io_owners(const struct fwe_io *io, __u32 port, __u8 *worker)
{
	for (__u32 i = 0; i < FW_BUCKETS; i++)
		worker[i] = FW_READ_ONCE(io->orders[port].owner[i]);
}

__u32 fwe_bucket_of_frame(const void *frame, __u32 len, const __u64 *key)
{
	return fwe_bucket_of(frame, (const __u8 *)frame + len, key);
}

/* Hands frames over; what finds no room stays the caller's. */
static __always_inline __u32 fwe_hand(struct fwe_gate *gate, __u32 worker, struct rte_mbuf **frames,
				      __u32 count)
{
	struct fwe_lane *lane = gate->lanes[worker];
	__u32 handed = rte_ring_sp_enqueue_burst(lane->in, (void **)frames, count, NULL);

	lane->handed += handed;
	fwe_wake(lane->worker);
	return handed;
}

static void fwe_drop(struct fwe_io *io, struct rte_mbuf **frames, __u32 count)
{
	io->stats.dropped += count;
	rte_pktmbuf_free_bulk(frames, count);
}

/* Its bucket is another's from now on, or stays whose it was. */
static void fwe_move_settle(struct fwe_io *io, struct fwe_gate *gate, __u32 owner)
{
	struct fwe_move *move = &gate->move;

	move->owner = owner;
	move->stage = FWE_MOVE_UNPARK;
	if (owner == move->to)
		io->stats.moves++;
	else
		io->stats.called_off++;
}

/* What is parked goes ahead of what comes. */
static void fwe_unpark(struct fwe_gate *gate, struct fwe_gate_orders *orders)
{
	struct fwe_move *move = &gate->move;
	__u32 handed = fwe_hand(gate, move->owner, move->parked, move->parked_count);

	move->parked_count -= handed;
	if (move->parked_count) {
		memmove(move->parked, move->parked + handed,
			move->parked_count * sizeof(move->parked[0]));
		return;
	}
	FW_WRITE_ONCE(orders->owner[move->bucket], move->owner);
	move->bucket = FWE_NO_BUCKET;
}

/* False if there is no room. */
static int fwe_park(struct fwe_io *io, struct fwe_move *move, struct rte_mbuf *frame)
{
	if (move->parked_count == FWE_PARKED_MAX)
		return 0;
	move->parked[move->parked_count++] = frame;
	io->stats.parked++;
	return 1;
}

/* What workers have put into the I/O cores' rings by now, at all ports: every `step`th lane. */
static void fwe_mark(struct fwe_io *io, struct fwe_gate *gate, __u32 first, __u32 step)
{
	for (__u32 i = first; i < io->config.lanes_count; i += step)
		gate->returned[i] = __atomic_load_n(&io->lanes[i]->put, __ATOMIC_ACQUIRE);
}

static int fwe_returned(const struct fwe_io *io, const struct fwe_gate *gate, __u32 first,
			__u32 step)
{
	for (__u32 i = first; i < io->config.lanes_count; i += step)
		if (__atomic_load_n(&io->lanes[i]->returned, __ATOMIC_ACQUIRE) < gate->returned[i])
			return 0;
	return 1;
}

/* The next bucket of the assignment that is another worker's. */
static void fwe_move_begin(struct fwe_gate *gate, const struct fwe_gate_orders *orders)
{
	struct fwe_move *move = &gate->move;
	__u32 assigned = __atomic_load_n(&orders->assigned, __ATOMIC_ACQUIRE);

	if (assigned != gate->to_do) {
		gate->to_do = assigned;
		gate->at = 0;
	}
	for (; gate->at < FW_BUCKETS; gate->at++) {
		__u8 to = FW_READ_ONCE(orders->wanted[gate->at]);
		__u8 from = orders->owner[gate->at];

		if (to == from)
			continue;
		move->from = from;
		move->to = to;
		move->stage = FWE_MOVE_DONE;
		move->since = rte_rdtsc();
		move->handed = gate->lanes[from]->handed;
		move->bucket = gate->at++;
		return;
	}
}

static void fwe_move_step(struct fwe_io *io, struct fwe_gate *gate, struct fwe_gate_orders *orders)
{
	struct fwe_move *move = &gate->move;
	const struct fwe_lane *from = gate->lanes[move->from];

	if (move->stage == FWE_MOVE_DONE &&
	    __atomic_load_n(&from->done, __ATOMIC_ACQUIRE) >= move->handed) {
		fwe_mark(io, gate, move->from, io->config.workers);
		move->stage = FWE_MOVE_RETURNED;
	}
	if (move->stage == FWE_MOVE_RETURNED &&
	    fwe_returned(io, gate, move->from, io->config.workers))
		fwe_move_settle(io, gate, move->to);
	if (move->stage != FWE_MOVE_UNPARK && rte_rdtsc() - move->since > io->move_max)
		fwe_move_settle(io, gate, move->from);
	if (move->stage == FWE_MOVE_UNPARK)
		fwe_unpark(gate, orders);
}

static __always_inline void fwe_moves(struct fwe_io *io, struct fwe_gate *gate,
				      struct fwe_gate_orders *orders)
{
	if (fw_unlikely(gate->move.bucket != FWE_NO_BUCKET))
		fwe_move_step(io, gate, orders);
	else if (fw_unlikely(gate->at < FW_BUCKETS ||
			     FW_READ_ONCE(orders->assigned) != gate->to_do))
		fwe_move_begin(gate, orders);
}

/* Nothing is read; true once all that was read has left. */
static int fwe_gate_settles(struct fwe_io *io, struct fwe_gate *gate,
			    struct fwe_gate_orders *orders)
{
	struct fwe_move *move = &gate->move;

	if (move->bucket != FWE_NO_BUCKET) {
		if (move->stage != FWE_MOVE_UNPARK)
			fwe_move_settle(io, gate, move->from);
		fwe_unpark(gate, orders);
		return 0;
	}
	if (!gate->marked) {
		for (__u32 i = 0; i < io->config.workers; i++)
			if (__atomic_load_n(&gate->lanes[i]->done, __ATOMIC_ACQUIRE) !=
			    gate->lanes[i]->handed)
				return 0;
		fwe_mark(io, gate, 0, 1);
		gate->marked = 1;
	}
	return fwe_returned(io, gate, 0, 1);
}

static __always_inline __u32 fwe_io_receive(const struct fwe_gate *gate, __u32 queue,
					    struct rte_mbuf **frames, __u32 room)
{
	if (fw_unlikely(gate->port.sockets))
		return fwe_sockets_receive(gate->port.sockets, frames, room);
	return rte_eth_rx_burst(gate->port.id, queue, frames, room);
}

/* Of a bucket that moves: false if it does no longer, since too much came, and the frame goes to
 * the bucket's owner, behind what was parked. */
static __noinline int fwe_keep(struct fwe_io *io, struct fwe_gate *gate,
			       struct fwe_gate_orders *orders, struct rte_mbuf *frame)
{
	struct fwe_move *move = &gate->move;

	if (fwe_park(io, move, frame))
		return 1;
	if (move->stage != FWE_MOVE_UNPARK)
		fwe_move_settle(io, gate, move->from);
	fwe_unpark(gate, orders);
	if (move->bucket == FWE_NO_BUCKET)
		return 0;
	/* the owner's ring is full, too */
	if (!fwe_park(io, move, frame))
		fwe_drop(io, &frame, 1);
	return 1;
}

static __always_inline void fwe_dispatch(struct fwe_io *io, struct fwe_gate *gate,
					 struct fwe_gate_orders *orders, struct rte_mbuf **frames,
					 __u32 count)
{
	struct rte_mbuf *to[FWE_WORKERS_MAX][FWE_BURST_MAX];
	__u32 counts[FWE_WORKERS_MAX] = {};
	__u64 since = rte_rdtsc(), now;

	for (__u32 i = 0; i < count; i++)
		rte_prefetch0(frames[i]);
	for (__u32 i = 0; i < count; i++)
		rte_prefetch0(rte_pktmbuf_mtod(frames[i], void *));
	for (__u32 i = 0; i < count; i++) {
		const __u8 *data = rte_pktmbuf_mtod(frames[i], const __u8 *);
		__u32 bucket = fwe_bucket_of(data, data + frames[i]->data_len, gate->key);
		__u32 worker = orders->owner[bucket];

		frames[i]->hash.rss = bucket;
		if (fw_unlikely(bucket == gate->move.bucket)) {
			if (fwe_keep(io, gate, orders, frames[i]))
				continue;
			worker = orders->owner[bucket];
		}
		to[worker][counts[worker]++] = frames[i];
	}
	now = rte_rdtsc();
	io->stats.hash_cycles += now - since;
	for (__u32 worker = 0; worker < io->config.workers; worker++) {
		__u32 handed;

		if (!counts[worker])
			continue;
		handed = fwe_hand(gate, worker, to[worker], counts[worker]);
		if (fw_unlikely(handed < counts[worker]))
			fwe_drop(io, to[worker] + handed, counts[worker] - handed);
	}
	io->stats.ring_cycles += rte_rdtsc() - now;
}

static __u32 fwe_io_read(struct fwe_io *io, struct fwe_gate *gate, struct fwe_gate_orders *orders)
{
	struct rte_mbuf *frames[FWE_BURST_MAX];
	__u32 all = 0;

	for (__u32 queue = 0; queue < gate->port.rx_queues; queue++) {
		__u64 since = rte_rdtsc();
		__u32 count = fwe_io_receive(gate, queue, frames, io->config.burst);

		if (!count)
			continue;
		io->stats.receive_cycles += rte_rdtsc() - since;
		fwe_dispatch(io, gate, orders, frames, count);
		io->stats.cycles += rte_rdtsc() - since;
		io->stats.bursts++;
		io->stats.packets += count;
		all += count;
	}
	return all;
}

/* What workers send by the port. */
static __u32 fwe_io_transmit(struct fwe_io *io, struct fwe_gate *gate)
{
	struct rte_mbuf *frames[FWE_BURST_MAX];
	__u32 all = 0;

	for (__u32 worker = 0; worker < io->config.workers; worker++) {
		struct fwe_lane *lane = gate->lanes[worker];
		__u64 since = rte_rdtsc();
		__u32 count, sent;

		if (!lane->out)
			continue;
		count = rte_ring_sc_dequeue_burst(lane->out, (void **)frames, io->config.burst,
						  NULL);
		if (!count)
			continue;
		sent = gate->port.sockets ? fwe_sockets_send(gate->port.sockets, frames, count)
					  : rte_eth_tx_burst(gate->port.id, gate->port.tx_queue,
							     frames, count);
		__atomic_store_n(&lane->returned, lane->returned + count, __ATOMIC_RELEASE);
		io->stats.transmitted += sent;
		if (fw_unlikely(sent < count)) {
			io->stats.tx_dropped += count - sent;
			rte_pktmbuf_free_bulk(frames + sent, count - sent);
		}
		since = rte_rdtsc() - since;
		io->stats.transmit_cycles += since;
		io->stats.cycles += since;
		all += count;
	}
	return all;
}

__u32 fwe_io_turn(struct fwe_io *io)
{
	__u32 all = 0;

	for (__u32 i = 0; i < io->config.ports_count; i++) {
		struct fwe_gate *gate = io->gate[i];
		struct fwe_gate_orders *orders = &io->orders[i];

		all += fwe_io_transmit(io, gate);
		if (fw_unlikely(__atomic_load_n(&orders->paused, __ATOMIC_ACQUIRE))) {
			if (!orders->quiet && fwe_gate_settles(io, gate, orders))
				__atomic_store_n(&orders->quiet, 1, __ATOMIC_RELEASE);
			continue;
		}
		gate->marked = 0;
		all += fwe_io_read(io, gate, orders);
		fwe_moves(io, gate, orders);
	}
	FW_WRITE_ONCE(io->stats.turns, io->stats.turns + 1);
	return all;
}

/* Frames or orders that wait for workers, who wake nobody for that. */
static int fwe_io_waits(const struct fwe_io *io)
{
	for (__u32 i = 0; i < io->config.ports_count; i++) {
		const struct fwe_gate *gate = io->gate[i];
		const struct fwe_gate_orders *orders = &io->orders[i];

		if (FW_READ_ONCE(orders->paused)
			    ? !FW_READ_ONCE(orders->quiet)
			    : gate->move.bucket != FWE_NO_BUCKET || gate->at < FW_BUCKETS ||
				      FW_READ_ONCE(orders->assigned) != gate->to_do)
			return 1;
	}
	return 0;
}

static __u32 fwe_io_turn_before_sleep(void *argument)
{
	struct fwe_io *io = argument;

	return fwe_io_turn(io) || fwe_io_waits(io);
}

static __noinline __u32 fwe_io_sleep(struct fwe_io *io, __u32 idle)
{
	__u32 at = 0;

	for (__u32 i = 0; i < io->config.ports_count; i++) {
		__u32 read = !FW_READ_ONCE(io->orders[i].paused);

		for (__u32 queue = 0; queue < io->gate[i]->port.rx_queues; queue++)
			fwe_sleeper_set_read(io->sleeper, at++, read);
	}
	return fwe_sleep(io->sleeper, &io->stats.slept, idle, fwe_io_turn_before_sleep, io);
}

int fwe_io_run(void *argument)
{
	struct fwe_io *io = argument;
	__u32 idle = 0;

	if (io->sleeper)
		fwe_sleeper_enter();
	while (!__atomic_load_n(&io->stop, __ATOMIC_ACQUIRE)) {
		idle = fwe_io_turn(io) ? 0 : idle + 1;
		if (fw_unlikely(idle > FWE_IDLE_TURNS && io->sleeper))
			idle = fwe_io_sleep(io, idle);
	}
	return 0;
}
