/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefix paths in tc, at a port without XDP: ahead of the fast path, and through the qdisc of the
 * port where a packet leaves. Frames may be merged.
 */
#include "target/tc.h"
#include "target/conn.h"
#include "route_maps.h"
#include "alive.h"
#include "asked.h"

/* TCX_NEXT is TC_ACT_UNSPEC: whoever else is on this hook gets the packet. */
enum { FW_NEXT = -1 };

/*
 * ip_tos2prio of net/ipv4/route.c, four bits each: ip_forward() gives an IPv4 packet this priority,
 * ip6_forward() leaves it as it is.
 */
static __always_inline void fw_route_class(fw_ctx *ctx, __u8 tos)
{
	ctx->priority = 0x4444666622220000ULL >> ((tos & 0x1e) << 1) & 15;
}

/* The skb's own sum, where a driver gave one, has the hop limit in it. */
static __always_inline void fw_route_resum(fw_ctx *ctx, __u8 hop_limit)
{
	bpf_csum_update(ctx,
			fw_csum_fold(fw_csum_diff(fw_htons(hop_limit), fw_htons(hop_limit - 1))));
}

/* The kernel is given the packet under a token, if there is one. */
static __always_inline enum fw_routing fw_route_ask(fw_ctx *ctx, __u32 record)
{
	__u32 token = fw_ctl.learn ? fw_asked_note(ctx, record, 1) : 0;

	if (!token)
		return FW_ROUTING_NOT;
	ctx->tc_index = token;
	return FW_ROUTING_ASKS;
}

/* At a port of the engine what the engine has as a flow is not tc's, or it would never be one. */
static __always_inline int fw_hop_serves(const struct fw_hop *hop, const struct fw_route_here *here)
{
	return hop->status && hop->tc &&
	       !(here->families & FW_ROUTES_ENGINE && hop->engine == FW_HOP_FLOWS);
}

static __always_inline int fw_hop_waits(const struct fw_hop *hop)
{
	return !fw_ctl.on || hop->epoch != fw_ctl.epoch;
}

static __always_inline __u32 fw_exit_of(const struct fw_hop *hop)
{
	return hop->port;
}

#include "route.h"

SEC("tc")
int freeway_route_tc(struct __sk_buff *ctx)
{
	enum fw_routing routing = FW_ROUTING_NOT;
	__u32 port = 0;

	/* what somebody has marked is the kernel's, and what was noted at a device below */
	if (!ctx->vlan_present && !ctx->mark && !ctx->tc_index) {
		fw_pull(ctx);
		routing = fw_route(ctx, &fw_route_here[0], 0, 0, &port);
	}
	if (fw_likely(routing == FW_ROUTING_SENDS))
		return bpf_redirect(port, 0);
	if (routing == FW_ROUTING_ASKS)
		return FW_NEXT;
	bpf_tail_call(ctx, &fw_route_next, 0);
	/* the daemon has gone, and the kernel has emptied the map; a clsact filter stays */
	fw_daemon_lives(fw_now());
	return FW_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
