/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * XDP ahead of the fast path at a port where the destination alone decides. One object for each
 * such port, which share the tables; other ports have the fast path alone.
 */
#include "target/xdp.h"

#include "route_maps.h"
#include "route_frame.h"

/* The kernel is given the packet with a word ahead of it, if the driver has room for one. */
static __always_inline enum fw_routing fw_route_ask(fw_ctx *ctx, __u32 record)
{
	struct fw_route_hint *hint;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*hint)))
		return FW_ROUTING_NOT;
	hint = (void *)(long)ctx->data_meta;
	if ((void *)(hint + 1) > fw_data(ctx))
		return FW_ROUTING_NOT;
	hint->magic = fw_route_magic();
	hint->hop = record;
	return FW_ROUTING_ASKS;
}

/* May packets leave by it here, once it is confirmed? */
static __always_inline int fw_hop_serves(const struct fw_hop *hop, const struct fw_route_here *here)
{
	(void)here;
	return hop->status == FW_ST_ACTIVE;
}

/* Has the kernel not sent a packet by it in this epoch, or is the fast path off? */
static __always_inline int fw_hop_waits(const struct fw_hop *hop)
{
	const fw_u64_any *on = (const void *)&fw_ctl.on, *status = (const void *)&hop->status;

	/* one comparison tells both of what serves */
	return !!(*status ^ *on);
}

static __always_inline __u32 fw_exit_of(const struct fw_hop *hop)
{
	return hop->devmap_slot;
}

#include "route.h"

/* Of a frame that comes in with a tag the VLAN decides, as that of the device that takes it off. */
static __always_inline enum fw_routing fw_route_tagged(fw_ctx *ctx, __u32 *slot)
{
	const fw_u16_any *tci_be = fw_data(ctx) + FW_ETH_LEN;
	__u32 vlan;

	if ((const void *)(tci_be + 1) > fw_data_end(ctx))
		return FW_ROUTING_NOT;
	vlan = fw_ntohs(*tci_be);
	/* or it is masked before its octets are swapped, of which Linux 6.1's verifier knows no
	 * bound */
	asm volatile("" : "+r"(vlan));
	vlan &= FW_TCI_VLAN;
	/* priority alone is no VLAN */
	if (!vlan || !fw_route_here[vlan].families)
		return FW_ROUTING_NOT;
	return fw_route(ctx, &fw_route_here[vlan], FW_TAG_LEN, 0, slot);
}

SEC("xdp")
int freeway_route(struct xdp_md *ctx)
{
	const fw_u16_any *type_be = fw_data(ctx) + FW_ETH_MAC2;
	enum fw_routing routing = FW_ROUTING_NOT;
	__u32 slot = 0;

	if ((const void *)(type_be + 1) <= fw_data_end(ctx) && *type_be == fw_htons(FW_ETH_8021Q))
		routing = fw_route_tagged(ctx, &slot);
	else if (fw_likely(fw_route_here[0].families))
		routing = fw_route(ctx, &fw_route_here[0], 0, 0, &slot);
	if (fw_likely(routing == FW_ROUTING_SENDS))
		return bpf_redirect_map(&fw_ports, slot, XDP_PASS);
	if (routing == FW_ROUTING_ASKS)
		return XDP_PASS;
	if (fw_unlikely(routing == FW_ROUTING_LOST))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &fw_route_next, 0);
	/* the daemon has gone, and the kernel has emptied the map */
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
