/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether conntrack can do without the packets of a connection, and calls it what the frames show.
 */
#ifndef FW_FIT_H
#define FW_FIT_H

#include "abi.h"
#include "parse.h"
#include "prove.h"

/* conntrack's tuples of ESP and GRE have addresses alone (PPTP's are not learned). */
static __always_inline int fw_tuple_is_key(const struct fw_tuple *t, const struct fw_key6 *key,
					   __u8 proto)
{
	for (int i = 0; i < 4; i++)
		if (t->saddr_be[i] != key->saddr_be[i] || t->daddr_be[i] != key->daddr_be[i])
			return 0;
	if (!fw_has_check(proto))
		return !t->sport_be && !t->dport_be;
	return t->sport_be == key->sport_be && t->dport_be == key->dport_be;
}

static __always_inline int fw_tuple_inverts(const struct fw_tuple *a, const struct fw_tuple *b,
					    __u8 proto)
{
	for (int i = 0; i < 4; i++)
		if (a->saddr_be[i] != b->daddr_be[i] || a->daddr_be[i] != b->saddr_be[i])
			return 0;
	if (!fw_has_check(proto))
		return !b->sport_be && !b->dport_be;
	if (proto == FW_PROTO_ICMP)
		return a->sport_be == b->sport_be &&
		       (a->dport_be ^ b->dport_be) == fw_htons(FW_ICMP_ECHO << 8);
	if (proto == FW_PROTO_ICMP6)
		return a->sport_be == b->sport_be &&
		       (a->dport_be ^ b->dport_be) ==
			       fw_htons((FW_ICMP6_ECHO ^ FW_ICMP6_ECHO_REPLY) << 8);
	return a->sport_be == b->dport_be && a->dport_be == b->sport_be;
}

/* Both ends take part. Only some protocols have a word for more than one answer. */
static __always_inline int fw_conn_answered(__u32 status, __u8 proto)
{
	return status & (proto == FW_PROTO_UDP ? FW_IPS_ASSURED : FW_IPS_SEEN_REPLY);
}

/* May this connection be taken out of the kernel's sight? Of its own for the BPF verifier, as
 * fw_prove(). */
static __noinline enum fw_reason fw_conn_fit(const struct fw_conn *c, const struct fw_slot *slot,
					     const struct fw_out *out, const struct fw_pkt *p)
{
	const __u8 proto = p->proto;
	const __u32 never = FW_IPS_DYING | FW_IPS_NAT_CLASH | FW_IPS_SEQ_ADJUST |
			    FW_IPS_FIXED_TIMEOUT | FW_IPS_TEMPLATE | FW_IPS_OFFLOAD |
			    FW_IPS_HW_OFFLOAD;

	if (!c->present) {
		if (out->nat)
			return FW_R_LEARN_TUPLE;
		/* what the kernel does to it, it does not do to the others */
		if (!(c->status & FW_IPS_UNTRACKED) &&
		    (p->family == FW_AF_INET ? fw_ctl.tracks4 : fw_ctl.tracks6))
			return FW_R_LEARN_INVALID;
		return FW_R_NONE;
	}
	if (!(c->status & FW_IPS_CONFIRMED) || (c->status & never))
		return FW_R_LEARN_CONN_STATUS;
	if (c->helper || (c->status & FW_IPS_HELPER))
		return FW_R_LEARN_HELPER;
	if (c->seqadj)
		return FW_R_LEARN_SEQADJ;
	if (proto == FW_PROTO_TCP && c->tcp_state != FW_CT_ESTABLISHED)
		return FW_R_LEARN_CONN_STATE;
	/* picked up in its midst (nf_conntrack_tcp_loose): rules see each of its packets as NEW */
	if (proto == FW_PROTO_TCP && !(c->status & FW_IPS_SEEN_REPLY))
		return FW_R_LEARN_NO_REPLY;
	/* one way; of what was expected rules see RELATED packets, and their analysis NEW ones */
	if (proto != FW_PROTO_TCP && !fw_conn_answered(c->status, proto) &&
	    (proto != FW_PROTO_UDP || !fw_ctl.udp_one_way ||
	     (c->status & (FW_IPS_SEEN_REPLY | FW_IPS_EXPECTED))))
		return FW_R_LEARN_NO_REPLY;
	/* nf_nat_packet() makes the inverse of the other direction's tuple */
	if (!fw_tuple_is_key(c->dir ? &c->reply : &c->orig, &slot->key, proto) ||
	    !fw_tuple_inverts(&out->t, c->dir ? &c->orig : &c->reply, proto))
		return FW_R_LEARN_TUPLE;
	return FW_R_NONE;
}

#endif
