/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a core does without frames, if it may sleep. Where all that it reads wakes it (rx
 * interrupts, AF_XDP sockets, whoever puts frames into its rings), it sleeps until something comes.
 * Where a device cannot, it naps, the longer there was nothing the longer, but no longer than half
 * of the time in which the device's ring would fill.
 */
#ifndef FWE_SLEEP_H
#define FWE_SLEEP_H

#include "../dataplane/abi.h"
#include "../dataplane/target/bytes.h"

struct fwe_sockets;
struct fwe_sleeper;

enum fwe_sleep_const {
	/* Turns without frames after which a core sleeps. */
	FWE_IDLE_TURNS = 256,
	/* Nap between two looks at a device that is none: the rings of such have 512 places or
	 * more, and software fills one in a microsecond. */
	FWE_NAP_VIRTUAL_US = 256,
	/* Octets of the shortest frame, with preamble and gap. */
	FWE_WIRE_MIN = 84,
};

/* By which others wake a core. */
struct fwe_waker {
	int fd; /* eventfd(2) */
	__u32 asleep;
};

/* NULL with errno. */
struct fwe_waker *fwe_waker_new(void);
/* Nobody uses it any more. */
void fwe_waker_free(struct fwe_waker *waker);
void fwe_waker_ring(struct fwe_waker *waker);

/* After something was given to the core. NULL: nobody needs to. */
static __always_inline void fwe_wake(struct fwe_waker *waker)
{
	if (fw_likely(!waker))
		return;
	/* what was given is seen by whoever is about to sleep, or it is seen here that it does */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&waker->asleep, __ATOMIC_RELAXED))
		fwe_waker_ring(waker);
}

/* Written by the core alone. */
struct fwe_slept {
	__u64 times;  /* and so often it woke */
	__u64 woken;  /* of these, by something that came, and not by the time */
	__u64 cycles; /* of the TSC */
};

/* A queue that a core reads. */
struct fwe_input {
	struct fwe_sockets *sockets; /* in the place of DPDK's port; or NULL */
	__u16 port;                  /* DPDK's */
	__u16 queue;
	__u32 wakes; /* see fwe_port_wakes() */
};

/*
 * For `us_max` at most at a time. `waker`: who gives it something else than frames of its inputs
 * wakes it; NULL: it naps. Its inputs are read, all of them, until fwe_sleeper_set_read(). NULL:
 * memory is short.
 */
struct fwe_sleeper *fwe_sleeper_new(struct fwe_waker *waker, __u32 us_max,
				    const struct fwe_input *inputs, __u32 count);
void fwe_sleeper_free(struct fwe_sleeper *sleeper);
/* Of the core's thread, ahead of its first turn. */
void fwe_sleeper_enter(void);
/* Whether the core reads an input at present. */
void fwe_sleeper_set_read(struct fwe_sleeper *sleeper, __u32 input, __u32 read);
/*
 * Sleeps once, after so many turns without frames. `turn` is one of the core's, after which it
 * sleeps if nothing came. Turns without frames then.
 */
__u32 fwe_sleep(struct fwe_sleeper *sleeper, struct fwe_slept *slept, __u32 idle,
		__u32 (*turn)(void *core), void *core);

/* Longest nap, microseconds, at a ring of so many places that a wire of so many Mb/s fills. */
__u32 fwe_nap_us(__u32 places, __u32 mbps);

#endif
