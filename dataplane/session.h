/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which PPPoE session a PPP device is, and what leaves for it: nothing else tells. A
 * frame that comes in for a session carries its number in skb->tc_index to the PPP
 * device, behind pppoe_rcv() and ppp_input(), which leave that alone. What the kernel
 * sends shows whether packets are as they are, or compressed, encrypted, in pieces.
 */
#ifndef FW_SESSION_H
#define FW_SESSION_H

#include "abi.h"
#include "framing.h"

/* The session of a frame on its way through an Ethernet device, or NULL. */
static __always_inline struct fw_session *fw_session_of(struct __sk_buff *ctx,
							struct fw_pppoe *pppoe)
{
	__u32 session;

	if (fw_likely(ctx->protocol != fw_htons(FW_ETH_PPPOE)) ||
	    bpf_skb_load_bytes(ctx, FW_ETH_MAC2, pppoe, FW_PPPOE_HEAD_LEN) ||
	    pppoe->ethertype_be != fw_htons(FW_ETH_PPPOE))
		return NULL;
	session = FW_SESSION | fw_ntohs(pppoe->session_be);
	return bpf_map_lookup_elem(&fw_sessions, &session);
}

/* tc ingress of an Ethernet device: what PPP's device is to know it by, or 0. */
static __always_inline __u32 fw_session_came(struct __sk_buff *ctx)
{
	struct fw_pppoe pppoe;

	return fw_session_of(ctx, &pppoe) ? fw_ntohs(pppoe.session_be) : 0;
}

/* tc ingress of a device without a link layer, to which it came with that. */
static __always_inline void fw_session_at(__u32 tc_index, __u32 port)
{
	__u32 key = FW_SESSION | tc_index;
	struct fw_session *session = bpf_map_lookup_elem(&fw_sessions, &key);

	if (!session || session->port == port)
		return;
	if (session->port)
		FW_WRITE_ONCE(session->shown, session->shown | FW_SESSION_SHARED);
	else
		FW_WRITE_ONCE(session->port, port);
}

/*
 * tc egress of an Ethernet device. TCP alone is proof, for its headers alone may be
 * compressed (RFC 1144). Control protocols are 0x8000 and more (RFC 1661).
 */
static __always_inline void fw_session_left(struct __sk_buff *ctx)
{
	const __u32 ip_at = FW_ETH_MAC2 + FW_PPPOE_HEAD_LEN;
	struct fw_session *session;
	struct fw_pppoe pppoe;
	__u8 proto = 0, macs[12];
	__u32 shown = 0;

	session = fw_session_of(ctx, &pppoe);
	/* another host's, which passes a bridge, may have the same number */
	if (!session || session->device != fw_port(ctx) ||
	    bpf_skb_load_bytes(ctx, 0, macs, sizeof(macs)) ||
	    __builtin_memcmp(macs, session->macs, sizeof(macs)))
		return;
	if (pppoe.proto_be == fw_htons(FW_PPP_IP))
		bpf_skb_load_bytes(ctx, ip_at + 9, &proto, sizeof(proto));
	else if (pppoe.proto_be == fw_htons(FW_PPP_IP6))
		bpf_skb_load_bytes(ctx, ip_at + 6, &proto, sizeof(proto));
	else if (fw_ntohs(pppoe.proto_be) < 0x8000)
		shown = FW_SESSION_OTHER;
	if (proto == FW_PROTO_TCP)
		shown = FW_SESSION_PLAIN;
	if (shown & ~session->shown)
		FW_WRITE_ONCE(session->shown, session->shown | shown);
}

#endif
