/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* XDP at a part of a bond. An object of its own, loaded when the first such port appears. */
#include "target/xdp.h"
#include "target/conn.h"
#include "enter.h"

SEC("xdp")
int freeway_bond(struct xdp_md *ctx)
{
	struct fw_framing part = {.port = fw_port(ctx)};
	const struct fw_framed *bond = fw_framing_get(&part);

	/* one whose frames the bond drops is nobody's */
	return fw_likely(bond) ? fw_enter(ctx, bond->port) : XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
