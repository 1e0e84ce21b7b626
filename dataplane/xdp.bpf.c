/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path in XDP. A miss writes nothing. */
#include "target/xdp.h"
#include "target/conn.h"
#include "enter.h"
#include "olist.h"

SEC("xdp")
int freeway_xdp(struct xdp_md *ctx)
{
	return fw_enter(ctx, fw_port(ctx));
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
