/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of the engine that runs on DPDK, as its program sees it. Nothing here is
 * DPDK's but names: struct rte_mbuf, port and queue numbers.
 */
#ifndef FW_ENGINE_H
#define FW_ENGINE_H

#include "../dataplane/abi.h"
#include "sleep.h"

struct rte_mbuf;
struct rte_mempool;
struct fwe_exits;
struct fwe_lane;
struct fwe_sockets;
struct fwe_schedule;

/* EAL arguments, the program's name first; 0 or a negative errno. Once in a process. */
int fwe_eal_start(int count, char **arguments);
void fwe_eal_end(void);
/* Such as "DPDK 22.11.11". */
const char *fwe_dpdk_version(void);

enum fwe_const {
	FWE_PORTS_MAX = 64,
	/* VLANs and sessions at them. */
	FWE_FRAMINGS_MAX = 400,
	/* Frames that a worker takes at once. */
	FWE_BURST_MAX = 64,
	FWE_BURST = 32,
};

/*
 * Plain pointers, which may be BPF arrays that are mapped or memory of huge pages. They stay
 * valid until the worker has ended.
 */
struct fwe_memory {
	struct fw_flow *flows; /* config->flow_mask + 1; their state is written */
	const struct fw_nexthop *nexthops;
	const struct fw_control *control;
	const struct fw_config *config; /* copied when the worker takes it up */
	const struct fw_watch *watch;   /* or NULL */
	__u32 nexthops_max;             /* greatest index */
	__u32 pad;
};

/* The data plane's tick is (CLOCK_MONOTONIC - origin_ns) * hz, in 32 bits. */
struct fwe_clock {
	__s64 origin_ns; /* may be written at any time */
	__u32 hz;        /* 0: the tick stands at origin_ns */
	__u32 pad;
};

/* A queue pair of a port, the worker's own. */
struct fwe_port {
	/* of a port that stays the kernel's, in the place of DPDK's; or NULL */
	struct fwe_sockets *sockets;
	/* to the I/O core that reads the port, of which this worker has what is handed over; or
	 * NULL */
	struct fwe_lane *lane;
	__u16 id; /* DPDK's */
	__u16 rx_queue;
	__u16 tx_queue;
	__u16 number;            /* in the order of the configuration; the worker writes it */
	__u32 ifindex;           /* of its device in the kernel: port of keys and next hops */
	__u32 sourced_elsewhere; /* another worker sends what is somebody else's */
	__u32 wakes;             /* see fwe_port_wakes() */
};

/*
 * Frames of a port that are the kernel's, unchanged, with the reason of each
 * (enum fw_reason). They are the callee's.
 */
typedef void (*fwe_exception)(void *context, const struct fwe_port *port, struct rte_mbuf **frames,
			      const __u8 *reasons, __u32 count);

/* The frame's octets, `size` at most; its length. */
__u32 fwe_frame_read(const struct rte_mbuf *frame, void *to, __u32 size);
void fwe_frames_free(struct rte_mbuf **frames, __u32 count);

/*
 * Frames of somebody else's that are to leave by a port: at most `room` of them, and how many. They
 * are the worker's then; their hash.usr is the leaf of the output's scheduler, as
 * fwe_schedule_put() takes it.
 */
typedef __u32 (*fwe_source)(void *context, const struct fwe_port *port, struct rte_mbuf **frames,
			    __u32 room);

/* What a frame costs a worker, by the path that it takes. */
enum fwe_path {
	FWE_PATH_PLAIN = 0,  /* a hit that goes the straight way */
	FWE_PATH_OTHER = 1,  /* one that goes step by step */
	FWE_PATH_KERNEL = 2, /* what is not forwarded */
	/* beside one of these */
	FWE_PATH_MIRROR = 3,   /* a copy, see mirror.h */
	FWE_PATH_SCHEDULE = 4, /* it waits in a scheduler: put and taken */
	FWE_PATH_ROUTE = 5,    /* it leaves by its destination, in the place of the first three */
	FWE_PATHS = 6,
};

/* Cycles that a frame is charged with beside, in 16ths: a simulated load of the bench's. */
typedef __u32 (*fwe_extra)(const struct rte_mbuf *frame);

/* Tags and sessions that are taken off: see fwe_framings_new(). */
struct fw_engine_framings;

struct fwe_config {
	struct fwe_memory memory;
	const struct fwe_clock *clock;
	const struct fwe_port *ports; /* copied */
	__u32 ports_count;
	__u32 burst;             /* 1 to FWE_BURST_MAX; 0: FWE_BURST */
	int numa;                /* node of the worker's own memory, or -1 */
	fwe_exception exception; /* NULL: they are freed, and counted as exceptions */
	fwe_source source;       /* NULL: there are none */
	fwe_extra extra;         /* NULL: nothing beside; only of what an I/O core hands over */
	__u32 number;            /* of the worker, for what all count in one table */
	__u32 sleep_us_max;      /* 0: polls; else it sleeps without traffic, for so long at most */
	struct fwe_waker *waker; /* by which others wake it; NULL: it naps */
	void *context;
};

