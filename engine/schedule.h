/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler of one output: a tree of classes with rates, as the kernel's htb has it
 * (net/sched/sch_htb.c). A class sends at its rate, and up to its ceiling what those above it have
 * to spare; what is spare goes to the first priority, and within one by turns, in proportion to
 * quanta. The time is an argument.
 */
#ifndef FWE_SCHEDULE_H
#define FWE_SCHEDULE_H

#include "../dataplane/abi.h"

struct rte_mbuf;
struct fwe_schedule;

enum fwe_schedule_const {
	FWE_CLASSES_MAX = 64,
	/* A leaf, and those above it. */
	FWE_CLASS_DEPTH = 8,
	FWE_CLASS_PRIORITIES = 8,
	FWE_CLASS_NONE = 0xffff,
	/* Delays: below 1.024 us, below twice as much, and so on; the last one has the rest. */
	FWE_DELAYS = 24,
};

/* Of struct fwe_class: never waits for its own rate, or ceiling. */
#define FWE_RATE_ANY 0xffffffffffffffffULL

struct fwe_class {
	/* As its owner calls it. */
	__u32 id;
	/* Of the class above, which is named earlier; FWE_CLASS_NONE: it is a root. */
	__u16 above;
	__u16 priority; /* of a leaf: 0 is first */
	__u32 quantum;  /* of a leaf: octets of a turn, 1 or more */
	__u32 limit;    /* of a leaf: frames that wait */
	__u64 limit_bytes;
	__u64 rate; /* octets a second; 0: it has only what those above it spare */
	__u64 ceiling;
	/* What it may send at once, as the time that this takes at its rate, and ceiling. */
	__u64 burst_ns;
	__u64 ceiling_burst_ns;
	/* Each frame counts as so many octets more, and as that many at least. */
	__s32 overhead;
	__u32 least;
};

/* Of a leaf; written by whoever puts and takes, read at any time. */
struct fwe_class_stats {
	__u64 frames; /* that left */
	__u64 bytes;
	__u64 dropped;
	__u64 waiting; /* frames */
	__u64 waiting_bytes;
	__u64 delay_ns; /* of all that left */
	__u64 delays[FWE_DELAYS];
};

/*
 * At most FWE_CLASSES_MAX classes, leaves in the order in which they have their turns. `other`: the
 * leaf for what names none, FWE_CLASS_NONE: that passes at once. `room`: frames that wait in all
 * leaves. NULL with *error, a line.
 */
struct fwe_schedule *fwe_schedule_new(const struct fwe_class *classes, __u32 count, __u16 other,
				      __u32 room, const char **error);
/* With what waits in it. */
void fwe_schedule_free(struct fwe_schedule *schedule);
/* Of a class, by its number from 0 on. */
const struct fwe_class_stats *fwe_schedule_stats(const struct fwe_schedule *schedule, __u32 class);

/*
 * Frames for a leaf, which has a number from 1 on; 0 is the one for what names none, and
 * FWE_CLASS_NONE passes all. How many pass at once: those stay the caller's. The others are the
 * schedule's, or dropped.
 */
__u32 fwe_schedule_put(struct fwe_schedule *schedule, const __u16 *leaves, struct rte_mbuf **frames,
		       __u32 count, __u64 now_ns);
/* Frames that are due, `room` at most. */
__u32 fwe_schedule_take(struct fwe_schedule *schedule, struct rte_mbuf **frames, __u32 room,
			__u64 now_ns);
/* Frames that wait. */
__u32 fwe_schedule_waiting(const struct fwe_schedule *schedule);
/* What waits is dropped. */
void fwe_schedule_purge(struct fwe_schedule *schedule);
/* What waits in the old one goes on in the leaves of the same names; the rest is dropped. */
void fwe_schedule_inherit(struct fwe_schedule *schedule, struct fwe_schedule *old);

#endif
