/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Prefix paths of the engine (dataplane/route.h): by the tables that XDP and tc go by, which the
 * daemon has mapped here. Two things are otherwise.
 *
 * RCU does not wait for a worker. So what it goes by is copied, and then looked at whether anything
 * that it had read was to be used anew meanwhile.
 *
 * The kernel is asked at the TAP: a packet that is due goes up, and tc there, to which the next hop
 * says so, notes it.
 */
#ifndef FWE_ROUTES_H
#define FWE_ROUTES_H

#include "burst.h"
#include "../dataplane/prefix4.h"
#include "../dataplane/prefix6.h"
#include "../dataplane/route_frame.h"
#include "../dataplane/routing.h"

static __always_inline const struct fw_prefix4 *fw_prefix4_get(void)
{
	return fw_env.routes->prefixes4;
}

static __always_inline const struct fw_prefix6 *fw_prefix6_get(void)
{
	return fw_env.routes->prefixes6;
}

static __always_inline struct fw_routes *fw_routes_get(void)
{
	return fw_env.routes->routes;
}

static __always_inline struct fw_hop *fw_hop_get(__u64 index)
{
	return &fw_env.routes->hops[index & fw_env.routes->hop_mask];
}

static __always_inline struct fw_route_count *fw_route_count_get(__u32 leaf)
{
	return &fw_env.route_counts[leaf & (FW_LEAVES - 1)];
}

static __always_inline __u32 fwe_routes_seq(void)
{
	return __atomic_load_n(&fw_routes_get()->seq, __ATOMIC_ACQUIRE);
}

static __always_inline const struct fw_hop *fw_hop_hold(const struct fw_hop *hop,
							struct fw_hop *held, __u32 seq)
{
	*held = *hop;
	/* all of it is read before that */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return FW_READ_ONCE(fw_routes_get()->seq) == seq ? held : NULL;
}

static __always_inline enum fw_routing fw_route_ask(fw_ctx *ctx, __u32 record)
{
	(void)ctx;
	FW_WRITE_ONCE(fw_hop_get(record)->wanted, 1);
	return FW_ROUTING_ASKS;
}

static __always_inline __u32 fw_exit_of(const struct fw_hop *hop)
{
	return fw_engine_output(hop->port);
}

/* A scheduler's classes are the kernel's to give. */
static __always_inline int fw_hop_serves(const struct fw_hop *hop, const struct fw_route_here *here)
{
	int output;

	(void)here;
	if (!hop->status || hop->engine != FW_HOP_ENGINE)
		return 0;
	output = fw_engine_output(hop->port);
	return output >= 0 && !(fw_env.shaped >> output & 1);
}

static __always_inline int fw_hop_waits(const struct fw_hop *hop)
{
	return !fw_ctl.on || hop->epoch != fw_ctl.epoch;
}

#include "../dataplane/route.h"

/* What is known of a port, or of a VLAN at it; NULL: nothing. */
static __always_inline const struct fw_route_here *fwe_route_here(__u32 base, __u32 vlan)
{
	const struct fw_route_entrance *entrances = fw_env.routes->entrances;

	for (__u32 i = 0; i < FW_ROUTE_ENTRANCES; i++) {
		const struct fw_route_entrance *entrance =
			&entrances[(base + FW_ROUTE_ENTRANCE_STEP * vlan + i) &
				   (FW_ROUTE_ENTRANCES - 1)];
		__u32 there = __atomic_load_n(&entrance->base, __ATOMIC_ACQUIRE);

		if (!there)
			break;
		if (there == base && entrance->vlan == vlan)
			return &entrance->here;
	}
	return NULL;
}

/* Of the frames of a burst what lookups read, level by level: most wait for memory once a level. */
static __always_inline void fwe_fetch_routes(struct rte_mbuf *const *frames, __u32 count)
{
	const struct fw_prefix4 *table4 = fw_prefix4_get();
	const struct fw_prefix6 *table6 = fw_prefix6_get();
	__u32 chunk[FWE_BURST_MAX], address[FWE_BURST_MAX], many = 0;

	for (__u32 i = 0; i < count; i++) {
		const void *data = rte_pktmbuf_mtod(frames[i], const void *);
		__u16 type_be;

		fwe_fetch_ahead(frames, i, count);
		if (frames[i]->data_len < FW_ETH_LEN + FW_IP6_LEN)
			continue;
		type_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
		if (fw_likely(type_be == fw_htons(FW_ETH_IP))) {
			address[many] = fw_ntohl(fw_ip4_at(data)->daddr_be);
			chunk[many] = fw_prefix4_chunk(table4, address[many]);
			rte_prefetch0(fw_prefix4_index(table4, chunk[many], address[many]));
			many++;
		} else if (type_be == fw_htons(FW_ETH_IP6)) {
			__u64 high = (__u64)fw_ntohl(fw_ip6_at(data)->daddr_be[0]) << 32;

			rte_prefetch0(fw_p6_line(table6, fw_prefix6_root(table6, high)));
		}
	}
	for (__u32 i = 0; i < many; i++) {
		__u32 at = *fw_prefix4_index(table4, chunk[i], address[i]);

		rte_prefetch0(fw_prefix4_record(table4, chunk[i], at));
	}
}

/* `tags_len` octets of tags come off. */
static __always_inline fwe_outcome fwe_route_frame(struct rte_mbuf *frame,
						   const struct fwe_port *port,
						   const struct fw_route_here *here,
						   const __u32 tags_len, __u32 seq)
{
	fw_ctx ctx = fwe_ctx_of(frame, port, port->ifindex, NULL, 0);
	enum fw_routing routing;
	__u32 output;

	routing = fw_route(&ctx, here, tags_len, seq, &output);
	/* headers that were there are there without a tag */
	__builtin_assume(routing != FW_ROUTING_LOST);
	if (fw_unlikely(routing == FW_ROUTING_NOT))
		return fwe_unsure;
	if (fw_unlikely(routing == FW_ROUTING_ASKS))
		return fwe_not_forwarded(FW_R_ROUTE_ASKED);
	fwe_settle(frame, &ctx);
	return fwe_leaves(0, output, FWE_HIT_ROUTED);
}

/* Of a frame that comes in with a tag the VLAN decides. */
static __noinline fwe_outcome fwe_route_tagged(struct rte_mbuf *frame, const struct fwe_port *port,
					       __u32 seq)
{
	const void *data = rte_pktmbuf_mtod(frame, const void *);
	const struct fw_route_here *here;
	__u32 vlan = fw_ntohs(*(const fw_u16_any *)(data + FW_ETH_LEN)) & FW_TCI_VLAN;

	/* priority alone is no VLAN */
	here = vlan ? fwe_route_here(port->ifindex, vlan) : NULL;
	return here ? fwe_route_frame(frame, port, here, FW_TAG_LEN, seq) : fwe_unsure;
}

/* One that leaves by its destination, or is to be handled otherwise. */
static __always_inline fwe_outcome fwe_route(struct rte_mbuf *frame, const struct fwe_port *port,
					     const struct fw_route_here *here, __u32 seq)
{
	const void *data = rte_pktmbuf_mtod(frame, const void *);

	if (fw_unlikely(frame->data_len < FW_ETH_LEN + FW_TAG_LEN))
		return fwe_unsure;
	if (fw_unlikely(*(const fw_u16_any *)(data + FW_ETH_MAC2) == fw_htons(FW_ETH_8021Q)))
		return fwe_route_tagged(frame, port, seq);
	return fwe_route_frame(frame, port, here, 0, seq);
}

#endif
