/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The straight way of a plain hit: what must hold is gathered and tested once,
 * or where a hit is quick tested one by one; then everything is written. A plain frame of no flow
 * is told likewise, for its way through the kernel is long enough. Any other frame is left as it is
 * to the pipeline, which decides step by step and names the reason.
 */
#ifndef FW_HIT_H
#define FW_HIT_H

#include "abi.h"
#include "closing.h"
#include "csum.h"
#include "flow.h"
#include "framing.h"
#include "guard.h"
#include "lookup.h"
#include "parse.h"
#include "rewrite.h"

/* What is sure of a frame that is no plain hit. */
enum fw_missed {
	FW_MISSED_UNKNOWN, /* the pipeline has to look */
	FW_MISSED,         /* it would say FW_R_MISS */
	FW_MISSED_BULK,    /* likewise, of a frame that GRO would merge */
	FW_MISSED_OTHER,   /* FW_R_OWNER: its flow is another path's */
};

/* The flow of a plain frame, or NULL. */
#ifndef FW_TARGET_KNOWS_HOME
#define fw_hit_find4(ctx, key) fw_find4(key)
#define fw_hit_find6(ctx, key) fw_find6(key)
/* Whoever calls looks again, otherwise, at what is no hit that leaves as it is. */
#define fw_hit_quick(ctx) 0
#endif

#ifndef FW_TARGET_KNOWS_OUTPUT
#define fw_hit_nexthop(ctx, index) fw_nexthop_get(index)
#endif

#ifndef FW_TARGET_KNOWS_GATE
#define fw_hit_gate(now)        fw_hit_left(now)
#define fw_hit_until(tick, now) ((tick) - (now) - 1)

/* Ticks until the deadline. */
static __always_inline __u32 fw_hit_left(__u32 now)
{
	return fw_ctl.deadline_tick - now - 1;
}

/* Whether the fast path is on, and in which epoch, in one load. */
static __always_inline __u64 fw_hit_on(void)
{
	/* by a pointer without a structure's alignment, which would make two loads of one */
	const fw_u64_any *on = (const void *)&fw_ctl.on;

	return *on;
}
#endif

/*
 * A word that is 0 if what is looked at is as it must be. They are gathered, and tested once; of a
 * quick hit each by a branch, which is predicted and costs less than to gather it.
 */
#define FW_HIT_DIFFERS(ctx, differs, word)                                                         \
	do {                                                                                       \
		if (!fw_hit_quick(ctx))                                                            \
			FW_GATHER(differs, word);                                                  \
		else if (fw_unlikely(word))                                                        \
			return NULL;                                                               \
	} while (0)

/* 0 unless a time is over or a length exceeded. */
static __always_inline __u64 fw_hit_exceeds(fw_ctx *ctx, const struct fw_state *st, __u32 len_l3,
					    __u32 len_min, __u32 now)
{
	__u32 room;

	if (fw_hit_quick(ctx))
		return len_l3 > st->len_max || fw_frame_len(ctx) < FW_ETH_LEN + len_l3 ||
		       len_l3 < len_min ||
		       (fw_hit_gate(now) | fw_hit_until(st->due_tick, now)) >> 31;
	/* what is left of each: negative, bit 31, if it is nothing */
	room = fw_hit_gate(now);
	FW_GATHER(room, fw_hit_until(st->due_tick, now));
	FW_GATHER(room, st->len_max - len_l3);
	FW_GATHER(room, fw_frame_len(ctx) - FW_ETH_LEN - len_l3);
	FW_GATHER(room, len_l3 - len_min);
	return room >> 31;
}

/* 0 if a frame begins as the flow's: the L2 header, and what of an IPv4 header is the flow's. */
#ifndef FW_TARGET_KNOWS_HEAD4
static __always_inline __u64 fw_hit_head4(const fw_u64_any *head, const struct fw_flow *f)
{
	const fw_u64_any *head_in = (const void *)f->l2_in;
	__u64 differs = head[0] ^ head_in[0];

	FW_GATHER(differs, (head[1] ^ head_in[1]) & FW_HEAD4_MASK_8);
	FW_GATHER(differs, (head[2] ^ head_in[2]) & FW_HEAD4_MASK_16);
	return differs;
}
#endif

