/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether the daemon is there, for tc, which may outlive it. */
#ifndef FW_ALIVE_H
#define FW_ALIVE_H

#include "abi.h"

/*
 * Ticks wrap: weeks after the daemon died its deadline would lie ahead again, and what the fast
 * path knew then would come to life. It is kept behind, here, where what the kernel has passes.
 */
static __always_inline int fw_daemon_lives(__u32 now)
{
	__u32 deadline = fw_ctl.deadline_tick;

	if (!fw_reached(now, deadline))
		return 1;
	if (now - deadline > 1U << 30)
		__sync_val_compare_and_swap(&fw_ctl.deadline_tick, deadline, now - (1U << 29));
	return 0;
}

#endif
