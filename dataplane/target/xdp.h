/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The XDP target: native mode, one linear buffer, before any skb exists. */
#ifndef FW_TARGET_XDP_H
#define FW_TARGET_XDP_H

#include "bpf.h"
#include "kernel.h"
#include "../parse.h"

#define FW_TARGET_IS_TC 0
#define FW_TARGET_OWNS  0
/* Flows of the engine at ports where it has sockets. */
#define FW_TARGET_HANDS      fw_cfg.sockets
#define FW_TARGET_NOTES(ctx) 1
typedef struct xdp_md fw_ctx;
#include "wire.h"

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
	__u64 len = (__u64)ctx->data_end - (__u64)ctx->data;

	/* a length from here on: the verifier forbids 32-bit arithmetic on pointers */
	asm volatile("" : "+r"(len));
	return len;
}

static __always_inline __u32 fw_port(const fw_ctx *ctx)
{
	return ctx->ingress_ifindex;
}

static __always_inline __u32 fw_gso_size(const fw_ctx *ctx)
{
	(void)ctx; /* ahead of GRO */
	return 0;
}

static __always_inline int fw_merged_otherwise(fw_ctx *ctx, __u8 proto)
{
	(void)ctx;
	(void)proto;
	return 0;
}

/* Cut the sender's padding, as ip_rcv() and ipv6_rcv() do. */
static __always_inline int fw_trim(fw_ctx *ctx, void **data, void **end, __u32 len)
{
	__u32 have = *end - *data;

	if (fw_likely(have == len))
		return 1;
	if (bpf_xdp_adjust_tail(ctx, (int)len - (int)have))
		return 0;
	*data = fw_data(ctx);
	*end = fw_data_end(ctx);
	return *data + FW_ETH_LEN <= *end;
}

/* Room ahead of the frame, or less of it: as bpf_xdp_adjust_head(). */
static __always_inline int fw_adjust_head(fw_ctx *ctx, int delta)
{
	return bpf_xdp_adjust_head(ctx, delta);
}

/* The engine's sockets, those of a port by its queues; the kernel takes out what has gone. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, FW_SOCKETS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_sockets);

/* Which of them is a port's first, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FW_SOCKETS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} FW_MAP(fw_socket_at);

/*
 * The devices of each list. The kernel walks a whole map for each frame, and asks with a call about
 * each entry of a plain one, those that are empty included; of a hashed one it sees them at a
 * glance (dev_map_enqueue_multi()).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FW_OLISTS);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
			__uint(max_entries, FW_OLIST_MAX);
			__type(key, __u32);
			__type(value, struct bpf_devmap_val);
		});
} FW_MAP(fw_olist_ports);

/* Says ahead of the frame which list's copies it will be, unless they are alike; without it the
 * frame is as it was. */
static __always_inline int fw_copy_mark(fw_ctx *ctx, __u32 olist, __u32 kind, void **data,
					void **end)
{
	struct fw_copy *copy;

	if (!bpf_map_lookup_elem(&fw_olist_ports, &olist))
		return 0;
	if (kind == FW_NH_OLIST_ALIKE)
		return 1;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*copy)))
		return 0;
	copy = (void *)(long)ctx->data_meta;
	*data = fw_data(ctx);
	*end = fw_data_end(ctx);
	if ((void *)(copy + 1) > *data || *data + FW_ETH_LEN > *end)
		return 0;
	copy->magic = fw_cfg.copy_magic;
	copy->olist = olist;
	return 1;
}

/* Is the frame a copy? Then of which list. */
static __always_inline int fw_copy_marked(fw_ctx *ctx, __u32 *olist)
{
	const struct fw_copy *copy = (void *)(long)ctx->data_meta;

	if ((void *)(copy + 1) > fw_data(ctx) || copy->magic != fw_cfg.copy_magic)
		return 0;
	*olist = copy->olist;
	return 1;
}

/* Takes the mark off. */
static __always_inline int fw_copy_unmark(fw_ctx *ctx)
{
	return !bpf_xdp_adjust_meta(ctx, sizeof(struct fw_copy));
}

static __always_inline const struct fw_framed *fw_framing_get(const struct fw_framing *framing)
{
	return bpf_map_lookup_elem(&fw_framings, framing);
}

static __always_inline struct nf_conn *fw_conn_find(fw_ctx *ctx, struct bpf_sock_tuple *tuple,
						    __u32 len, struct bpf_ct_opts *opts)
{
	return bpf_xdp_ct_lookup(ctx, tuple, len, opts, sizeof(*opts));
}

#endif
