/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* See trial.h. */
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_sched.h>

#include "trial.h"

enum {
	FWE_TRIAL_BURST = 32,
	FWE_TRIAL_FRAMES = 16383,
	/* Frames that wait of a source that never ends. */
	FWE_TRIAL_FILLED = 256,
	FWE_TRIAL_PAUSE_NS = 20000,
	/* Bursts that wait all the time while costs are measured. */
	FWE_TRIAL_STANDING = 8,
	/* Bursts of a round. */
	FWE_TRIAL_ROUND = 512,
	FWE_TRIAL_PROFILE = 1,
};

struct fwe_trial {
	struct rte_mempool *pool;
	__u64 now_ns;  /* a schedule's time goes on from run to run */
	__u64 lost_ns; /* of the TSC's: somebody else had the core, and the clock stood */
};

/* What the trial notes in a frame. */
struct fwe_trial_note {
	__u64 since_ns;
	__u32 source;
	__u32 pad;
};

static struct fwe_trial_note *fwe_note_of(struct rte_mbuf *frame)
{
	return rte_mbuf_to_priv(frame);
}

struct fwe_trial *fwe_trial_new(void)
{
	struct fwe_trial *trial = calloc(1, sizeof(*trial));

	if (!trial)
		return NULL;
	trial->pool = rte_pktmbuf_pool_create("trial", FWE_TRIAL_FRAMES, 256,
					      RTE_ALIGN(sizeof(struct fwe_trial_note), 8),
					      RTE_PKTMBUF_HEADROOM + 128, SOCKET_ID_ANY);
	if (trial->pool)
		return trial;
	free(trial);
	return NULL;
}

void fwe_trial_free(struct fwe_trial *trial)
{
	if (!trial)
		return;
	rte_mempool_free(trial->pool);
	free(trial);
}

__u32 fwe_trial_missing(const struct fwe_trial *trial)
{
	return rte_mempool_in_use_count(trial->pool);
}

static __u64 fwe_ns_of(__u64 tsc)
{
	return (unsigned __int128)tsc * 1000000000 / rte_get_tsc_hz();
}

static void fwe_trial_offer(struct fwe_trial *trial, struct fwe_schedule *schedule,
			    struct fwe_trial_source *source, __u32 number, __u64 now_ns)
{
	struct rte_mbuf *frame = rte_pktmbuf_alloc(trial->pool);

	source->offered++;
	/* as if it had been dropped */
	if (!frame)
		return;
	frame->pkt_len = source->len;
	*fwe_note_of(frame) = (struct fwe_trial_note){.since_ns = now_ns, .source = number};
	(void)fwe_schedule_put(schedule, &source->leaf, &frame, 1, now_ns);
}

static void fwe_trial_fill(struct fwe_trial *trial, struct fwe_schedule *schedule,
			   struct fwe_trial_run *run, __u64 *next_ns, __u64 now_ns)
{
	for (__u32 i = 0; i < run->sources_count; i++) {
		struct fwe_trial_source *source = &run->sources[i];
		const struct fwe_class_stats *stats =
			fwe_schedule_stats(schedule, source->leaf - 1);

		if (!source->gap_ns) {
			while (stats->waiting < FWE_TRIAL_FILLED) {
				__u64 dropped = stats->dropped;

				fwe_trial_offer(trial, schedule, source, i, now_ns);
				if (stats->dropped != dropped)
					break;
			}
			continue;
		}
		/* each came when it was due, whenever that is looked at */
		for (; next_ns[i] <= now_ns; next_ns[i] += source->gap_ns)
			fwe_trial_offer(trial, schedule, source, i, next_ns[i]);
	}
}

static __u64 fwe_trial_take(struct fwe_schedule *schedule, struct fwe_trial_run *run, int counted,
			    __u64 now_ns)
{
	struct rte_mbuf *frames[FWE_TRIAL_BURST];
	__u64 bytes = 0;
	__u32 count;

	do {
		count = fwe_schedule_take(schedule, frames, FWE_TRIAL_BURST, now_ns);
		for (__u32 i = 0; i < count; i++) {
			const struct fwe_trial_note *note = fwe_note_of(frames[i]);
			struct fwe_trial_source *source = &run->sources[note->source];
			__u64 delay = now_ns - note->since_ns;

			bytes += frames[i]->pkt_len;
			if (!counted)
				continue;
			source->frames++;
			source->bytes += frames[i]->pkt_len;
			if (source->delays_count < source->delays_max)
				source->delays[source->delays_count++] = delay < ~0u ? delay : ~0u;
		}
		rte_pktmbuf_free_bulk(frames, count);
	} while (count == FWE_TRIAL_BURST);
	return bytes;
}

