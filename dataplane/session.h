/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which PPPoE session a PPP device is, and what leaves for it: nothing else tells. A
 * frame that comes in for a session carries the session's place in skb->tc_index to
 * the PPP device, behind pppoe_rcv() and ppp_input(), which leave that alone. What the
 * kernel sends shows whether packets are as they are, or compressed, encrypted, in
 * pieces.
 */
#ifndef FW_SESSION_H
#define FW_SESSION_H

#include "abi.h"
#include "framing.h"

/* Beyond all tokens, which may reach a device by other tunnels. */
enum { FW_SESSION_INDEX = FW_SLOTS + 1 };

/* PPP protocols (RFC 1661, RFC 1962, RFC 1968). */
enum fw_ppp_const {
	FW_PPP_CONTROL = 0x8000, /* and beyond: no data */
	FW_PPP_CCP = 0x80fd,
	FW_PPP_ECP = 0x8053,
	FW_PPP_CONFIGURE_ACK = 2,
};

/*
 * The session of a frame that an Ethernet device receives, or sends, or NULL; its place
 * and header besides. Another host's, which passes a bridge, may have the same number.
 * `octets` are scratch, for the stack is short.
 */
static __always_inline struct fw_session *fw_session_of(struct __sk_buff *ctx, const int came,
							struct fw_pppoe *pppoe, __u8 octets[12],
							__u32 *place)
{
	const __u32 remote_at = came ? 6 : 0;
	struct fw_session *session;
	const __u32 *found;
	__u32 number;

	if (bpf_skb_load_bytes(ctx, FW_ETH_MAC2, pppoe, FW_PPPOE_HEAD_LEN) ||
	    pppoe->ethertype_be != fw_htons(FW_ETH_PPPOE))
		return NULL;
	number = FW_SESSION | fw_ntohs(pppoe->session_be);
	found = bpf_map_lookup_elem(&fw_session_at, &number);
	if (!found)
		return NULL;
	*place = *found;
	session = bpf_map_lookup_elem(&fw_sessions, place);
	if (!session || session->device != fw_port(ctx) || bpf_skb_load_bytes(ctx, 0, octets, 12) ||
	    __builtin_memcmp(octets + remote_at, session->macs, 6) ||
	    __builtin_memcmp(octets + 6 - remote_at, session->macs + 6, 6))
		return NULL;
	return session;
}

/* tc ingress of a device without a link layer, to which it came with that. */
static __always_inline void fw_session_out(__u32 tc_index, __u32 port)
{
	__u32 place = tc_index - FW_SESSION_INDEX;
	struct fw_session *session = bpf_map_lookup_elem(&fw_sessions, &place);

	if (!session || session->port == port)
		return;
	if (session->port)
		FW_WRITE_ONCE(session->shown, session->shown | FW_SESSION_SHARED);
	else
		FW_WRITE_ONCE(session->port, port);
}

/* What a frame of a session shows, whichever way it goes; `octets` are scratch. */
static __always_inline __u32 fw_session_shows(struct __sk_buff *ctx, const struct fw_pppoe *pppoe,
					      __u8 octets[12])
{
	const __u32 ip_at = FW_ETH_MAC2 + FW_PPPOE_HEAD_LEN;
	const __u8 flags = FW_TCP_SYN | FW_TCP_FIN | FW_TCP_RST | FW_TCP_ACK;
	const __u32 proto = fw_ntohs(pppoe->proto_be);

	if (proto == FW_PPP_CCP || proto == FW_PPP_ECP) {
		if (bpf_skb_load_bytes(ctx, ip_at, octets, 1))
			return 0;
		return octets[0] == FW_PPP_CONFIGURE_ACK ? FW_SESSION_OTHER : 0;
	}
	if (proto != FW_PPP_IP)
		return proto < FW_PPP_CONTROL && proto != FW_PPP_IP6 ? FW_SESSION_OTHER : 0;
	/* version and length, fragment, protocol */
	if (bpf_skb_load_bytes(ctx, ip_at, octets, 12) || octets[0] != 0x45 || (octets[6] & 0x3f) ||
	    octets[7] || octets[9] != FW_PROTO_TCP)
		return 0;
	if (bpf_skb_load_bytes(ctx, ip_at + FW_IP4_LEN + 13, octets, 1))
		return 0;
	return (octets[0] & flags) == FW_TCP_ACK ? FW_SESSION_PLAIN : 0;
}

static __always_inline void fw_session_showed(struct fw_session *session, __u32 shown)
{
	if (shown & ~session->shown)
		FW_WRITE_ONCE(session->shown, session->shown | shown);
}

/*
 * tc ingress of an Ethernet device: what PPP's device is to know it by, or 0. What is
 * compressed towards here needs all packets to be seen, so it is no plain session.
 */
static __always_inline __u32 fw_session_came(struct __sk_buff *ctx)
{
	struct fw_session *session;
	struct fw_pppoe pppoe;
	__u8 octets[12];
	__u32 place;

	session = fw_session_of(ctx, 1, &pppoe, octets, &place);
	if (!session)
		return 0;
	fw_session_showed(session, fw_session_shows(ctx, &pppoe, octets) & FW_SESSION_OTHER);
	return FW_SESSION_INDEX + place;
}

/*
 * tc egress of an Ethernet device. A segment that slhc_compress() would compress (RFC
 * 1144) alone is proof: IPv4, whole, with ACK and neither SYN, FIN nor RST.
 */
static __always_inline void fw_session_left(struct __sk_buff *ctx)
{
	struct fw_session *session;
	struct fw_pppoe pppoe;
	__u8 octets[12];
	__u32 place;

	session = fw_session_of(ctx, 0, &pppoe, octets, &place);
	if (session)
		fw_session_showed(session, fw_session_shows(ctx, &pppoe, octets));
}

#endif
