/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The bench: a generator on this thread's core and one worker on another, between
 * them two ports whose queues are rings.
 */
#ifndef FWE_BENCH_H
#define FWE_BENCH_H

#include "engine.h"

enum fwe_bench_const {
	FWE_BENCH_PORT_IN = 101, /* ifindex */
	FWE_BENCH_PORT_OUT = 102,
	FWE_BENCH_NEXTHOP = 1,
};

/* What the worker does. */
enum fwe_bench_worker {
	FWE_BENCH_ENGINE = 0,
	/* Swaps MAC addresses: what the rings themselves allow. */
	FWE_BENCH_MACSWAP = 1,
};

struct fwe_bench_config {
	__u32 flows;
	__u32 v6;
	__u32 random; /* flows come in random order, each once a round; else in turn */
	__u32 burst;
	__u32 ahead;     /* enum fwe_ahead */
	__u32 in_flight; /* frames, a power of two */
	__u32 lcore;     /* of the worker */
	__u32 pad;
};

/* A part of a run: times are of the TSC. */
struct fwe_bench_slice {
	__u64 elapsed;
	__u64 received; /* frames, by the sink */
	__u64 packets;  /* as in struct fwe_stats */
	__u64 bursts;
	__u64 cycles;
	__u32 pauses;    /* somebody else had one of the two cores, for 50 us or longer */
	__u32 latencies; /* of struct fwe_bench_run, until now */
};

struct fwe_bench_run {
	__u32 worker;     /* enum fwe_bench_worker */
	__u32 check_each; /* frame of so many is compared with what is expected */
	__u64 rate_pps;   /* 0: as many as go */
	__u64 slice;      /* cycles */
	__u32 slices_max;
	__u32 slices_count; /* out */
	struct fwe_bench_slice *slices;
	/* out: cycles from sending to receiving, of frames that fit; none if it is NULL */
	__u32 *latencies;
	__u32 latencies_max;
	__u32 latencies_count;
	/* out */
	__u64 sent;
	__u64 received;
	__u64 checked;
	__u64 wrong;
	struct fwe_stats stats;
};

struct fwe_bench;

/* NULL with *error, a line. Ports and pool last until the process ends, so there is one. */
struct fwe_bench *fwe_bench_new(__u32 in_flight, const char **error);
/* Octets of a frame with FCS. */
__u32 fwe_bench_wire_bytes(const struct fwe_bench_config *config);
/*
 * From now on frames are of these flows; writes them to the table, which is all 0, and sets what
 * else the memory says. 0, or -1 if memory is short or a flow has no place.
 */
int fwe_bench_fill(struct fwe_bench *bench, const struct fwe_bench_config *config,
		   const struct fwe_memory *memory, __u32 now_tick);
/* 0, or -1 with *error. */
int fwe_bench_run(struct fwe_bench *bench, const struct fwe_memory *memory,
		  const struct fwe_clock *clock, struct fwe_bench_run *run, const char **error);
/* Frames of the pool that are not in it: 0 between runs. */
__u32 fwe_bench_missing(const struct fwe_bench *bench);
/* Size and secret of a table for so many flows. */
void fwe_bench_table(struct fw_config *config, __u32 flows);

#endif