static __u64 fwe_trial_now(const struct fwe_trial *trial, const struct fwe_trial_run *run)
{
	return run->step_ns ? trial->now_ns : fwe_ns_of(rte_rdtsc()) - trial->lost_ns;
}

void fwe_trial_run(struct fwe_trial *trial, struct fwe_schedule *schedule,
		   struct fwe_trial_run *run)
{
	__u64 next_ns[FWE_CLASSES_MAX], now = fwe_trial_now(trial, run), before, since = 0;
	const __u64 begin = now;

	for (__u32 i = 0; i < run->sources_count && i < FWE_CLASSES_MAX; i++) {
		struct fwe_trial_source *source = &run->sources[i];

		next_ns[i] = now;
		source->offered = source->frames = source->bytes = source->delays_count = 0;
	}
	run->at_once_max = run->pauses_ns = 0;
	for (;;) {
		int counted = now - begin >= run->warm_ns;
		__u64 bytes;

		if (counted && !since)
			since = now;
		if (now - begin >= run->warm_ns + run->lasts_ns)
			break;
		fwe_trial_fill(trial, schedule, run, next_ns, now);
		bytes = fwe_trial_take(schedule, run, counted, now);
		if (counted && bytes > run->at_once_max)
			run->at_once_max = bytes;
		before = now;
		trial->now_ns += run->step_ns;
		now = fwe_trial_now(trial, run);
		if (!run->step_ns && now - before > FWE_TRIAL_PAUSE_NS) {
			run->pauses_ns += now - before;
			trial->lost_ns += now - before;
			now = before;
		}
	}
	run->took_ns = now - since;
	/* the frames know their source by its number in this run */
	fwe_schedule_purge(schedule);
}