/* 0 if the fast path is on and the flow active and confirmed. */
static __always_inline __u64 fw_hit_state(const struct fw_flow *f)
{
	const fw_u64_any *status = (const void *)&f->state.status;

	return *status ^ fw_hit_on();
}

/* 0 if the next hop is valid and puts nothing around packets, in one load. */
static __always_inline __u64 fw_hit_framed(const struct fw_nexthop *nh)
{
	const struct fw_nexthop plain = {.valid = 1};

	if (FW_TARGET_IS_TC)
		return nh->valid ^ 1;
	return *(const fw_u64_any *)&nh->valid ^ *(const fw_u64_any *)&plain.valid;
}

/* Room for what the next hop puts around the packet, whose headers are so long; 0: not valid, no
 * room. */
static __always_inline int fw_hit_room_framed(fw_ctx *ctx, const struct fw_nexthop *nh, void **data,
					      void **end, const __u32 len_headers)
{
	return nh->valid == 1 && fw_frame_room(ctx, nh, data, end) &&
	       *data + FW_ETH_LEN + len_headers <= *end;
}

/* 0 if the L4 header is that of a datagram as long as the packet, or of so much data on the way. */
static __always_inline __u64 fw_hit_l4(const struct fw_l4 *l4, const __u8 proto, __u32 len_l4,
				       __u32 *len_data)
{
	const __u8 flags = FW_TCP_SYN | FW_TCP_FIN | FW_TCP_RST | FW_TCP_ACK;
	__u32 len;

	if (proto == FW_PROTO_UDP)
		return l4->udp.len_be ^ fw_htons(len_l4);
	len = (l4->tcp.doff >> 4) * 4;
	*len_data = len_l4 - len;
	return ((l4->tcp.flags & flags) ^ FW_TCP_ACK) | (((len - FW_TCP_LEN) | *len_data) >> 31);
}

static __always_inline void fw_hit_done(fw_ctx *ctx, struct fw_state *st,
					const struct fw_nexthop *nh, __u64 framed, void *data,
					void *end, __u32 len, __u32 now)
{
	st->packets++;
	st->bytes += FW_WHOLE(len);
	st->used_tick = now;
	/* The sender's padding goes last, for it moves the frame's end. */
	(void)fw_trim(ctx, &data, &end, len);
	if (fw_unlikely(framed)) {
		st->bytes += nh->outer_len;
		(void)fw_frame(ctx, nh, len - FW_ETH_LEN);
	}
}

/* None, or not this path's. */
static __always_inline int fw_hit_foreign(const struct fw_flow *f)
{
	return !f || !fw_owned(f);
}

/* Of a frame whose flow is that. `differs` is 0 if the IP header is a plain one. */
static __always_inline enum fw_missed fw_hit_missed(fw_ctx *ctx, const void *data,
						    const struct fw_flow *f, const __u32 len_ip,
						    const __u8 proto, __u32 len_l3, __u8 ttl,
						    __u64 differs, __u32 now)
{
	const __u32 len_l4_min = proto == FW_PROTO_TCP ? FW_TCP_LEN : FW_UDP_LEN;
	__u32 room = fw_hit_left(now), len_data = 0;

	FW_GATHER(room, fw_frame_len(ctx) - FW_ETH_LEN - len_l3);
	FW_GATHER(room, len_l3 - len_ip - len_l4_min);
	FW_GATHER(room, (__u32)ttl - 2);
	FW_GATHER(differs, room >> 31);
	FW_GATHER(differs, *(const __u8 *)data & 1);
	FW_GATHER(differs,
		  fw_hit_l4(data + FW_ETH_LEN + len_ip, proto, len_l3 - len_ip, &len_data));
	if (differs || !fw_ctl.on)
		return FW_MISSED_UNKNOWN;
	if (f)
		return fw_hands(f) ? FW_MISSED_UNKNOWN : FW_MISSED_OTHER;
	return fw_bulk(proto, len_l3) ? FW_MISSED_BULK : FW_MISSED;
}

