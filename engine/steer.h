/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which class of an output's scheduler the kernel's own frames are of: a frame that comes out of a
 * TAP has neither priority nor mark any more. So a TAP has a queue for each class, and a program at
 * the TAP (TUNSETSTEERINGEBPF), which sees both, chooses the queue.
 */
#ifndef FWE_STEER_H
#define FWE_STEER_H

#include "../dataplane/abi.h"

enum fwe_steer_const {
	/* Of a TAP: for what passes all classes, and one for each leaf. */
	FWE_TAP_QUEUES = 17,
	FWE_STEER_RULES_MAX = 256,
};

enum fwe_steer_kind {
	FWE_STEER_PRIORITY = 0,
	FWE_STEER_MARK,
	FWE_STEER_DSCP,
	/* The lower four bits of a priority; 0 too if it names a class. */
	FWE_STEER_PRIOMAP,
};

struct fwe_steer_rule {
	__u32 kind;
	__u32 value;
	__u32 mask; /* of a mark */
	__u32 queue;
};

/* A program by which the first rule that matches has its queue, else `other`; -1 with errno. */
int fwe_steer_open(const struct fwe_steer_rule *rules, __u32 count, __u32 other);

#endif
