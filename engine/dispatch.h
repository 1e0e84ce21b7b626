/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Dispatch: an I/O core reads its ports in bursts, and gives each frame to the worker that has the
 * frame's bucket (../dataplane/bucket.h). A bucket that moves from one worker to another keeps its
 * order: its frames are parked until all that the old worker was handed has left.
 */
#ifndef FWE_DISPATCH_H
#define FWE_DISPATCH_H

#include "../dataplane/abi.h"
#include "../dataplane/bucket.h"
#include "sleep.h"

struct rte_mbuf;
struct fwe_io;
struct fwe_lane;
struct fwe_sockets;

enum fwe_dispatch_const {
	FWE_WORKERS_MAX = 16,
	/* Frames on their way to a worker, or back, at a port. */
	FWE_LANE_ROOM = 512,
	/* Frames of a bucket that moves. */
	FWE_PARKED_MAX = 512,
	FWE_BUCKETS = FW_BUCKETS,
};

/* `transmits`: the I/O core sends by the port, too. NULL: memory is short. */
struct fwe_lane *fwe_lane_new(__u32 transmits, int numa);
/* Of the worker and the I/O core, or NULL. Before either uses it. */
void fwe_lane_set_wakers(struct fwe_lane *lane, struct fwe_waker *worker, struct fwe_waker *io);
/* Neither side uses it any more. */
void fwe_lane_free(struct fwe_lane *lane);
/* Whether the worker polls the port's queue itself, from its next turn on. */
void fwe_lane_set_polled(struct fwe_lane *lane, __u32 polled);

/* A port of an I/O core's. */
struct fwe_io_port {
	struct fwe_sockets *sockets;   /* in the place of DPDK's port; or NULL */
	struct fwe_lane *const *lanes; /* to each worker */
	__u16 id;                      /* DPDK's */
	__u16 rx_queues;               /* all of which it reads */
	__u16 tx_queue;                /* by which it sends what comes back */
	__u16 wakes;                   /* see fwe_port_wakes() */
};

struct fwe_io_config {
	const struct fwe_io_port *ports; /* copied, their lanes not */
	/* of all ports, those of other I/O cores too, a port's after the other's */
	struct fwe_lane *const *lanes;
	__u32 ports_count;
	__u32 lanes_count;
	__u32 workers;
	__u32 burst;        /* as a worker's */
	__u32 sleep_us_max; /* as a worker's */
	int numa;
	struct fwe_waker *waker; /* as a worker's */
};

/* Written by the I/O core alone, each turn; cycles are of the TSC. */
struct fwe_io_stats {
	__u64 turns;
	__u64 bursts;
	__u64 packets;
	__u64 cycles;         /* in turns that moved frames: */
	__u64 receive_cycles; /* bursts out of the device, */
	__u64 hash_cycles;    /* their buckets, */
	__u64 ring_cycles;    /* and into the rings */
	__u64 transmit_cycles;
	__u64 transmitted;
	__u64 tx_dropped; /* the device had no room */
	__u64 dropped;    /* a worker's ring had no room */
	__u64 moves;      /* buckets that are another worker's since */
	__u64 called_off; /* moves: the old worker took too long, or too much came meanwhile */
	__u64 parked;     /* frames */
	struct fwe_slept slept;
};

/* Ports are paused, all buckets are worker 0's. NULL with *error, a line. */
struct fwe_io *fwe_io_new(const struct fwe_io_config *config, const char **error);
/* After it has ended. */
void fwe_io_free(struct fwe_io *io);
/* On this thread until fwe_io_stop(); of the type that lcores run. */
int fwe_io_run(void *io);
void fwe_io_stop(struct fwe_io *io);
/* One turn, on this thread; frames that it moved. */
__u32 fwe_io_turn(struct fwe_io *io);
const struct fwe_io_stats *fwe_io_stats(const struct fwe_io *io);

/* Reads no more at its port of that number, from its next turn on. */
void fwe_io_pause(struct fwe_io *io, __u32 port);
/* True once all that was read has left. */
int fwe_io_is_quiet(const struct fwe_io *io, __u32 port);
/* Reads again, and goes by that secret (fw_config.hash_key). The port is quiet, or never went. */
void fwe_io_resume(struct fwe_io *io, __u32 port, const __u64 *key);
/* Whose each bucket is to be. Of one thread; those that differ move one after the other. */
void fwe_io_assign(struct fwe_io *io, __u32 port, const __u8 *worker);
/* Whose each is. */
void fwe_io_owners(const struct fwe_io *io, __u32 port, __u8 *worker);

/* The bucket of a frame by that secret. */
__u32 fwe_bucket_of_frame(const void *frame, __u32 len, const __u64 *key);

#endif
