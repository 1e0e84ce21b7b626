/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path in XDP. A miss writes nothing. */
#include "target/xdp.h"
#include "target/conn.h"
#include "forward.h"
#include "olist.h"

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

SEC("xdp")
int freeway_xdp(struct xdp_md *ctx)
{
	enum fw_missed missed = FW_MISSED_UNKNOWN;
	__u32 port = fw_port(ctx), within = 0;
	const struct fw_nexthop *nh = fw_hit(ctx, port, &missed);
	struct fw_head head;
	int verdict;

	fw_slow_down();
	if (fw_likely(nh))
		return fw_send(nh);
	/* a frame with tags or a session, as the device that takes them off would show it */
	if (missed == FW_MISSED_UNKNOWN && fw_is_framed(ctx))
		within = fw_unframe(ctx, &head);
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

/*
 * At a port of some list, on what is sent there: a copy becomes that port's. Frames of
 * other flows have no mark. The port's entry in fw_ports has the program too, for the
 * kernel runs that of the first frame on all that it sends at once: bq_enqueue() in
 * kernel/bpf/devmap.c.
 */
SEC("xdp/devmap")
int freeway_leg(struct xdp_md *ctx)
{
	const struct fw_nexthop *leg;
	__u32 olist;

	if (fw_likely(!fw_copy_marked(ctx, &olist)))
		return XDP_PASS;
	leg = fw_leg_at(olist, ctx->egress_ifindex);
	return leg && fw_copy_unmark(ctx) && fw_leg_write(ctx, leg) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