/* Written by the worker alone, each turn; read at any time. */
struct fwe_stats {
	__u64 turns;  /* also tells that what was replaced before it is no longer used */
	__u64 bursts; /* that had frames; packets / bursts is their mean size */
	__u64 packets;
	__u64 cycles;     /* of the TSC, in turns that had frames */
	__u64 sent;       /* of what was forwarded; or given to the output's scheduler */
	__u64 sourced;    /* the same of somebody else's */
	__u64 tx_dropped; /* the output's ring had no room */
	__u64 exceptions;
	__u64 dropped;      /* FW_R_POLICED, FW_R_STRAY_CLOSE */
	__u64 hits;         /* went the straight way */
	__u64 routed;       /* left by their destination */
	__u64 events_lost;  /* nobody took them */
	__u64 copied;       /* to another node's memory; see fwe_worker_copy() */
	__u64 not_copied;   /* that memory was short, and they were handed over */
	__u64 mirrored;     /* copies for who looks on, sent; or given to the scheduler there */
	__u64 not_mirrored; /* memory was short, or the ring there had no room */
	struct fwe_slept slept;
	/* of frames of an I/O core: what their paths cost by the model, in 16ths of a cycle */
	__u64 charged;
	__u32 model[FWE_PATHS]; /* likewise, of a frame: the median of what is measured */
	__u32 pad;
	__u64 reasons[FW_REASONS_MAX];
	__u64 tx_dropped_at[FWE_PORTS_MAX]; /* by output, in the order of the configuration */
};

struct fwe_worker;

/* NULL with *error, a line, if something is wrong with the configuration or memory is short. */
struct fwe_worker *fwe_worker_new(const struct fwe_config *config, const char **error);
/* After it has ended. */
void fwe_worker_free(struct fwe_worker *worker);
/* Forwards on this thread until fwe_worker_stop(); of the type that lcores run. */
int fwe_worker_run(void *worker);
void fwe_worker_stop(struct fwe_worker *worker);
/* If it sleeps, it makes turns. */
void fwe_worker_wake(struct fwe_worker *worker);
/* Runs that on an lcore, which is not the main one: 0 or a negative errno. */
int fwe_lcore_launch(int (*run)(void *), void *argument, __u32 lcore);
/* Until what runs there has ended. */
void fwe_lcore_wait(__u32 lcore);
/* Cycles a second, of the counter that stats.cycles is of. */
__u64 fwe_tsc_hz(void);
/* One turn over all ports, on this thread; the frames that came in. For tests. */
__u32 fwe_worker_turn(struct fwe_worker *worker);
const struct fwe_stats *fwe_worker_stats(const struct fwe_worker *worker);
/* What frames of each bucket (FW_BUCKETS) were charged with, as stats.charged. */
const __u64 *fwe_worker_load(const struct fwe_worker *worker);

/*
 * Another table. The one before, and what it points to, is no longer used once stats.turns has
 * risen by two, or the worker has ended. `memory` itself lives as long.
 */
void fwe_worker_set_memory(struct fwe_worker *worker, const struct fwe_memory *memory);

/*
 * Tags and sessions of frames that come in, replaced as a whole: the old ones are freed once
 * stats.turns has risen by two, or the worker has ended. NULL: none.
 */
void fwe_worker_set_framings(struct fwe_worker *worker, struct fw_engine_framings *framings);
/* At most FWE_FRAMINGS_MAX; NULL if memory is short. */
struct fw_engine_framings *fwe_framings_new(const struct fw_framing *framings,
					    const struct fw_framed *framed, __u32 count);
void fwe_framings_free(struct fw_engine_framings *framings);

/* Prefix paths (dataplane/route.h): BPF arrays that are mapped. */
struct fwe_routes {
	const struct fw_prefix4 *prefixes4;
	const struct fw_prefix6 *prefixes6;
	struct fw_routes *routes; /* one */
	struct fw_hop *hops;      /* hop_mask + 1; dues and what is wanted are written */
	const struct fw_route_entrance *entrances; /* FW_ROUTE_ENTRANCES */
	struct fw_route_count *counts; /* of this engine's first worker on: FW_LEAVES of each */
	__u32 counts_workers;          /* workers of which there are counts; others share them */
	__u32 hop_mask;
};
/* Replaced as a whole, as framings are. NULL: packets without a flow are the kernel's. */
void fwe_worker_set_routes(struct fwe_worker *worker, const struct fwe_routes *routes);

/* Schedulers of outputs, in the order of the configuration; NULL: none. */
struct fwe_schedules {
	struct fwe_schedule *of[FWE_PORTS_MAX];
};
/*
 * Replaced as a whole, as framings are. What waits at an output goes on in its new scheduler
 * (fwe_schedule_inherit()); without one it is dropped. NULL: none.
 */
