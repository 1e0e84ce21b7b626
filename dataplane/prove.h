/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tc egress: the frame that leaves against what came in (the slot). Nothing but addresses, ports,
 * TTL and DSCP may have changed; the payload, by the checksum, not at all.
 */
#ifndef FW_PROVE_H
#define FW_PROVE_H

#include "abi.h"
#include "csum.h"
#include "flow.h"
#include "guard.h"
#include "lookup.h"
#include "parse.h"

/* The frame that leaves, as far as it may differ from the slot. */
struct fw_out {
	struct fw_tuple t;
	__u16 l3_delta;
	__u16 l4_delta;
	__u16 addresses_delta; /* their part of both */
	__u8 nat;
	__u8 unwired; /* merged, or its checksum is unfinished */
	__u32 proof;  /* enum fw_reason: what else changed, or FW_R_NONE */
	__u32 state;  /* of the flow that is to be replaced */
};

static __always_inline int fw_out_read(struct fw_out *out, const struct fw_slot *slot,
				       const void *data, const void *end, const struct fw_pkt *p)
{
	__u32 need = FW_ETH_LEN + FW_UDP_LEN;
	__u64 l3 = 0, l4;

	need += p->family == FW_AF_INET ? FW_IP4_LEN : FW_IP6_LEN;
	if (data + need > end)
		return 0;
	fw_tuple_fill(&out->t, data, p->family, p->proto);
	for (int i = 0; i < 4; i++) {
		l3 += fw_csum_diff(slot->key.saddr_be[i], out->t.saddr_be[i]);
		l3 += fw_csum_diff(slot->key.daddr_be[i], out->t.daddr_be[i]);
	}
	out->addresses_delta = fw_csum_fold(l3);
	l4 = fw_sums_addresses(p->proto) ? l3 : 0;
	l4 += fw_csum_diff(slot->key.sport_be, out->t.sport_be) +
	      fw_csum_diff(slot->key.dport_be, out->t.dport_be);
	out->l4_delta = fw_csum_fold(l4);
	/* TTL shares its word with the protocol, TOS with the version */
	l3 += fw_csum_diff(fw_htons(slot->ttl << 8), fw_htons(p->ttl << 8));
	l3 += fw_csum_diff(fw_htons(slot->tos), fw_htons(p->tos));
	out->l3_delta = fw_csum_fold(l3);
	out->nat = 0;
	for (int i = 0; i < 4; i++)
		out->nat |= slot->key.saddr_be[i] != out->t.saddr_be[i] ||
			    slot->key.daddr_be[i] != out->t.daddr_be[i];
	out->nat |= slot->key.sport_be != out->t.sport_be || slot->key.dport_be != out->t.dport_be;
	return 1;
}

/* Nothing but addresses, ports, TTL and DSCP changed: headers first. */
static __always_inline enum fw_reason fw_prove_headers(const struct fw_slot *slot, const void *data,
						       const void *end, const struct fw_pkt *p)
{
	const void *l4 = fw_l4_at(data, p->family);

	if (slot->family != p->family || (slot->key.port_proto & 0xff) != p->proto)
		return FW_R_LEARN_CHANGED;
	if ((slot->tos ^ p->tos) & FW_TOS_ECN || slot->tcp_flags != p->tcp_flags)
		return FW_R_LEARN_CHANGED;
	if (p->family == FW_AF_INET) {
		const struct fw_ip4 *ip = fw_ip4_at(data);

		if (ip->id_be != slot->ip_id_be || ip->frag_be != slot->frag_be)
			return FW_R_LEARN_CHANGED;
	} else if ((fw_ip6_at(data)->word0_be & fw_htonl(0x000fffff)) != slot->flow_label_be) {
		return FW_R_LEARN_CHANGED;
	}
	if (l4 + FW_L4_MIN > end)
		return FW_R_LEARN_FRAME;
	if (fw_l4_serial(l4, p->proto) != slot->seq_be)
		return FW_R_LEARN_CHANGED;
	if (p->proto == FW_PROTO_TCP) {
		if (l4 + FW_TCP_LEN > end)
			return FW_R_LEARN_FRAME;
		if (((const struct fw_l4 *)l4)->tcp.ack_be != slot->ack_be)
			return FW_R_LEARN_CHANGED;
	}
	return FW_R_NONE;
}

/* Of what has no ports only an echo's identifier may change. */
static __always_inline int fw_id_differs(const struct fw_slot *slot, const struct fw_out *out,
					 __u8 proto)
{
	if (fw_has_ports(proto))
		return 0;
	return slot->key.dport_be != out->t.dport_be ||
	       (!fw_is_icmp(proto) && slot->key.sport_be != out->t.sport_be);
}

/*
 * The L4 checksum covers all the rest. An unfinished one, as of a merged frame, is
 * that of addresses and length: that the kernel changes no data without being told
 * to is then the ruleset's to prove, as of what has none.
 */
static __always_inline enum fw_reason fw_prove_checksum(const struct fw_slot *slot,
							const struct fw_pkt *p,
							const struct fw_out *out, int unfinished)
{
	__u16 want = slot->l4_csum;

	if (!fw_has_check(p->proto))
		return FW_R_NONE;
	if (unfinished)
		want = out->nat ? fw_csum_fold((__u64)want + out->addresses_delta) : want;
	else if (out->nat)
		want = p->proto == FW_PROTO_UDP ? fw_csum_apply_udp(want, out->l4_delta)
						: fw_csum_apply(want, out->l4_delta);
	return want == p->l4_check ? FW_R_NONE : FW_R_LEARN_CHECKSUM;
}

/*
 * Reads the frame that leaves. A reason says that it cannot be compared; what is wrong with
 * it in comparison is out->proof. Of external linkage, as are others of learning, so that the
 * BPF verifier looks at it once, and not once for each way that leads here.
 */
enum fw_reason fw_prove(fw_ctx *ctx, __u32 token, struct fw_out *out, struct fw_pkt *p);

__noinline enum fw_reason fw_prove(fw_ctx *ctx, __u32 token, struct fw_out *out, struct fw_pkt *p)
{
	const struct fw_slot *slot = fw_slot_get(token - 1);
	const void *data, *end;
	__u32 gso, len_l3;

	if (!slot || !out || !p)
		return FW_R_LEARN_STALE_TOKEN;
	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (fw_parse(data, end, fw_frame_len(ctx), p) || data + FW_ETH_LEN + 2 > end)
		return FW_R_LEARN_FRAME;
	if (!fw_out_read(out, slot, data, end, p))
		return FW_R_LEARN_FRAME;
	/* what was translated into a group's is copied by routes that its key does not name */
	if (fw_is_group(out->t.daddr_be[0], p->family) !=
	    fw_is_group(slot->key.daddr_be[0], slot->family))
		return FW_R_LEARN_TUPLE;
	gso = fw_gso_size(ctx);
	len_l3 = gso ? fw_segment_len(data, end, p, gso) : p->len_l3;
	out->unwired = gso || fw_unfinished(ctx);
	out->proof = fw_prove_headers(slot, data, end, p);
	if (!out->proof &&
	    (!gso != !slot->gso || len_l3 != slot->len_l3 || fw_id_differs(slot, out, p->proto)))
		out->proof = FW_R_LEARN_CHANGED;
	if (!out->proof)
		out->proof = fw_prove_checksum(slot, p, out, out->unwired);
	return FW_R_NONE;
}

#endif