static __always_inline const struct fw_nexthop *fw_hit4(fw_ctx *ctx, void *data, void *end,
							__u32 port, const __u8 proto, __u32 now,
							enum fw_missed *missed)
{
	const __u32 len_l4_min = proto == FW_PROTO_TCP ? FW_TCP_LEN : FW_UDP_LEN;
	const struct fw_l4 *l4 = data + FW_ETH_LEN + FW_IP4_LEN;
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	const struct fw_nexthop *nh;
	struct fw_words4 key;
	struct fw_flow *f;
	__u64 differs, framed;
	__u32 len, len_data = 0;

	if (data + FW_ETH_LEN + FW_IP4_LEN + len_l4_min > end)
		return NULL;
	key = fw_key4_of(data, port, proto);
	f = fw_hit_find4(ctx, &key);
	if (fw_unlikely(fw_hit_foreign(f))) {
		if (fw_hit_quick(ctx))
			return NULL;
		differs = (ip->version_ihl ^ 0x45) | (ip->frag_be & fw_htons(0x3fff));
		FW_GATHER(differs, fw_csum_differs(ip));
		*missed = fw_hit_missed(ctx, data, f, FW_IP4_LEN, proto, fw_ntohs(ip->tot_len_be),
					ip->ttl, differs, now);
		return NULL;
	}
	nh = fw_hit_nexthop(ctx, f->nexthop);
	if (!nh)
		return NULL;
	len = fw_ntohs(ip->tot_len_be);
	differs = fw_hit_exceeds(ctx, &f->state, len, FW_IP4_LEN + len_l4_min, now);
	if (fw_hit_quick(ctx) && fw_unlikely(differs))
		return NULL;
	FW_HIT_DIFFERS(ctx, differs, fw_hit_head4(data, f));
	FW_HIT_DIFFERS(ctx, differs, fw_csum_differs(ip));
	FW_HIT_DIFFERS(ctx, differs, fw_hit_l4(l4, proto, len - FW_IP4_LEN, &len_data));
	FW_HIT_DIFFERS(ctx, differs, fw_hit_state(f));
	framed = fw_hit_framed(nh);
	if (fw_unlikely(differs | framed) &&
	    (differs || fw_hit_quick(ctx) ||
	     !fw_hit_room_framed(ctx, nh, &data, &end, FW_IP4_LEN + len_l4_min)))
		return NULL;
	if (fw_hit_quick(ctx))
		__builtin_assume(!framed);
	if (proto == FW_PROTO_TCP && FW_TARGET_NOTES(ctx))
		fw_said_note(&f->state, data + FW_ETH_LEN + FW_IP4_LEN, len_data);
	fw_rewrite4(data, f, nh, proto);
	fw_hit_done(ctx, &f->state, nh, framed, data, end, FW_ETH_LEN + len, now);
	return nh;
}

static __always_inline const struct fw_nexthop *fw_hit6(fw_ctx *ctx, void *data, void *end,
							__u32 port, const __u8 proto, __u32 now,
							enum fw_missed *missed)
{
	const __u32 len_l4_min = proto == FW_PROTO_TCP ? FW_TCP_LEN : FW_UDP_LEN;
	const struct fw_l4 *l4 = data + FW_ETH_LEN + FW_IP6_LEN;
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	const fw_u64_any *head = data, *head_in;
	const struct fw_nexthop *nh;
	struct fw_words6 key;
	struct fw_flow *f;
	__u64 differs, framed;
	__u32 len, len_data = 0;

