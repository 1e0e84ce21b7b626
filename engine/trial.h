/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A schedule alone, without ports: sources fill its leaves, and what leaves is counted. By a clock
 * of the trial's own for tests, by the TSC for the bench.
 */
#ifndef FWE_TRIAL_H
#define FWE_TRIAL_H

#include "schedule.h"

struct fwe_trial;

struct fwe_trial_source {
	__u16 leaf; /* from 1 on, as fwe_schedule_put() takes it */
	__u16 len;  /* octets of each frame */
	__u32 pad;
	__u64 gap_ns; /* between two frames; 0: frames always wait */
	/* out */
	__u64 offered;
	__u64 frames; /* that left */
	__u64 bytes;
	__u32 delays_count;
	__u32 delays_max;
	__u32 *delays; /* of those that left, nanoseconds; or NULL */
};

struct fwe_trial_run {
	struct fwe_trial_source *sources; /* each of a leaf of its own */
	__u32 sources_count;
	__u32 pad;
	__u64 lasts_ns;
	__u64 warm_ns; /* ahead of that, not counted */
	__u64 step_ns; /* of the trial's own clock; 0: the TSC is the clock */
	/* out */
	__u64 took_ns;
	__u64 at_once_max; /* octets that left in one step, at most */
	__u64 pauses_ns; /* by the TSC: somebody else had the core, 20 us or longer; the clock stood
			  */
};

/* NULL: memory is short. DPDK has been started. */
struct fwe_trial *fwe_trial_new(void);
void fwe_trial_free(struct fwe_trial *trial);
/* What waits at its end is dropped. */
void fwe_trial_run(struct fwe_trial *trial, struct fwe_schedule *schedule,
		   struct fwe_trial_run *run);
/* Cycles of a frame to be put and taken, in bursts of 32, over leaves in turn, while frames wait in
 * each; medians of rounds. */
double fwe_trial_cost(struct fwe_trial *trial, struct fwe_schedule *schedule, const __u16 *leaves,
		      __u32 leaves_count, __u16 len, __u32 rounds);
/* The same of rte_sched: as many of its classes, or of its queues that share by weight. Negative:
 * it does not start. */
double fwe_trial_rte_sched_cost(struct fwe_trial *trial, __u32 classes, int by_weight, __u16 len,
				__u32 rounds);
/* Frames that are not the pool's. */
__u32 fwe_trial_missing(const struct fwe_trial *trial);

#endif
