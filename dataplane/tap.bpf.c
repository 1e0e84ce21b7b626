/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fast path in XDP at a port whose fast packets are captured. Other ports have the plain one.
 */
#include "target/xdp.h"
#include "target/conn.h"
#include "tap.h"
#include "enter.h"

SEC("xdp")
int freeway_tap(struct xdp_md *ctx)
{
	int verdict;

	fw_tap_note(ctx);
	verdict = fw_enter(ctx, fw_port(ctx));
	if (verdict == XDP_REDIRECT)
		fw_tap_tell(ctx);
	return verdict;
}

char LICENSE[] SEC("license") = "GPL";
