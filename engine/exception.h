/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the engine does not forward goes to the kernel by a TAP as it came, and what the kernel
 * sends there leaves as it is. A thread of its own talks to the TAPs, so that no worker makes a
 * system call for a frame; rings of one writer and one reader lie between. A full ring drops what
 * misses the table, never what hits it.
 */
#ifndef FW_ENGINE_EXCEPTION_H
#define FW_ENGINE_EXCEPTION_H

#include <stdatomic.h>
#include <stdint.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

enum {
	/* Frames on their way to the kernel, and from it. */
	FWE_UP_ROOM = 1024,
	FWE_DOWN_ROOM = 512,
	/* Frames of one turn at one TAP. */
	FWE_EXIT_BURST = 32,
};

/* The exception path of one port. */
struct fwe_exit {
	struct rte_ring *up;
	struct rte_ring *down;
	struct rte_mempool *pool; /* for what comes from the kernel */
	int tap;
	/* the thread's */
	uint64_t from_kernel __rte_cache_aligned;
	uint64_t not_taken; /* by the TAP, which is down or full */
	/* the worker's */
	uint64_t no_room __rte_cache_aligned;
};

/* The thread's, of all ports. */
struct fwe_exits {
	unsigned int count;
	struct fwe_exit **exit;
	int wake; /* eventfd(2) */
	_Atomic int asleep;
};

#endif
