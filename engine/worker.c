/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A worker: polls its ports, forwards what hits, and hands out the rest. */
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "burst.h"
#include "copy.h"
#include "lane.h"
#include "mirror.h"
#include "routes.h"
#include "schedule.h"
#include "sleep.h"
#include "socket.h"

enum {
	/* The tick is looked at so often, a second; it lasts a millisecond or more. */
	FWE_CLOCK_HZ = 10000,
	/* A burst of fewer frames says little of a frame's cost. */
	FWE_MODEL_BURST = 8,
	/* By this part of itself, and 1, an estimate follows what is measured. */
	FWE_MODEL_STEP = 64,
	/* Bursts that leave by a scheduler in a turn: more than come in, or its queues would not
	   end. */
	FWE_SHAPED_BURSTS = 4,
	/* Bursts of hits that a port has in a turn, if all are full: what comes next is fetched
	   while one is handled. */
	FWE_TURN_BURSTS = 4,
	FWE_MODEL_MAX = 1 << 28,
	/* Frames put into a scheduler, of which a mean is kept. */
	FWE_MODEL_PUTS = 4096,
};

/* Until something is measured, in 16ths of a cycle. */
static const __u32 fwe_model_prior[FWE_PATHS] = {
	[FWE_PATH_PLAIN] = 16 * 150,  [FWE_PATH_OTHER] = 16 * 400,    [FWE_PATH_KERNEL] = 16 * 600,
	[FWE_PATH_MIRROR] = 16 * 150, [FWE_PATH_SCHEDULE] = 16 * 150, [FWE_PATH_ROUTE] = 16 * 150,
};

/* Frames on their way to a port. */
struct fwe_output {
	__u32 count;
	__u16 leaf[FWE_BURST_MAX];
	struct rte_mbuf *frame[FWE_BURST_MAX];
};

/* A scheduler, and what it has let go that its port has not taken yet. */
struct fwe_shaped {
	struct fwe_schedule *schedule;
	/* of the last frames that were put into it */
	__u64 put_cycles;
	__u32 put_frames;
	__u32 count;
	struct rte_mbuf *frame[FWE_BURST_MAX];
};

/* What is copied before it leaves at a port. */
struct fwe_copies {
	__u64 inputs; /* a mask, by number */
	struct rte_mempool *pool;
};

struct fwe_worker {
	struct fwe_stats stats;
	__u32 stop __attribute__((aligned(64)));
	const struct fwe_memory *memory;
	struct fw_engine_framings *framings;
	const struct fwe_routes *routes;
	const struct fwe_schedules *schedules;
	const struct fwe_mirror *mirror;
	struct fw_engine_events events __attribute__((aligned(64)));

	/* the worker's alone */
	struct fwe_config config __attribute__((aligned(64)));
	struct fwe_port port[FWE_PORTS_MAX];
	struct fwe_sleeper *sleeper; /* NULL: it polls */
	const struct fwe_memory *entered_with;
	__u64 clock_tsc;
	__u64 clock_every;
	__u64 ns_per_cycle; /* 32 bits behind the point */
	__u64 now_ns;       /* for schedulers, of this turn */
	const struct fwe_schedules *scheduled_with;
	__u64 shaped_ports; /* that have a scheduler */
	const struct fwe_mirror *mirrors_with;
	__u64 mirrored_ports; /* what passes them may be copied */
	__u64 beside_cycles;  /* of the burst that is under way, for copies and schedulers */
	__u32 charged;        /* its frames have buckets */
	__u32 entered;        /* by this thread */
	__u64 load[FW_BUCKETS];
	struct fwe_copies copies[FWE_PORTS_MAX];
	struct fwe_output output[FWE_PORTS_MAX];
	struct fwe_shaped shaped[FWE_PORTS_MAX];
};

__u32 fwe_frame_read(const struct rte_mbuf *frame, void *to, __u32 size)
{
	__u32 at = 0;

	for (const struct rte_mbuf *part = frame; part; part = part->next) {
		__u32 len = part->data_len < size - at ? part->data_len : size - at;

		memcpy((char *)to + at, rte_pktmbuf_mtod(part, const void *), len);
		at += len;
	}
	return frame->pkt_len;
}

void fwe_frames_free(struct rte_mbuf **frames, __u32 count)
{
	rte_pktmbuf_free_bulk(frames, count);
}

static const char *fwe_wrong(const struct fwe_config *config)
{
	const struct fwe_memory *memory = &config->memory;

	if (!memory->flows || !memory->nexthops || !memory->control || !memory->config)
		return "no flow table";
	if (!config->clock)
		return "no clock";
	if (!config->ports_count || config->ports_count > FWE_PORTS_MAX)
		return "a worker has 1 to 64 ports";
	if (config->burst > FWE_BURST_MAX)
		return "a burst has 1 to 64 frames";
	for (__u32 i = 0; i < config->ports_count; i++) {
		if (!config->ports[i].ifindex ||
		    (!config->ports[i].sockets && !rte_eth_dev_is_valid_port(config->ports[i].id)))
			return "a port that there is not";
		for (__u32 j = 0; j < i; j++)
			if (config->ports[j].ifindex == config->ports[i].ifindex)
				return "two ports of one device";
	}
	return NULL;
}