void fwe_worker_set_schedules(struct fwe_worker *worker, const struct fwe_schedules *schedules);

struct fwe_mirror;
/* What is copied for who looks on. Replaced as a whole, as framings are. NULL: nothing. */
void fwe_worker_set_mirror(struct fwe_worker *worker, const struct fwe_mirror *mirror);

/*
 * Frames from the ports of a mask, by number, are copied to a pool before they leave at this port.
 * Others are handed over. Before it runs.
 */
void fwe_worker_copy(struct fwe_worker *worker, __u32 output, __u64 inputs,
		     struct rte_mempool *pool);

/* The next event of the worker (struct fw_event, struct fw_watch_event); its length, 0 if there is
 * none. One reader. */
__u32 fwe_worker_event(struct fwe_worker *worker, void *event, __u32 size);

/*
 * Of so many frames of at most `room` octets, shared by ports and exception path, in the memory of
 * a node, or of any with -1; NULL: no memory.
 */
struct rte_mempool *fwe_pool_new(__u32 frames, __u16 room, int numa);
void fwe_pool_free(struct rte_mempool *pool);
/* Frames that are free. */
__u32 fwe_pool_available(const struct rte_mempool *pool);

/* DPDK's number of a device by its name; negative: there is none. */
int fwe_port_find(const char *device);
/* The most queues that a device has each way; 0 or a negative errno. */
int fwe_port_queues(__u16 port, __u16 *rx, __u16 *tx);
/* What a port is started with. */
struct fwe_port_config {
	const __u8 *mac; /* 6 octets, or NULL for the device's own */
	__u16 mtu;       /* 0: 1500 */
	__u16 rx_queues; /* of several, flows are spread over by the device's hash (RSS) */
	__u16 tx_queues;
	__u16 interrupts; /* frames are to interrupt, where the device can */
};
/* 0 or a negative errno. */
int fwe_port_start(__u16 port, const struct fwe_port_config *config, struct rte_mempool *pool);
void fwe_port_stop(__u16 port);
/* Whether each of so many queues can wake who sleeps. After it was started. */
int fwe_port_wakes(__u16 port, __u16 rx_queues);
int fwe_port_mac(__u16 port, __u8 *mac);
/* Octets without the L2 header, or a negative errno. */
int fwe_port_mtu(__u16 port);
int fwe_port_has_link(__u16 port);

/* A port as the kernel has it. */
struct fwe_face {
	/* non-blocking, and stay the caller's; none: the port itself is the kernel's */
	const int *queues;
	__u32 queues_count; /* FWE_TAP_QUEUES at most */
	__u32 ifindex;      /* of that */
	/* of the worker that sends what comes from there; or NULL */
	struct fwe_waker *waker;
};

/*
 * Exception paths, one for each of the workers' ports, in their order. NULL with errno.
 */
struct fwe_exits *fwe_exits_new(const struct fwe_face *faces, unsigned int count,
				unsigned int workers, struct rte_mempool *pool);
/* No worker and no thread uses them any more. */
void fwe_exits_free(struct fwe_exits *exits);
/*
 * Moves frames both ways, or sleeps, for `timeout_ms` at most, until there are some. 0, or the
 * number of a TAP that is gone, from 1 on. Of one thread, which has registered itself.
 */
int fwe_exits_turn(struct fwe_exits *exits, int timeout_ms);
/*
 * What comes down by so many queues of a port is of these leaves of its scheduler, as
 * fwe_schedule_put() takes them; the others are not looked at before they have been named once.
 */
void fwe_exits_set_leaves(struct fwe_exits *exits, __u32 port, const __u16 *leaves, __u32 count);
struct fwe_exits_counts {
	__u64 from_kernel;
	__u64 not_taken; /* by a TAP, which is down or full, or by the kernel's port */
	__u64 no_room;   /* of a worker's, in the ring to the thread */
};
struct fwe_exits_counts fwe_exits_sum(const struct fwe_exits *exits);
/* Frames on their way to the kernel at a port, `room` at most, which are the caller's: for who
 * stands in for the thread. */
__u32 fwe_exits_take(struct fwe_exits *exits, __u32 port, struct rte_mbuf **frames, __u32 room);
/* fwe_exception and fwe_source of a worker; the context is the exits. */
void fwe_exits_exception(void *exits, const struct fwe_port *port, struct rte_mbuf **frames,
			 const __u8 *reasons, __u32 count);
__u32 fwe_exits_source(void *exits, const struct fwe_port *port, struct rte_mbuf **frames,
		       __u32 room);

/* For threads that DPDK has not made. 0 or a negative errno. */
int fwe_thread_register(void);
void fwe_thread_unregister(void);

#endif