	if (data + FW_ETH_LEN + FW_IP6_LEN + len_l4_min > end)
		return NULL;
	key = fw_key6_of(data, port, proto);
	f = fw_hit_find6(ctx, &key);
	if (fw_unlikely(fw_hit_foreign(f))) {
		if (fw_hit_quick(ctx))
			return NULL;
		differs = (fw_ntohl(ip->word0_be) >> 28) ^ 6;
		*missed = fw_hit_missed(ctx, data, f, FW_IP6_LEN, proto,
					fw_ntohs(ip->payload_len_be) + FW_IP6_LEN, ip->hop_limit,
					differs, now);
		return NULL;
	}
	nh = fw_hit_nexthop(ctx, f->nexthop);
	if (!nh)
		return NULL;
	head_in = (const void *)f->l2_in;
	len = fw_ntohs(ip->payload_len_be) + FW_IP6_LEN;
	differs = fw_hit_exceeds(ctx, &f->state, len, FW_IP6_LEN + len_l4_min, now);
	if (fw_hit_quick(ctx) && fw_unlikely(differs))
		return NULL;
	FW_HIT_DIFFERS(ctx, differs, head[0] ^ head_in[0]);
	FW_HIT_DIFFERS(ctx, differs, (head[1] ^ head_in[1]) & FW_HEAD6_MASK_8);
	FW_HIT_DIFFERS(ctx, differs, (ip->word0_be ^ f->word0_in_be) & fw_htonl(~FW_IP6_ECN));
	FW_HIT_DIFFERS(ctx, differs, ip->hop_limit ^ f->ttl_in);
	FW_HIT_DIFFERS(ctx, differs, fw_hit_l4(l4, proto, len - FW_IP6_LEN, &len_data));
	FW_HIT_DIFFERS(ctx, differs, fw_hit_state(f));
	framed = fw_hit_framed(nh);
	if (fw_unlikely(differs | framed) &&
	    (differs || fw_hit_quick(ctx) ||
	     !fw_hit_room_framed(ctx, nh, &data, &end, FW_IP6_LEN + len_l4_min)))
		return NULL;
	if (fw_hit_quick(ctx))
		__builtin_assume(!framed);
	if (proto == FW_PROTO_TCP && FW_TARGET_NOTES(ctx))
		fw_said_note(&f->state, data + FW_ETH_LEN + FW_IP6_LEN, len_data);
	fw_rewrite6(data, f, nh, proto);
	fw_hit_done(ctx, &f->state, nh, framed, data, end, FW_ETH_LEN + len, now);
	return nh;
}

/*
 * Where the frame, which came in at `port`, now goes, or NULL with nothing written. *missed is the
 * caller's FW_MISSED_UNKNOWN, until more is known.
 */
static __always_inline const struct fw_nexthop *fw_hit(fw_ctx *ctx, __u32 port,
						       enum fw_missed *missed)
{
	void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const fw_u16_any *ethertype = data + FW_ETH_MAC2;
	__u8 proto;

	/* every plain frame has room for an IPv4 and a UDP header */
	if (data + FW_ETH_LEN + FW_IP4_LEN + FW_UDP_LEN > end || fw_unlikely(fw_ctl.watch))
		return NULL;
	if (*ethertype == fw_htons(FW_ETH_IP)) {
		proto = ((const struct fw_ip4 *)(data + FW_ETH_LEN))->proto;
		if (proto == FW_PROTO_UDP)
			return fw_hit4(ctx, data, end, port, FW_PROTO_UDP, fw_now(), missed);
		if (proto == FW_PROTO_TCP)
			return fw_hit4(ctx, data, end, port, FW_PROTO_TCP, fw_now(), missed);
	} else if (*ethertype == fw_htons(FW_ETH_IP6)) {
		proto = ((const struct fw_ip6 *)(data + FW_ETH_LEN))->next_header;
		if (proto == FW_PROTO_UDP)
			return fw_hit6(ctx, data, end, port, FW_PROTO_UDP, fw_now(), missed);
		if (proto == FW_PROTO_TCP)
			return fw_hit6(ctx, data, end, port, FW_PROTO_TCP, fw_now(), missed);
	}
	return NULL;
}

#endif
