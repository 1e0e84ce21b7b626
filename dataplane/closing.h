/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Closing segments. conntrack does not see what bypasses it: its window is stale, it is told to
 * be liberal, and believes any RST and FIN. So what it would have said with full knowledge is said
 * here, ahead of it: nf_conntrack_tcp_packet() and tcp_in_window() in nf_conntrack_proto_tcp.c,
 * RFC 5961. The ends of a connection are what both directions' last segments have said, fast ones
 * (fw_state) or others (fw_edge); whichever is newer, the sender of a genuine one knows it.
 */
#ifndef FW_CLOSING_H
#define FW_CLOSING_H

#include "abi.h"
#include "csum.h"
#include "flow.h"
#include "parse.h"
#include "table.h"
#include "watch.h"

/* What becomes of one. */
enum fw_closer {
	/* The kernel's, and the connection's flows wait: it closes. */
	FW_CLOSER_BELIEVED,
	/* The kernel's, which knows enough to judge it. */
	FW_CLOSER_OPENS,
	/* In the window, but not exact: it passes, and the receiver challenges it. */
	FW_CLOSER_PASSES,
	/* Neither end can have meant it. */
	FW_CLOSER_STRAY,
};

/* A direction of a TCP connection, at whatever port: secret, so that nobody can aim at one. */
static __always_inline __u64 fw_edge_key4(struct fw_words4 key, const volatile struct fw_config *c)
{
	return fw_sum4(&key, key.ports, c);
}

static __always_inline __u64 fw_edge_key6(struct fw_words6 key, const volatile struct fw_config *c)
{
	return fw_sum6(&key, key.ports, c);
}

/* The caller has parsed the packet, whose headers are there. */
static __always_inline __u64 fw_edge_key_of(const void *data, const int v6)
{
	if (v6)
		return fw_edge_key6(fw_key6_of(data, 0, FW_PROTO_TCP), &fw_cfg);
	return fw_edge_key4(fw_key4_of(data, 0, FW_PROTO_TCP), &fw_cfg);
}

/* Notes what a plain segment says. */
static __always_inline void fw_said_note(struct fw_state *st, const struct fw_l4 *l4,
					 __u32 len_data)
{
	const fw_u64_any *words = (const void *)&l4->tcp.seq_be;

	*(fw_u64_any *)&st->seq_be = *words;
	st->len_data = len_data;
}

/* Is a sequence number no further than that from another, on either side? */
static __always_inline int fw_seq_near(__u32 seq, __u32 of, __u32 window)
{
	return seq - of + window <= 2 * window;
}

/* A closing segment, and what is known of the ends of its connection so far. */
struct fw_judged {
	__u32 seq;
	__u32 window; /* octets */
	__u8 exact;
	__u8 near;
	__u8 own;   /* something is known of the sender */
	__u8 other; /* and of the receiver */
};

/* The last segment of a direction, the sender's own or the other one; it may have said nothing. */
static __always_inline void fw_hear(struct fw_judged *j, __u32 seq_be, __u32 ack_be, __u32 len_data,
				    __u32 tick, const int own)
{
	__u32 at = own ? fw_ntohl(seq_be) + len_data : fw_ntohl(ack_be);
	__u32 since = fw_ctl.edges_tick;

	if (!(seq_be | ack_be) || (since && (__s32)(tick - since) < 0))
		return;
	j->exact |= j->seq == at;
	j->near |= fw_seq_near(j->seq, at, j->window);
	if (own)
		j->own = 1;
	else
		j->other = 1;
}

/*
 * A RST is believed if it is where the sender's data ended, or where the receiver wants to go on; a
 * FIN, which may be repeated or run ahead of what was lost, within the window. Of an end that
 * has said nothing yet conntrack is to judge.
 */
static __always_inline enum fw_closer fw_judge(const struct fw_judged *j, __u8 flags)
{
	if (!j->own || !j->other || j->exact || (j->near && !(flags & FW_TCP_RST)))
		return FW_CLOSER_BELIEVED;
	return j->near ? FW_CLOSER_PASSES : FW_CLOSER_STRAY;
}

/*
 * `f`: its flow, or NULL. Of external linkage, so that the BPF verifier looks at it once, and not
 * once for each way that leads here.
 */
enum fw_closer fw_closer_of(fw_ctx *ctx, const struct fw_flow *f, __u32 v6, __u32 flags);

__noinline enum fw_closer fw_closer_of(fw_ctx *ctx, const struct fw_flow *f, __u32 v6, __u32 flags)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_edge *edge;
	struct fw_judged j = {};
	const struct fw_flow *peer;
	struct fw_cpu *cpu = fw_cpu_get();
	struct fw_tuple *t;
	__u64 other, in_table;

	if (flags & FW_TCP_SYN)
		return FW_CLOSER_OPENS;
	if (!cpu)
		return FW_CLOSER_BELIEVED;
	/* room that the stack does not have: nothing is being learned */
	t = &cpu->conn.orig;
	if (v6) {
		if (data + FW_ETH_LEN + FW_IP6_LEN + FW_TCP_LEN > end)
			return FW_CLOSER_BELIEVED;
		edge = fw_edge_get(fw_edge_key_of(data, 1));
		j.seq = fw_ntohl(fw_l4_at(data, FW_AF_INET6)->tcp.seq_be);
		fw_tuple_fill(t, data, FW_AF_INET6, FW_PROTO_TCP);
	} else {
		if (data + FW_ETH_LEN + FW_IP4_LEN + FW_TCP_LEN > end)
			return FW_CLOSER_BELIEVED;
		edge = fw_edge_get(fw_edge_key_of(data, 0));
		j.seq = fw_ntohl(fw_l4_at(data, FW_AF_INET)->tcp.seq_be);
		fw_tuple_fill(t, data, FW_AF_INET, FW_PROTO_TCP);
	}
	in_table = !!f;
	/* or the compiler makes one test of two pointers, which the verifier forbids */
	asm volatile("" : "+r"(in_table));
	if (!in_table && !edge)
		return FW_CLOSER_BELIEVED;
	/* one that sees its packets, or has begun to close, is conntrack's to judge */
	j.window = fw_conn_window(ctx, t, v6 ? FW_AF_INET6 : FW_AF_INET, &cpu->conn.reply);
	if (!j.window)
		return FW_CLOSER_BELIEVED;
	if (f) {
		fw_hear(&j, f->state.seq_be, f->state.ack_be, f->state.len_data, f->state.used_tick,
			1);
		peer = fw_flow_get(f->state.peer);
		if (peer && f->state.peer)
			fw_hear(&j, peer->state.seq_be, peer->state.ack_be, peer->state.len_data,
				peer->state.used_tick, 0);
	}
	if (edge) {
		fw_hear(&j, edge->seq_be, edge->ack_be, edge->len_data, edge->tick, 1);
		other = edge->peer;
		edge = fw_edge_get(other);
		if (edge)
			fw_hear(&j, edge->seq_be, edge->ack_be, edge->len_data, edge->tick, 0);
	}
	return fw_judge(&j, flags);
}

#endif
