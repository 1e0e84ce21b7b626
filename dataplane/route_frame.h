/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Of a frame that is no skb's: it belongs to no class, and has no sum but its headers'. For
 * route.h. */
#ifndef FW_ROUTE_FRAME_H
#define FW_ROUTE_FRAME_H

static __always_inline void fw_route_class(fw_ctx *ctx, __u8 tos)
{
	(void)ctx;
	(void)tos;
}

static __always_inline void fw_route_resum(fw_ctx *ctx, __u8 hop_limit)
{
	(void)ctx;
	(void)hop_limit;
}

#endif
