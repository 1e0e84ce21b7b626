/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Optional limits to what the kernel is given by reason, off by default: a token
 * bucket for each reason and CPU, looked at only by what would be punted. Packets
 * of a flow in the table are never policed, nor what a link cannot live without.
 */
#ifndef FW_POLICE_H
#define FW_POLICE_H

#include "abi.h"
#include "nd.h"
#include "parse.h"

/* Takes a token, or counts what has none. */
static __always_inline int fw_over_limit(enum fw_reason reason, __u32 now)
{
	struct fw_policer *policer;
	__u32 rate, elapsed;
	__u64 full;

	if ((__u32)reason >= FW_REASONS_MAX)
		return 0;
	rate = fw_cfg.limit[reason].packets_per_s;
	if (!rate)
		return 0;
	policer = fw_policer_get(reason);
	if (!policer)
		return 0;
	elapsed = now - policer->tick;
	if (elapsed) {
		full = (__u64)fw_cfg.limit[reason].burst * fw_cfg.hz;
		policer->credit += (__u64)elapsed * rate;
		if (policer->credit > full)
			policer->credit = full;
		policer->tick = now;
	}
	if (policer->credit < fw_cfg.hz) {
		policer->dropped++;
		return 1;
	}
	policer->credit -= fw_cfg.hz;
	return 0;
}

/* Is a punt over the limit of its reason, and to be dropped? */
static __always_inline int fw_police(const void *data, const void *end, const struct fw_pkt *p,
				     enum fw_reason reason)
{
	if (reason == FW_R_ICMP && fw_is_nd(data, end, p))
		return 0;
	return fw_over_limit(reason, p->now_tick);
}

#endif
