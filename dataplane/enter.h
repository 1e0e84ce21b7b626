/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way of a frame that comes in at an Ethernet port, in XDP. A miss writes nothing. */
#ifndef FW_ENTER_H
#define FW_ENTER_H

#include "forward.h"

#ifdef FW_SLOWED
/* A build of scripts/prove-diff: so many reads of the clock, which wait for what is ahead of them.
 */
static __always_inline void fw_slow_down(void)
{
	for (int i = 0; i < FW_SLOWED; i++)
		bpf_ktime_get_ns();
}
#else
static __always_inline void fw_slow_down(void)
{
}
#endif

static __always_inline int fw_enter(struct xdp_md *ctx, __u32 port)
{
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	__u32 within = 0;
	const struct fw_nexthop *nh = fw_hit(ctx, port, &missed);
	struct fw_head head;
	int verdict;

	fw_slow_down();
	if (fw_likely(nh))
		return fw_send(nh);
	/* a frame with tags or a session, as the device that takes them off would show it */
	if (missed == FW_MISSED_UNKNOWN && fw_is_framed(ctx))
		within = fw_unframe(ctx, port, &head);
	if (within) {
		port = within;
		nh = fw_hit(ctx, port, &missed);
		if (fw_likely(nh))
			return fw_send(nh);
	}
	verdict = fw_no_hit(ctx, port, missed);
	if (within && verdict == XDP_PASS && !fw_reframe(ctx, &head))
		return XDP_ABORTED;
	return verdict;
}

#endif
