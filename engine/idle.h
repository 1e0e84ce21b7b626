/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a core does without frames, if it may sleep. */
#ifndef FWE_IDLE_H
#define FWE_IDLE_H

#include <time.h>

#include "../dataplane/target/bytes.h"

enum {
	/* Turns without frames after which it sleeps. */
	FWE_IDLE_TURNS = 256,
};

/* After so many turns without frames; the longer there was nothing, the longer. */
static __always_inline void fwe_idle(__u32 turns, __u32 us_max)
{
	__u32 over = turns - FWE_IDLE_TURNS, us;

	if (fw_likely(!us_max || turns <= FWE_IDLE_TURNS))
		return;
	us = over < 10 ? 1u << over : 1024;
	if (us > us_max)
		us = us_max;
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

#endif