static struct fwe_sleeper *fwe_worker_sleeper(const struct fwe_config *config)
{
	struct fwe_input inputs[FWE_PORTS_MAX];

	for (__u32 i = 0; i < config->ports_count; i++)
		inputs[i] = (struct fwe_input){config->ports[i].sockets, config->ports[i].id,
					       config->ports[i].rx_queue, config->ports[i].wakes};
	return fwe_sleeper_new(config->waker, config->sleep_us_max, inputs, config->ports_count);
}

struct fwe_worker *fwe_worker_new(const struct fwe_config *config, const char **error)
{
	struct fwe_worker *worker;

	*error = fwe_wrong(config);
	if (*error)
		return NULL;
	worker = rte_zmalloc_socket("fwe_worker", sizeof(*worker), RTE_CACHE_LINE_SIZE,
				    config->numa);
	if (!worker) {
		*error = "memory is short";
		return NULL;
	}
	worker->config = *config;
	if (config->sleep_us_max) {
		worker->sleeper = fwe_worker_sleeper(config);
		if (!worker->sleeper) {
			fwe_worker_free(worker);
			*error = "memory is short";
			return NULL;
		}
	}
	if (!config->burst)
		worker->config.burst = FWE_BURST;
	memcpy(worker->port, config->ports, config->ports_count * sizeof(*config->ports));
	worker->config.ports = worker->port;
	for (__u32 i = 0; i < config->ports_count; i++)
		worker->port[i].number = i;
	memcpy(worker->stats.model, fwe_model_prior, sizeof(fwe_model_prior));
	worker->memory = &worker->config.memory;
	worker->clock_every = rte_get_tsc_hz() / FWE_CLOCK_HZ;
	worker->ns_per_cycle = (1000000000ULL << 32) / rte_get_tsc_hz();
	return worker;
}

void fwe_worker_free(struct fwe_worker *worker)
{
	for (__u32 i = 0; worker && i < worker->config.ports_count; i++)
		rte_pktmbuf_free_bulk(worker->shaped[i].frame, worker->shaped[i].count);
	if (worker)
		fwe_sleeper_free(worker->sleeper);
	rte_free(worker);
}