static int fwe_double_compare(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double fwe_median(double *values, __u32 count)
{
	qsort(values, count, sizeof(*values), fwe_double_compare);
	return count ? values[count / 2] : -1;
}

static int fwe_trial_frames(struct fwe_trial *trial, struct rte_mbuf **frames, __u16 len)
{
	if (rte_pktmbuf_alloc_bulk(trial->pool, frames, FWE_TRIAL_BURST))
		return -1;
	for (__u32 i = 0; i < FWE_TRIAL_BURST; i++)
		frames[i]->pkt_len = frames[i]->data_len = len;
	return 0;
}

double fwe_trial_cost(struct fwe_trial *trial, struct fwe_schedule *schedule, const __u16 *leaves,
		      __u32 leaves_count, __u16 len, __u32 rounds)
{
	struct rte_mbuf *frames[FWE_TRIAL_BURST];
	__u16 numbers[FWE_TRIAL_BURST];
	double *costs = calloc(rounds, sizeof(*costs));
	__u32 turn = 0, count = FWE_TRIAL_BURST;
	double cost;

	if (!costs)
		return -1;
	for (__u32 burst = 0; burst <= FWE_TRIAL_STANDING; burst++) {
		if (fwe_trial_frames(trial, frames, len)) {
			free(costs);
			return -1;
		}
		for (__u32 i = 0; i < count; i++)
			numbers[i] = leaves[turn++ % leaves_count];
		if (burst < FWE_TRIAL_STANDING)
			(void)fwe_schedule_put(schedule, numbers, frames, count,
					       fwe_ns_of(rte_rdtsc()));
	}
	for (__u32 round = 0; round < rounds; round++) {
		__u64 begin = rte_rdtsc(), moved = 0;

		for (__u32 burst = 0; burst < FWE_TRIAL_ROUND; burst++) {
			__u64 now_ns = fwe_ns_of(rte_rdtsc());

			for (__u32 i = 0; i < count; i++)
				numbers[i] = leaves[turn++ % leaves_count];
			(void)fwe_schedule_put(schedule, numbers, frames, count, now_ns);
			count = fwe_schedule_take(schedule, frames, FWE_TRIAL_BURST, now_ns);
			moved += count;
		}
		costs[round] = moved ? (double)(rte_rdtsc() - begin) / moved : -1;
	}
	rte_pktmbuf_free_bulk(frames, count);
	cost = fwe_median(costs, rounds);
	free(costs);
	return cost;
}

/* A port with one pipe, whose rates are no limit. */
static struct rte_sched_port *fwe_rte_sched_new(__u64 rate)
{
	static struct rte_sched_pipe_params pipe;
	static struct rte_sched_subport_profile_params subport_profile;
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = 1,
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = FWE_TRIAL_PROFILE,
	};
	struct rte_sched_port_params params = {
		.name = "trial",
		.socket = 0,
		.rate = rate,
		.mtu = 1522,
		.frame_overhead = 0,
		.n_subports_per_port = 1,
		.subport_profiles = &subport_profile,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = FWE_TRIAL_PROFILE,
		.n_pipes_per_subport = 1,
	};
	struct rte_sched_port *port;

	pipe = (struct rte_sched_pipe_params){
		.tb_rate = rate, .tb_size = 1000000, .tc_period = 10, .tc_ov_weight = 1};
	subport_profile = (struct rte_sched_subport_profile_params){
		.tb_rate = rate, .tb_size = 1000000, .tc_period = 10};
	for (int i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		pipe.tc_rate[i] = rate;
		subport_profile.tc_rate[i] = rate;
		subport.qsize[i] = 256;
	}
	for (int i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	port = rte_sched_port_config(&params);
	if (!port)
		return NULL;
	if (rte_sched_subport_config(port, 0, &subport, 0) ||
	    rte_sched_pipe_config(port, 0, 0, 0)) {
		rte_sched_port_free(port);
		return NULL;
	}
	return port;
}

static __u32 fwe_rte_sched_class(struct rte_sched_port *port, struct rte_mbuf **frames, __u32 count,
				 __u32 classes, int by_weight, __u32 turn)
{
	for (__u32 i = 0; i < count; i++) {
		__u32 number = turn++ % classes;
		__u32 class = by_weight ? RTE_SCHED_TRAFFIC_CLASS_BE : number;

		rte_sched_port_pkt_write(port, frames[i], 0, 0, class, by_weight ? number : 0,
					 RTE_COLOR_GREEN);
	}
	return turn;
}

double fwe_trial_rte_sched_cost(struct fwe_trial *trial, __u32 classes, int by_weight, __u16 len,
				__u32 rounds)
{
	struct rte_sched_port *port = fwe_rte_sched_new(12500000000ULL);
	struct rte_mbuf *frames[FWE_TRIAL_BURST];
	double *costs = calloc(rounds, sizeof(*costs)), cost;
	__u32 turn = 0;
	int count = FWE_TRIAL_BURST;

	if (!port || !costs) {
		free(costs);
		rte_sched_port_free(port);
		return -1;
	}
	for (__u32 burst = 0; burst <= FWE_TRIAL_STANDING; burst++) {
		if (fwe_trial_frames(trial, frames, len)) {
			free(costs);
			rte_sched_port_free(port);
			return -1;
		}
		if (burst == FWE_TRIAL_STANDING)
			break;
		turn = fwe_rte_sched_class(port, frames, count, classes, by_weight, turn);
		(void)rte_sched_port_enqueue(port, frames, count);
	}
	for (__u32 round = 0; round < rounds; round++) {
		__u64 begin = rte_rdtsc(), moved = 0;

		for (__u32 burst = 0; burst < FWE_TRIAL_ROUND; burst++) {
			turn = fwe_rte_sched_class(port, frames, count, classes, by_weight, turn);
			(void)rte_sched_port_enqueue(port, frames, count);
			count = rte_sched_port_dequeue(port, frames, FWE_TRIAL_BURST);
			moved += count;
		}
		costs[round] = moved ? (double)(rte_rdtsc() - begin) / moved : -1;
	}
	rte_pktmbuf_free_bulk(frames, count);
	cost = fwe_median(costs, rounds);
	free(costs);
	rte_sched_port_free(port);
	return cost;
}
