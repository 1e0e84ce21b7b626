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
	FWE_CREW_FLOWS = 32768,
};

/* What the worker does. */
enum fwe_bench_worker {
	FWE_BENCH_ENGINE = 0,
	/* Swaps MAC addresses: what the rings themselves allow. */
	FWE_BENCH_MACSWAP = 1,
	/* The engine's, to which an I/O core hands frames, on the generator's thread. */
	FWE_BENCH_DISPATCH = 2,
};

struct fwe_bench_config {
	__u32 flows;
	__u32 v6;
	__u32 random; /* flows come in random order, each once a round; else in turn */
	__u32 burst;
	__u32 in_flight; /* frames, a power of two */
	__u32 lcore;     /* of the worker */
	/* destinations of IPv4, host order, as many as flows: frames are of no flow, and leave by
	 * routes; NULL: of flows. They outlive the bench's use. */
	const __u32 *daddrs;
};

/* A part of a run: times are of the TSC. */
struct fwe_bench_slice {
	__u64 elapsed;
	__u64 received; /* frames, by the sink */
	__u64 packets;  /* as in struct fwe_stats */
	__u64 bursts;
	__u64 cycles;
	__u64 lost;      /* frames of flows that were due, and were not made or did not leave */
	__u64 flooded;   /* frames of no flow */
	__u32 pauses;    /* somebody else had one of the two cores, for 50 us or longer */
	__u32 latencies; /* of struct fwe_bench_run, until now */
	/* the I/O core's, as in struct fwe_io_stats */
	__u64 io_packets;
	__u64 io_receive;
	__u64 io_hash;
	__u64 io_ring;
	__u64 io_transmit;
};

struct fwe_bench_run {
	__u32 worker;     /* enum fwe_bench_worker */
	__u32 check_each; /* frame of so many is compared with what is expected */
	__u32 cold;       /* headers come from memory, as from a card, not from a core's cache */
	__u32 transmits;  /* the I/O core sends */
	__u32 flood_held; /* the flood is made, and kept from the worker: what making it costs */
	__u32 pad;
	const struct fwe_routes *routes; /* NULL: what has no flow is the kernel's */
	__u64 rate_pps;                  /* 0: as many as go */
	__u64 flood_pps; /* of frames beside that are of no flow, after fwe_bench_flood(); 0: none
			  */
	__u64 taken_pps; /* of these the thread that talks to the kernel would take so many */
	__u64 slice;     /* cycles */
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
	__u64 flooded; /* of no flow, beside `sent` */
	__u64 refused; /* of these, by the ring to the thread */
	struct fwe_stats stats;
};

struct fwe_bench;
struct fwe_io;
struct fwe_worker;

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
/*
 * Runs may have a flood of frames of no flow, as the last fwe_bench_fill() says. How many a second
 * one thread gives to the kernel by this TAP, which stays the caller's; 0, or -1: memory is short,
 * or the TAP is gone.
 */
int fwe_bench_flood(struct fwe_bench *bench, int tap, double *taken_pps);
/* 0, or -1 with *error. */
int fwe_bench_run(struct fwe_bench *bench, const struct fwe_memory *memory,
		  const struct fwe_clock *clock, struct fwe_bench_run *run, const char **error);
/* Frames of the pools that are not in them: 0 between runs. */
__u32 fwe_bench_missing(const struct fwe_bench *bench);
/*
 * Several workers, whose frames are numbered within their flows. The generator is the I/O core, and
 * the sink, which looks at the numbers.
 */
struct fwe_crew;

enum fwe_crew_mode {
	/* A card spreads flows by its hash (Toeplitz), over a table of 128 queues. */
	FWE_CREW_RSS = 0,
	FWE_CREW_DISPATCH = 1,
};

struct fwe_crew_config {
	__u32 mode; /* enum fwe_crew_mode */
	__u32 workers;
	__u32 lcore;        /* of the first one; the others follow */
	__u32 order_count;  /* a power of two */
	const __u32 *order; /* of flows, round and round */
	const __u32 *extra; /* of each flow: what its frames are charged with beside, in 16ths of a
			       cycle */
};

struct fwe_crew_counts {
	__u64 sent;
	__u64 received;
	__u64 reordered; /* came behind a later one of their flow */
	__u64 checked;   /* as a whole */
	__u64 wrong;
};

/* Starts the workers; flows are the bench's, in turn, of IPv4, and at most FWE_CREW_FLOWS. NULL
 * with *error, a line. */
struct fwe_crew *fwe_crew_new(struct fwe_bench *bench, const struct fwe_memory *memory,
			      const struct fwe_clock *clock, const struct fwe_crew_config *config,
			      const char **error);
/* Generates, dispatches and receives for so many cycles. */
void fwe_crew_run(struct fwe_crew *crew, __u64 cycles, struct fwe_crew_counts *counts);
/* The same without new frames, until all have arrived, or five seconds nothing has; ends the
 * workers. */
void fwe_crew_end(struct fwe_crew *crew, struct fwe_crew_counts *counts);
void fwe_crew_free(struct fwe_crew *crew);
/* Its parts. The I/O core sends; with FWE_CREW_RSS it reads nothing. */
struct fwe_io *fwe_crew_io(const struct fwe_crew *crew);
const struct fwe_worker *fwe_crew_worker(const struct fwe_crew *crew, __u32 number);

/* Size and secret of a table for so many flows. */
void fwe_bench_table(struct fw_config *config, __u32 flows);

#endif