void fwe_worker_stop(struct fwe_worker *worker)
{
	__atomic_store_n(&worker->stop, 1, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_wake(struct fwe_worker *worker)
{
	fwe_wake(worker->config.waker);
}

const struct fwe_stats *fwe_worker_stats(const struct fwe_worker *worker)
{
	return &worker->stats;
}

const __u64 *fwe_worker_load(const struct fwe_worker *worker)
{
	return worker->load;
}

void fwe_worker_set_memory(struct fwe_worker *worker, const struct fwe_memory *memory)
{
	__atomic_store_n(&worker->memory, memory, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_set_framings(struct fwe_worker *worker, struct fw_engine_framings *framings)
{
	__atomic_store_n(&worker->framings, framings, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_set_routes(struct fwe_worker *worker, const struct fwe_routes *routes)
{
	__atomic_store_n(&worker->routes, routes, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_set_schedules(struct fwe_worker *worker, const struct fwe_schedules *schedules)
{
	__atomic_store_n(&worker->schedules, schedules, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_set_mirror(struct fwe_worker *worker, const struct fwe_mirror *mirror)
{
	__atomic_store_n(&worker->mirror, mirror, __ATOMIC_RELEASE);
	fwe_worker_wake(worker);
}

void fwe_worker_copy(struct fwe_worker *worker, __u32 output, __u64 inputs,
		     struct rte_mempool *pool)
{
	worker->copies[output] = (struct fwe_copies){inputs, pool};
}

struct fw_engine_framings *fwe_framings_new(const struct fw_framing *framings,
					    const struct fw_framed *framed, __u32 count)
{
	struct fw_engine_framings *all;
	__u32 places = 8;

	if (count > FWE_FRAMINGS_MAX)
		return NULL;
	while (places < 2 * count)
		places *= 2;
	all = calloc(1, sizeof(*all) + places * sizeof(all->at[0]));
	if (!all)
		return NULL;
	all->mask = places - 1;
	for (__u32 i = 0; i < count; i++) {
		__u32 at = fw_engine_framing_home(&framings[i]) & all->mask;

		while (all->at[at].key.port)
			at = (at + 1) & all->mask;
		all->at[at].key = framings[i];
		all->at[at].framed = framed[i];
	}
	return all;
}

void fwe_framings_free(struct fw_engine_framings *framings)
{
	free(framings);
}

__u32 fwe_worker_event(struct fwe_worker *worker, void *event, __u32 size)
{
	struct fw_engine_events *events = &worker->events;
	const struct fw_engine_event *next;
	__u32 len;

	if (__atomic_load_n(&events->written, __ATOMIC_ACQUIRE) == events->taken)
		return 0;
	next = &events->event[events->taken % FW_ENGINE_EVENTS];
	len = next->len;
	if (len > size)
		return 0;
	memcpy(event, &next->event, len);
	__atomic_store_n(&events->taken, events->taken + 1, __ATOMIC_RELEASE);
	return len;
}

static void fwe_output_add(__u32 ifindex, __u32 number)
{
	__u32 at = ifindex;

	while (fw_env.outputs[at % FW_ENGINE_OUTPUTS].ifindex)
		at++;
	fw_env.outputs[at % FW_ENGINE_OUTPUTS] = (struct fw_engine_output){ifindex, number};
}

/* What is sent by a VLAN or a session leaves at the port below. */
static void fwe_take_framings(struct fwe_worker *worker, const struct fw_engine_framings *framings)
{
	memset(fw_env.outputs, 0, sizeof(fw_env.outputs));
	for (__u32 i = 0; i < worker->config.ports_count; i++)
		fwe_output_add(worker->port[i].ifindex, i);
	for (__u32 at = 0; framings && at <= framings->mask; at++)
		for (__u32 i = 0; i < worker->config.ports_count; i++)
			if (framings->at[at].key.port == worker->port[i].ifindex)
				fwe_output_add(framings->at[at].framed.port, i);
	fw_env.framings = framings;
}

static __noinline void fwe_take_routes(struct fwe_worker *worker, const struct fwe_routes *routes)
{
	__u32 number = routes ? worker->config.number % routes->counts_workers : 0;

	fw_env.route_counts = routes ? routes->counts + (__u64)number * FW_LEAVES : NULL;
	fw_env.routes = routes;
}

/* This thread is the worker's. */
static void fwe_enter(struct fwe_worker *worker)
{
	const struct fwe_memory *memory = __atomic_load_n(&worker->memory, __ATOMIC_ACQUIRE);

	memset(&fw_env, 0, sizeof(fw_env));
	fw_env.flows = memory->flows;
	fw_env.nexthops = memory->nexthops;
	fw_env.nexthops_max = memory->nexthops_max;
	fw_env.control = memory->control;
	fw_env.watch = memory->watch;
	fw_env.events = &worker->events;
	fw_env.counts = worker->stats.reasons;
	fw_env.config = *memory->config;
	fw_env.shaped = worker->shaped_ports;
	fwe_take_framings(worker, __atomic_load_n(&worker->framings, __ATOMIC_ACQUIRE));
	fwe_take_routes(worker, __atomic_load_n(&worker->routes, __ATOMIC_ACQUIRE));
	worker->entered = 1;
	worker->entered_with = memory;
	worker->clock_tsc = rte_rdtsc() - worker->clock_every;
}

/* Looks at the time, now and then. */
static __always_inline void fwe_clock_look(struct fwe_worker *worker, __u64 tsc)
{
	const struct fwe_clock *clock = worker->config.clock;
	__s64 origin = FW_READ_ONCE(clock->origin_ns);
	struct timespec now;

	if (fw_likely(tsc - worker->clock_tsc < worker->clock_every))
		return;
	worker->clock_tsc = tsc;
	if (!clock->hz) {
		fw_env.now_tick = origin;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	fw_env.now_tick = (__int128)(now.tv_sec * 1000000000LL + now.tv_nsec - origin) * clock->hz /
			  1000000000;
}

/*
 * The median of what bursts of one path cost, followed step by step: a pause of the thread spoils
 * one sample.
 */
static __always_inline void fwe_model_note(struct fwe_stats *stats, enum fwe_path path,
					   __u64 cycles, __u32 count)
{
	__u32 model, step;

	if (fw_unlikely(path == FWE_PATHS) || count < FWE_MODEL_BURST)
		return;
	model = stats->model[path];
	step = model / FWE_MODEL_STEP + 1;
	/* it never is 0, nor ever so long that it wraps */
	if (cycles * 16 > (__u64)model * count)
		stats->model[path] = model < FWE_MODEL_MAX ? model + step : model;
	else
		stats->model[path] = model > step ? model - step : model;
}

/* From the I/O core, or at a port that it does not read now from the worker's own queue. */
static __noinline __u32 fwe_receive_lane(const struct fwe_port *port, struct rte_mbuf **frames,
					 __u32 room, int polled)
{
	if (polled)
		return rte_eth_rx_burst(port->id, port->rx_queue, frames, room);
	return fwe_lane_take(port->lane, frames, room);
}

static __always_inline __u32 fwe_receive(const struct fwe_port *port, struct rte_mbuf **frames,
					 __u32 room, int polled)
{
	if (fw_unlikely(port->lane))
		return fwe_receive_lane(port, frames, room, polled);
	if (fw_unlikely(port->sockets))
		return fwe_sockets_receive(port->sockets, frames, room);
	return rte_eth_rx_burst(port->id, port->rx_queue, frames, room);
}

static __always_inline __u32 fwe_transmit(const struct fwe_port *port, struct rte_mbuf **frames,
					  __u32 count)
{
	if (fw_unlikely(port->lane && port->lane->out))
		return fwe_lane_put(port->lane, frames, count);
	if (fw_unlikely(port->sockets))
		return fwe_sockets_send(port->sockets, frames, count);
	return rte_eth_tx_burst(port->id, port->tx_queue, frames, count);
}

/* What there was waits in the new ones, or is dropped. */
static __noinline void fwe_take_schedules(struct fwe_worker *worker,
					  const struct fwe_schedules *schedules)
{
	for (__u32 i = 0; i < worker->config.ports_count; i++) {
		struct fwe_schedule *new = schedules ? schedules->of[i] : NULL;
		struct fwe_shaped *shaped = &worker->shaped[i];

		if (new == shaped->schedule)
			continue;
		if (new && shaped->schedule)
			fwe_schedule_inherit(new, shaped->schedule);
		else if (shaped->schedule)
			fwe_schedule_purge(shaped->schedule);
		if (!new) {
			/* nobody would look for them before there is another one */
			rte_pktmbuf_free_bulk(shaped->frame, shaped->count);
			shaped->count = 0;
		}
		shaped->schedule = new;
		worker->shaped_ports &= ~(1ULL << i);
		worker->shaped_ports |= (__u64) !!new << i;
	}
	worker->scheduled_with = schedules;
	fw_env.shaped = worker->shaped_ports;
}

/* Charges a frame's bucket with what its path costs. */
static __always_inline void fwe_charge(struct fwe_worker *worker, __u32 bucket, enum fwe_path path,
				       __u32 extra)
{
	__u64 cost = worker->stats.model[path] + extra;

	worker->load[bucket] += cost;
	worker->stats.charged += cost;
}

/* How many of the frames pass a scheduler at once: the first ones. Others wait, or are dropped. */
static __noinline __u32 fwe_shaped_put(struct fwe_worker *worker, __u32 number, const __u16 *leaves,
				       struct rte_mbuf **frames, __u32 count)
{
	struct fwe_shaped *shaped = &worker->shaped[number];
	__u64 since = rte_rdtsc(), spent;
	__u32 passing = fwe_schedule_put(shaped->schedule, leaves, frames, count, worker->now_ns);

	spent = rte_rdtsc() - since;
	worker->beside_cycles += spent;
	shaped->put_cycles += spent;
	shaped->put_frames += count;
	if (shaped->put_frames > FWE_MODEL_PUTS) {
		shaped->put_cycles /= 2;
		shaped->put_frames /= 2;
	}
	return passing;
}

/* The same, of an output that may have none. */
static __always_inline __u32 fwe_shape(struct fwe_worker *worker, __u32 number, const __u16 *leaves,
				       struct rte_mbuf **frames, __u32 count)
{
	if (fw_likely(!(worker->shaped_ports >> number & 1)))
		return count;
	return fwe_shaped_put(worker, number, leaves, frames, count);
}

/* Frames that are due at an output. */
static __u32 fwe_shaped_take(struct fwe_worker *worker, struct fwe_shaped *shaped)
{
	__u64 since = rte_rdtsc(), spent;
	__u32 count = fwe_schedule_take(shaped->schedule, shaped->frame, FWE_BURST, worker->now_ns);

	spent = rte_rdtsc() - since;
	if (shaped->put_frames)
		spent += shaped->put_cycles * count / shaped->put_frames;
	fwe_model_note(&worker->stats, FWE_PATH_SCHEDULE, spent, count);
	return count;
}

static __noinline void fwe_take_mirror(struct fwe_worker *worker, const struct fwe_mirror *mirror)
{
	worker->mirrored_ports = mirror ? fwe_mirror_ports(mirror) : 0;
	worker->mirrors_with = mirror;
}

/* Copies on their way to one port. */
static void fwe_mirror_send(struct fwe_worker *worker, __u32 number, struct rte_mbuf **copies,
			    __u32 count)
{
	/* of no class: as whatever names none */
	static const __u16 leaves[FWE_BURST_MAX];
	__u32 passing = fwe_shape(worker, number, leaves, copies, count), sent;

	sent = passing ? fwe_transmit(&worker->port[number], copies, passing) : 0;
	worker->stats.mirrored += count - passing + sent;
	worker->stats.not_mirrored += passing - sent;
	rte_pktmbuf_free_bulk(copies + sent, passing - sent);
}

/* Of what is on a port's wire, copies for who looks on. */
static __noinline void fwe_mirror(struct fwe_worker *worker, __u32 number,
				  struct rte_mbuf *const *frames, __u32 count)
{
	__u64 since = rte_rdtsc(), before = worker->beside_cycles, spent;
	struct fwe_mirrored copies;
	__u32 first = 0;

	fwe_mirror_copy(worker->mirrors_with, number, frames, count, &copies);
	worker->stats.not_mirrored += copies.failed;
	for (__u32 i = 0; i < copies.count; i++) {
		if (worker->charged)
			fwe_charge(worker, copies.bucket[i], FWE_PATH_MIRROR, 0);
		if (i + 1 < copies.count && copies.target[i + 1] == copies.target[i])
			continue;
		fwe_mirror_send(worker, copies.target[i], copies.frame + first, i + 1 - first);
		first = i + 1;
	}
	spent = rte_rdtsc() - since;
	worker->beside_cycles = before + spent;
	/* what it takes to find that a frame is nobody's is a part of it */
	if (copies.count)
		fwe_model_note(&worker->stats, FWE_PATH_MIRROR, spent, copies.count);
}

static __always_inline void fwe_mirror_look(struct fwe_worker *worker, __u32 number,
					    struct rte_mbuf *const *frames, __u32 count)
{
	if (fw_unlikely(worker->mirrored_ports >> number & 1) && count)
		fwe_mirror(worker, number, frames, count);
}

/* What schedulers have due leaves; how many frames have left, or wait. */
static __noinline __u32 fwe_shaped_send(struct fwe_worker *worker)
{
	__u32 moved = 0;

	for (__u64 left = worker->shaped_ports; left; left &= left - 1) {
		__u32 number = __builtin_ctzll(left);
		struct fwe_shaped *shaped = &worker->shaped[number];

		for (__u32 burst = 0; burst < FWE_SHAPED_BURSTS; burst++) {
			__u32 sent;

			if (!shaped->count) {
				shaped->count = fwe_shaped_take(worker, shaped);
				fwe_mirror_look(worker, number, shaped->frame, shaped->count);
			}
			if (!shaped->count)
				break;
			sent = fwe_transmit(&worker->port[number], shaped->frame, shaped->count);
			moved += sent;
			shaped->count -= sent;
			memmove(shaped->frame, shaped->frame + sent,
				shaped->count * sizeof(*shaped->frame));
			if (shaped->count)
				break;
		}
		/* a worker whose frames wait does not sleep */
		moved += shaped->count || fwe_schedule_waiting(shaped->schedule);
	}
	return moved;
}

static __always_inline void fwe_send_now(struct fwe_worker *worker, __u32 number,
					 struct rte_mbuf **frames, __u32 count)
{
	__u32 sent;

	fwe_mirror_look(worker, number, frames, count);
	sent = fwe_transmit(&worker->port[number], frames, count);
	worker->stats.sent += sent;
	if (fw_unlikely(sent < count)) {
		worker->stats.tx_dropped += count - sent;
		worker->stats.tx_dropped_at[number] += count - sent;
		rte_pktmbuf_free_bulk(frames + sent, count - sent);
	}
}

static __always_inline void fwe_send(struct fwe_worker *worker, __u32 number)
{
	struct fwe_output *output = &worker->output[number];
	__u32 passing = fwe_shape(worker, number, output->leaf, output->frame, output->count);

	worker->stats.sent += output->count - passing;
	fwe_send_now(worker, number, output->frame, passing);
	output->count = 0;
}

/* What waits for an output. */
static __noinline void fwe_copy_all(struct fwe_worker *worker, __u32 number)
{
	struct fwe_output *output = &worker->output[number];
	struct fwe_copied done =
		fwe_copy(worker->copies[number].pool, output->frame, output->count);

	worker->stats.copied += done.copied;
	worker->stats.not_copied += done.not_copied;
}

/* What is not forwarded: the kernel's, or nobody's. */
static __noinline void fwe_hand_out(struct fwe_worker *worker, const struct fwe_port *port,
				    struct rte_mbuf **frames, const __u8 *reasons, __u32 count)
{
	__u32 kept = 0;
	__u8 why[FWE_BURST_MAX];

	for (__u32 i = 0; i < count; i++) {
		if (fwe_is_dropped(reasons[i])) {
			worker->stats.dropped++;
			rte_pktmbuf_free(frames[i]);
			continue;
		}
		why[kept] = reasons[i];
		frames[kept++] = frames[i];
	}
	worker->stats.exceptions += kept;
	if (!kept)
		return;
	if (worker->config.exception)
		worker->config.exception(worker->config.context, port, frames, why, kept);
	else
		rte_pktmbuf_free_bulk(frames, kept);
}

/* Frames whose outcomes differ: each goes its way. The path that all took, or FWE_PATHS. */
static __noinline enum fwe_path fwe_part(struct fwe_worker *worker, const struct fwe_port *port,
					 struct rte_mbuf **frames, const fwe_outcome *outcomes,
					 __u32 count)
{
	struct rte_mbuf *others[FWE_BURST_MAX];
	__u32 others_count = 0, hits = 0, framed_hits = 0, routed = 0;
	__u8 reasons[FWE_BURST_MAX];
	__u64 used = 0;

	for (__u32 i = 0; i < count; i++) {
		const int number = fwe_output_of(outcomes[i]);
		struct fwe_output *output;

		hits += fwe_way_of(outcomes[i]) == FWE_HIT_PLAIN;
		framed_hits += fwe_way_of(outcomes[i]) == FWE_HIT_FRAMED;
		routed += fwe_way_of(outcomes[i]) == FWE_HIT_ROUTED;
		if (fw_unlikely(number < 0)) {
			reasons[others_count] = fwe_reason_of(outcomes[i]);
			others[others_count++] = frames[i];
			continue;
		}
		output = &worker->output[number];
		output->leaf[output->count] = fwe_leaf_of(outcomes[i]);
		output->frame[output->count++] = frames[i];
		used |= 1ULL << number;
	}
	worker->stats.hits += hits + framed_hits;
	worker->stats.routed += routed;
	worker->stats.reasons[FW_R_FAST] += hits;
	for (; used; used &= used - 1) {
		__u32 number = __builtin_ctzll(used);

		if (fw_unlikely(worker->copies[number].inputs >> port->number & 1))
			fwe_copy_all(worker, number);
		fwe_send(worker, number);
	}
	if (fw_unlikely(others_count))
		fwe_hand_out(worker, port, others, reasons, others_count);
	if (hits == count)
		return FWE_PATH_PLAIN;
	if (routed == count)
		return FWE_PATH_ROUTE;
	if (others_count == count)
		return FWE_PATH_KERNEL;
	return hits || routed || others_count ? FWE_PATHS : FWE_PATH_OTHER;
}

static __always_inline enum fwe_path fwe_path_of(fwe_outcome outcome)
{
	if (fwe_output_of(outcome) < 0)
		return FWE_PATH_KERNEL;
	if (fwe_way_of(outcome) == FWE_HIT_PLAIN)
		return FWE_PATH_PLAIN;
	return fwe_way_of(outcome) == FWE_HIT_ROUTED ? FWE_PATH_ROUTE : FWE_PATH_OTHER;
}

/* Finds the flows of all, which are fetched meanwhile, then handles each; 0 if what became of them
 * is the same. `row`: NULL, the burst is alone; `charged`: frames have buckets. */
static __always_inline __u64 fwe_handle_all(struct fwe_worker *worker, const struct fwe_port *port,
					    struct rte_mbuf **frames, __u32 count,
					    const struct fwe_row *row, fwe_outcome *outcomes,
					    const int charged)
{
	__u32 buckets[FWE_BURST_MAX], extra[FWE_BURST_MAX];
	fwe_place places[FWE_BURST_MAX];
	const __u32 ifindex = port->ifindex;
	__u64 differs = 0;

	for (__u32 i = 0; i < count; i++) {
		fwe_fetch_ahead(frames, i, row ? row->own : count);
		if (row)
			fwe_fetch_next_head(row, i);
		places[i] = fwe_look(rte_pktmbuf_mtod(frames[i], const void *), frames[i]->data_len,
				     ifindex);
		if (charged) {
			buckets[i] = frames[i]->hash.rss & (FW_BUCKETS - 1);
			extra[i] = fw_unlikely(worker->config.extra)
					   ? worker->config.extra(frames[i])
					   : 0;
		}
	}
	/* a watched tuple is looked for step by step */
	if (fw_unlikely(FW_READ_ONCE(fw_ctl.watch)))
		for (__u32 i = 0; i < count; i++)
			places[i] = FWE_OTHER;
	for (__u32 i = 0; i < count; i++) {
		fwe_outcome outcome;

		if (row)
			fwe_fetch_next_data(row, i);
		outcome = fwe_handle(frames[i], port, ifindex, places[i]);
		if (charged)
			fwe_charge(worker, buckets[i], fwe_path_of(outcome), extra[i]);
		outcomes[i] = outcome;
		differs |= outcome ^ outcomes[0];
	}
	return differs;
}

/* As fwe_forward(), at a port where some packets leave by their destination: the others have flows,
 * or are the kernel's. */
static __noinline enum fwe_path fwe_forward_routed(struct fwe_worker *worker,
						   const struct fwe_port *port,
						   const struct fw_route_here *here, __u32 seq,
						   struct rte_mbuf **frames, __u32 count)
{
	__u32 buckets[FWE_BURST_MAX], extra[FWE_BURST_MAX];
	fwe_place places[FWE_BURST_MAX];
	fwe_outcome outcomes[FWE_BURST_MAX];
	const int watched = FW_READ_ONCE(fw_ctl.watch) != 0;
	__u64 rest = 0, differs = 0;
	int output;

	fwe_fetch_routes(frames, count);
	for (__u32 i = 0; i < count; i++) {
		buckets[i] = frames[i]->hash.rss & (FW_BUCKETS - 1);
		extra[i] = worker->charged && worker->config.extra ? worker->config.extra(frames[i])
								   : 0;
		outcomes[i] = fwe_route(frames[i], port, here, seq);
		differs |= outcomes[i] ^ outcomes[0];
		if (fw_likely(outcomes[i] != fwe_unsure))
			continue;
		rest |= 1ULL << i;
		places[i] = fwe_look(rte_pktmbuf_mtod(frames[i], const void *), frames[i]->data_len,
				     port->ifindex);
	}
	for (; rest; rest &= rest - 1) {
		__u32 i = __builtin_ctzll(rest);

		outcomes[i] =
			fwe_handle(frames[i], port, port->ifindex, watched ? FWE_OTHER : places[i]);
	}
	for (__u32 i = 0; worker->charged && i < count; i++)
		fwe_charge(worker, buckets[i], fwe_path_of(outcomes[i]), extra[i]);
	output = fwe_output_of(outcomes[0]);
	if (differs || fwe_way_of(outcomes[0]) != FWE_HIT_ROUTED ||
	    worker->copies[output].inputs >> port->number & 1)
		return fwe_part(worker, port, frames, outcomes, count);
	worker->stats.routed += count;
	fwe_send_now(worker, output, frames, count);
	return FWE_PATH_ROUTE;
}

/* The path that all of them took, or FWE_PATHS. `row`: NULL, the burst is alone; `charged`: frames
 * have buckets. */
static __always_inline enum fwe_path fwe_forward(struct fwe_worker *worker,
						 const struct fwe_port *port,
						 struct rte_mbuf **frames, __u32 count,
						 const struct fwe_row *row, const int charged)
{
	fwe_outcome outcomes[FWE_BURST_MAX];
	__u64 differs;
	int output;

	fwe_mirror_look(worker, port->number, frames, count);
	fwe_fetch_frames(frames, row ? row->own : count);
	fw_engine_gate();
	if (fw_unlikely(fw_env.routes)) {
		__u32 seq = fwe_routes_seq();
		const struct fw_route_here *here = fwe_route_here(port->ifindex, 0);

		if (here)
			return fwe_forward_routed(worker, port, here, seq, frames, count);
	}
	differs = fwe_handle_all(worker, port, frames, count, row, outcomes, charged);
	output = fwe_output_of(outcomes[0]);
	/* most bursts are hits that leave at one port */
	if (fw_unlikely(differs || fwe_way_of(outcomes[0]) != FWE_HIT_PLAIN ||
			worker->shaped_ports >> output & 1 ||
			worker->copies[output].inputs >> port->number & 1))
		return fwe_part(worker, port, frames, outcomes, count);
	worker->stats.hits += count;
	worker->stats.reasons[FW_R_FAST] += count;
	fwe_send_now(worker, output, frames, count);
	return FWE_PATH_PLAIN;
}

/* Of a burst that an I/O core has handed over. */
static __noinline enum fwe_path fwe_forward_lane(struct fwe_worker *worker,
						 const struct fwe_port *port,
						 struct rte_mbuf **frames, __u32 count)
{
	enum fwe_path path;

	worker->charged = 1;
	path = fwe_forward(worker, port, frames, count, NULL, 1);
	worker->charged = 0;
	fwe_lane_done(port->lane);
	return path;
}

/* Of a burst in a row of them. */
static __noinline enum fwe_path fwe_forward_row(struct fwe_worker *worker,
						const struct fwe_port *port,
						struct rte_mbuf **frames, __u32 count,
						const struct fwe_row *row)
{
	return fwe_forward(worker, port, frames, count, row, 0);
}

/* What somebody else sends by a port. */
static __noinline __u32 fwe_source_look(struct fwe_worker *worker, const struct fwe_port *port)
{
	struct rte_mbuf *frames[FWE_BURST_MAX];
	__u32 count =
		worker->config.source(worker->config.context, port, frames, worker->config.burst);
	__u32 passing = count, sent;

	if (!count)
		return 0;
	if (worker->shaped_ports >> port->number & 1) {
		__u16 leaves[FWE_BURST_MAX];

		for (__u32 i = 0; i < count; i++)
			leaves[i] = frames[i]->hash.usr;
		passing = fwe_shaped_put(worker, port->number, leaves, frames, count);
	}
	fwe_mirror_look(worker, port->number, frames, passing);
	sent = passing ? fwe_transmit(port, frames, passing) : 0;
	worker->stats.sourced += count - passing + sent;
	if (fw_unlikely(sent < passing)) {
		worker->stats.tx_dropped += passing - sent;
		worker->stats.tx_dropped_at[port->number] += passing - sent;
		rte_pktmbuf_free_bulk(frames + sent, passing - sent);
	}
	return count;
}

/* What a burst took since then. */
static __always_inline void fwe_note_burst(struct fwe_worker *worker, enum fwe_path path,
					   __u32 count, __u64 *since)
{
	struct fwe_stats *stats = &worker->stats;
	__u64 now = rte_rdtsc(), spent = now - *since;

	*since = now;
	stats->cycles += spent;
	if (fw_unlikely(worker->beside_cycles)) {
		/* what copies and schedulers take is no path's */
		spent -= worker->beside_cycles < spent ? worker->beside_cycles : spent;
		worker->beside_cycles = 0;
	}
	stats->bursts++;
	stats->packets += count;
	fwe_model_note(stats, path, spent, count);
}

/* What a port has received; how many frames. */
static __always_inline __u32 fwe_port_turn(struct fwe_worker *worker, const struct fwe_port *port,
					   __u64 *since)
{
	const int polled = !port->lane || FW_READ_ONCE(port->lane->polled);
	const __u32 most = worker->config.burst;
	struct rte_mbuf *bursts[2][FWE_BURST_MAX];
	__u32 count = fwe_receive(port, bursts[0], most, polled), all = 0;
	struct fwe_row row = {.own = count};
	/* lanes and sockets hand over a burst at a time; schedulers let so many go in a turn */
	const int one = port->lane || port->sockets || worker->shaped_ports;
	__u32 left = fw_unlikely(one) ? 1 : FWE_TURN_BURSTS;
	enum fwe_path path;

	if (worker->config.source && !port->sourced_elsewhere)
		all += fwe_source_look(worker, port);
	for (__u32 at = 0; count; at ^= 1, count = row.next_count) {
		/* a thread that stood still has a deadline behind it, and frames that wait */
		fwe_clock_look(worker, rte_rdtsc());
		row.next = bursts[at ^ 1];
		row.next_count = 0;
		if (count == most && --left)
			row.next_count = fwe_receive(port, bursts[at ^ 1], most, polled);
		if (fw_unlikely(!polled))
			path = fwe_forward_lane(worker, port, bursts[at], count);
		else if (row.next_count || !row.own)
			path = fwe_forward_row(worker, port, bursts[at], count, &row);
		else
			path = fwe_forward(worker, port, bursts[at], count, NULL, 0);
		fwe_note_burst(worker, path, count, since);
		all += count;
		row.own = row.next_count;
		if (path == FWE_PATH_PLAIN)
			row.own = 0;
		else
			left = 1; /* what is no hit may take long, and other ports wait */
	}
	return all;
}

static __always_inline __u32 fwe_turn(struct fwe_worker *worker)
{
	const struct fw_engine_framings *framings;
	const struct fwe_routes *routes;
	const struct fwe_schedules *schedules;
	const struct fwe_mirror *mirror;
	struct fwe_stats *stats = &worker->stats;
	__u64 since = rte_rdtsc();
	__u32 all = 0;

	if (fw_unlikely(FW_READ_ONCE(worker->memory) != worker->entered_with))
		fwe_enter(worker);
	framings = __atomic_load_n(&worker->framings, __ATOMIC_ACQUIRE);
	if (fw_unlikely(framings != fw_env.framings))
		fwe_take_framings(worker, framings);
	routes = __atomic_load_n(&worker->routes, __ATOMIC_ACQUIRE);
	if (fw_unlikely(routes != fw_env.routes))
		fwe_take_routes(worker, routes);
	schedules = __atomic_load_n(&worker->schedules, __ATOMIC_ACQUIRE);
	if (fw_unlikely(schedules != worker->scheduled_with))
		fwe_take_schedules(worker, schedules);
	mirror = __atomic_load_n(&worker->mirror, __ATOMIC_ACQUIRE);
	if (fw_unlikely(mirror != worker->mirrors_with))
		fwe_take_mirror(worker, mirror);
	worker->beside_cycles = 0;
	if (fw_unlikely(worker->shaped_ports))
		worker->now_ns = ((unsigned __int128)since * worker->ns_per_cycle) >> 32;
	for (__u32 i = 0; i < worker->config.ports_count; i++)
		all += fwe_port_turn(worker, &worker->port[i], &since);
	if (fw_unlikely(worker->shaped_ports)) {
		__u32 moved = fwe_shaped_send(worker);

		if (moved)
			stats->cycles += rte_rdtsc() - since;
		all += moved;
	}
	stats->events_lost = worker->events.lost;
	FW_WRITE_ONCE(stats->turns, stats->turns + 1);
	return all;
}

__u32 fwe_worker_turn(struct fwe_worker *worker)
{
	if (!worker->entered)
		fwe_enter(worker);
	/* as often as it is asked to */
	worker->clock_tsc -= worker->clock_every;
	return fwe_turn(worker);
}

static __u32 fwe_turn_before_sleep(void *worker)
{
	return fwe_turn(worker);
}

static __noinline __u32 fwe_worker_sleep(struct fwe_worker *worker, __u32 idle)
{
	for (__u32 i = 0; i < worker->config.ports_count; i++) {
		const struct fwe_lane *lane = worker->port[i].lane;

		fwe_sleeper_set_read(worker->sleeper, i, !lane || FW_READ_ONCE(lane->polled));
	}
	idle = fwe_sleep(worker->sleeper, &worker->stats.slept, idle, fwe_turn_before_sleep,
			 worker);
	/* a counter of cycles may have slept, too */
	worker->clock_tsc = rte_rdtsc() - worker->clock_every;
	return idle;
}

int fwe_worker_run(void *argument)
{
	struct fwe_worker *worker = argument;
	__u32 idle = 0;

	fwe_enter(worker);
	if (worker->sleeper)
		fwe_sleeper_enter();
	while (!__atomic_load_n(&worker->stop, __ATOMIC_ACQUIRE)) {
		idle = fwe_turn(worker) ? 0 : idle + 1;
		if (fw_unlikely(idle > FWE_IDLE_TURNS && worker->sleeper))
			idle = fwe_worker_sleep(worker, idle);
	}
	worker->entered = 0;
	return 0;
}
