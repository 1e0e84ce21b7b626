/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Conntrack as BPF sees it, for both BPF targets. */
#ifndef FW_TARGET_CONN_H
#define FW_TARGET_CONN_H

#include "kernel.h"
#include "../parse.h"
#include "../watch.h"

static __always_inline __u32 fw_sock_tuple(struct bpf_sock_tuple *to, const struct fw_tuple *from,
					   __u8 family)
{
	if (family == FW_AF_INET) {
		to->ipv4.saddr = from->saddr_be[0];
		to->ipv4.daddr = from->daddr_be[0];
		to->ipv4.sport = from->sport_be;
		to->ipv4.dport = from->dport_be;
		return sizeof(to->ipv4);
	}
	for (int i = 0; i < 4; i++) {
		to->ipv6.saddr[i] = from->saddr_be[i];
		to->ipv6.daddr[i] = from->daddr_be[i];
	}
	to->ipv6.sport = from->sport_be;
	to->ipv6.dport = from->dport_be;
	return sizeof(to->ipv6);
}

/* `tuple` is room for the kfunc's argument, on the stack or in a map. */
static __always_inline struct nf_conn *fw_conn_lookup(fw_ctx *ctx, const struct fw_tuple *t,
						      __u8 family, __u8 proto,
						      struct bpf_sock_tuple *tuple,
						      struct bpf_ct_opts *opts)
{
	__builtin_memset(tuple, 0, sizeof(*tuple));
	__builtin_memset(opts, 0, sizeof(*opts));
	opts->netns_id = -1; /* BPF_F_CURRENT_NETNS */
	opts->l4proto = proto;
	/* The length tells the kfunc the family, and must be a constant. */
	if (fw_sock_tuple(tuple, t, family) == sizeof(tuple->ipv4))
		return fw_conn_find(ctx, tuple, sizeof(tuple->ipv4), opts);
	return fw_conn_find(ctx, tuple, sizeof(tuple->ipv6), opts);
}

/*
 * Is the connection behind a hit still what it was when the flow was learned? Of external linkage,
 * so that the BPF verifier looks at it once.
 */
enum fw_reason fw_conn_check_slow(fw_ctx *ctx, const struct fw_tuple *t, __u32 index,
				  __u32 family_proto);

__noinline enum fw_reason fw_conn_check_slow(fw_ctx *ctx, const struct fw_tuple *t, __u32 index,
					     __u32 family_proto)
{
	const struct fw_kept *kept = fw_kept_get(index);
	struct bpf_sock_tuple tuple;
	struct bpf_ct_opts opts;
	struct nf_conn *ct;
	enum fw_reason reason = FW_R_NONE;
	__u8 proto = family_proto;

	if (!t || !kept)
		return FW_R_CONN_GONE;
	ct = fw_conn_lookup(ctx, t, family_proto >> 8, proto, &tuple, &opts);
	if (!ct)
		return FW_R_CONN_GONE;
	if ((ct->status & FW_IPS_DYING) || ct->mark != kept->ct_mark ||
	    ((__u32)ct->status & FW_CT_STATUS_KEEP) != kept->ct_status)
		reason = FW_R_CONN_CHANGED;
	else if (proto == FW_PROTO_TCP && ct->proto.tcp.state != FW_CT_ESTABLISHED)
		reason = FW_R_CONN_CHANGED;
	bpf_ct_release(ct);
	return reason;
}

static __always_inline enum fw_reason fw_conn_check(fw_ctx *ctx, const struct fw_pkt *p,
						    __u32 index)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	__u32 need = FW_ETH_LEN + FW_UDP_LEN;
	struct fw_tuple t;

	/* of others the kfunc knows nothing, and the daemon asks */
	if (!fw_cfg.ct || !fw_has_ports(p->proto))
		return FW_R_NONE;
	need += p->family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN;
	if (data + need > end)
		return FW_R_SHORT;
	fw_tuple_fill(&t, data, p->family, p->proto);
	return fw_conn_check_slow(ctx, &t, index, p->family << 8 | p->proto);
}

/*
 * The largest window that an established TCP connection has offered, if conntrack is told to be
 * liberal with it in both directions, else 0. `room` is for the kfunc's argument.
 */
static __always_inline __u32 fw_conn_window(fw_ctx *ctx, const struct fw_tuple *t, __u8 family,
					    struct fw_tuple *room)
{
	struct bpf_ct_opts opts;
	__u32 window = 0, offered;
	struct nf_conn *ct;
	__u8 flags;

	if (!fw_cfg.ct)
		return 0;
	ct = fw_conn_lookup(ctx, t, family, FW_PROTO_TCP, (void *)room, &opts);
	if (!ct)
		return 0;
	flags = BPF_CORE_READ(ct, proto.tcp.seen[0].flags) &
		BPF_CORE_READ(ct, proto.tcp.seen[1].flags);
	if ((flags & FW_CT_BE_LIBERAL) && ct->proto.tcp.state == FW_CT_ESTABLISHED) {
		window = BPF_CORE_READ(ct, proto.tcp.seen[0].td_maxwin);
		offered = BPF_CORE_READ(ct, proto.tcp.seen[1].td_maxwin);
		window = window > offered ? window : offered;
		if (window < FW_WINDOW_MIN)
			window = FW_WINDOW_MIN;
		/* half of all numbers are ahead */
		if (window > 1U << 30)
			window = 1U << 30;
	}
	bpf_ct_release(ct);
	return window;
}

#endif
