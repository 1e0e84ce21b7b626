/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc target: an skb, after GRO, on any device. */
#ifndef FW_TARGET_TC_H
#define FW_TARGET_TC_H

#include "bpf.h"
#include "kernel.h"
#include "../parse.h"

#define FW_TARGET_IS_TC 1
typedef struct __sk_buff fw_ctx;

static __always_inline void *fw_data(const fw_ctx *ctx)
{
	return (void *)(long)ctx->data;
}

static __always_inline void *fw_data_end(const fw_ctx *ctx)
{
	return (void *)(long)ctx->data_end;
}

static __always_inline __u32 fw_frame_len(const fw_ctx *ctx)
{
	return ctx->len;
}

static __always_inline __u32 fw_port(const fw_ctx *ctx)
{
	return ctx->ifindex;
}

static __always_inline __u32 fw_gso_size(const fw_ctx *ctx)
{
	return ctx->gso_segs > 1 || ctx->gso_size ? ctx->gso_size : 0;
}

static __always_inline __u32 fw_mark(const fw_ctx *ctx)
{
	return ctx->mark;
}

static __always_inline __u32 fw_priority(const fw_ctx *ctx)
{
	return ctx->priority;
}

/* Headers into the linear part; what does not fit is no flow. */
static __always_inline void fw_pull(fw_ctx *ctx)
{
	__u32 len = FW_ETH_LEN + FW_IP6_LEN + FW_TCP_LEN;

	if (fw_data(ctx) + len <= fw_data_end(ctx) || ctx->data_end - ctx->data >= ctx->len)
		return;
	bpf_skb_pull_data(ctx, ctx->len < len ? ctx->len : len);
}

/* Cut the sender's padding, as ip_rcv() and ipv6_rcv() do. */
static __always_inline int fw_trim(fw_ctx *ctx, void **data, void **end, __u32 len)
{
	if (ctx->len != len && bpf_skb_change_tail(ctx, len, 0))
		return 0;
	*data = fw_data(ctx);
	*end = fw_data_end(ctx);
	return *data + FW_ETH_LEN <= *end;
}

static __always_inline struct nf_conn *fw_conn_find(fw_ctx *ctx, struct bpf_sock_tuple *tuple,
						    __u32 len, struct bpf_ct_opts *opts)
{
	return bpf_skb_ct_lookup(ctx, tuple, len, opts, sizeof(*opts));
}

#endif
