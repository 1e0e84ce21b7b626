// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * UDP frames at a constant load: BPF_PROG_TEST_RUN with live frames runs one of these programs
 * again and again, and a frame leaves whenever one is due; otherwise the page goes back. So the
 * pace is the program's, and not that of system calls, each of which sets up a pool of pages.
 *
 * Frames may be of several lengths in a fixed order, and leave through several ports in turn. In
 * some the payload begins with the time.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

enum {
	TEMPLATE_WORDS = 8,
	SHAPES = 3,
	WAYS = 2,
	ORDER = 64,
	/* As in the generator. */
	HOSTS_MAX = 1 << 15,
	BLOCK_SHIFT = 15,
	BLOCK_MASK = (1 << BLOCK_SHIFT) - 1,
	/* Frames between two looks at the clock, at most. */
	BURST = 16,
	/* A sender that was held up makes up for so many frames, half a veth's queue; others it
	   leaves out. */
	LAG_MAX = 128,
};

/* Frames of one length: their beginning, and sums without all that varies, in host byte order. */
struct stream_shape {
	__u64 words[TEMPLATE_WORDS]; /* frame memory */
	__u32 ip_sum;
	__u32 l4_sum;
	__u32 len; /* of the frame in memory */
	__u32 pad;
};

/* One direction. */
struct stream_way {
	struct stream_shape shapes[SHAPES];
	__u32 near_addr; /* the last 32 bits of an IPv6 address */
	__u16 near_port;
	__u16 far_port;
	__u8 reverse;
	__u8 near_fixed;
	__u8 pad[6];
};

struct stream_config {
	struct stream_way ways[WAYS];
	__u8 order[ORDER]; /* shapes of the frames in turn */
	__u32 order_len;
	__u32 ways_len;
	__u32 flows;
	__u32 len;   /* of the pages' frames, the longest shape's */
	__u32 hosts; /* beyond the far side, to which flows go instead; 0: none. Of a single way */
};

/* Written by user space between runs. */
struct stream_load {
	__u64 start_ns;     /* CLOCK_MONOTONIC */
	__u64 end_ns;       /* nothing leaves afterwards; 0: no end */
	__u64 per_s;        /* frames a second, all ways together; 0: as fast as the CPU can */
	__u64 frames;       /* no more than so many; 0: no limit */
	__u64 stamp_ns;     /* mean time between frames with the time in them; 0: none */
	__u64 stamp_spread; /* such a frame is one of the next so many and one, a mask */
};

/* Written by the one thread that runs the program; user space clears it with the load. */
struct stream_state {
	__u64 frames;
	__u64 left_out;
	__u64 stamped;
	__u64 next_stamp_ns;
	__u64 last_ns; /* when a frame was due last, CLOCK_MONOTONIC */
	__u32 credit;
	__u32 stamp_in;
	/* These four go on from run to run. */
	__u32 flow;
	__u32 way;
	__u32 turn;
	__u32 host;
};

const volatile struct stream_config config;
/* Not constant, for a constant takes its whole size in the object. */
__u32 far_hosts[HOSTS_MAX];
struct stream_load load;
struct stream_state state;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

/* Looks at the clock, and says how many frames are due, at most BURST. */
static __always_inline __u32 due(void)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 lag = BURST;

	if (load.end_ns && now_ns >= load.end_ns)
		return 0;
	if (load.per_s) {
		__u64 passed = state.frames + state.left_out;
		__u64 by_now = (now_ns - load.start_ns) * load.per_s / 1000000000;

		if (by_now <= passed)
			return 0;
		lag = by_now - passed;
		if (lag > LAG_MAX) {
			state.left_out += lag - LAG_MAX;
			lag = LAG_MAX;
		}
	}
	if (load.frames) {
		if (state.frames >= load.frames)
			return 0;
		if (lag > load.frames - state.frames)
			lag = load.frames - state.frames;
	}
	if (load.stamp_ns && !state.stamp_in && now_ns >= state.next_stamp_ns) {
		/* Any frame of a burst, and at no regular times: the first of a burst finds the
		   shortest queues. */
		state.stamp_in = 1 + (bpf_get_prandom_u32() & load.stamp_spread);
		state.next_stamp_ns = now_ns + load.stamp_ns / 2 +
				      ((__u64)bpf_get_prandom_u32() * load.stamp_ns >> 32);
	}
	state.last_ns = now_ns;
	return lag > BURST ? BURST : lag;
}

static __always_inline int offer(struct xdp_md *ctx, const int v6)
{
	const int l4 = v6 ? V6_L4 : V4_L4;
	const int payload = l4 + UDP_LEN;
	const volatile struct stream_shape *shape;
	const volatile struct stream_way *way;
	__u32 flow, turn, way_index, shape_index, block, near_addr, near_sum, ip_sum, sum;
	__u16 near_port, far_port, csum;
	__u64 stamp = 0;
	void *data, *end;
	int cut;

	if (!state.credit) {
		state.credit = due();
		if (!state.credit)
			return XDP_DROP;
	}
	state.credit--;

	flow = state.flow;
	turn = state.turn;
	way_index = state.way;
	if (turn >= ORDER || way_index >= WAYS)
		return XDP_DROP;
	shape_index = config.order[turn];
	if (shape_index >= SHAPES)
		return XDP_DROP;
	way = &config.ways[way_index];
	shape = &way->shapes[shape_index];

	cut = (int)shape->len - (int)config.len;
	if (cut && bpf_xdp_adjust_tail(ctx, cut))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + payload + 8 > end)
		return XDP_DROP;

	block = flow >> BLOCK_SHIFT;
	near_port = way->near_port + (flow & BLOCK_MASK);
	far_port = way->far_port + block;
	near_addr = way->near_addr + (way->near_fixed ? 0 : block);
	near_sum = (near_addr >> 16) + (near_addr & 0xffff);
	ip_sum = shape->ip_sum + near_sum;
	sum = shape->l4_sum + near_sum + near_port + far_port;

	/* As the receiver left it: the whole header is written each time. */
#pragma unroll
	for (int i = 0; i < payload / 8; i++)
		U64(data, i * 8) = shape->words[i];
#pragma unroll
	for (int i = payload / 8 * 8; i < payload; i += 2)
		U16(data, i) = ((const volatile __u16 *)shape->words)[i / 2];

	if (!v6 && config.hosts) {
		__u32 host = state.host;
		__u32 far_addr = far_hosts[host & (HOSTS_MAX - 1)];
		__u32 far_sum = (far_addr >> 16) + (far_addr & 0xffff);

		U32(data, V4_DADDR) = bpf_htonl(far_addr);
		ip_sum += far_sum;
		sum += far_sum;
		state.host = ++host >= config.hosts || flow + 1 >= config.flows ? 0 : host;
	}
	if (!v6)
		U16(data, V4_CSUM) = bpf_htons(~csum_fold(ip_sum));
	if (way->reverse) {
		U32(data, v6 ? V6_DADDR + 12 : V4_DADDR) = bpf_htonl(near_addr);
		U32(data, l4) = bpf_htonl((__u32)far_port << 16 | near_port);
	} else {
		U32(data, v6 ? V6_SADDR + 12 : V4_SADDR) = bpf_htonl(near_addr);
		U32(data, l4) = bpf_htonl((__u32)near_port << 16 | far_port);
	}
	if (state.stamp_in && !--state.stamp_in) {
		stamp = bpf_ktime_get_ns();
		sum += (stamp >> 48) + (stamp >> 32 & 0xffff) + (stamp >> 16 & 0xffff) +
		       (stamp & 0xffff);
		state.stamped++;
	}
	U64(data, payload) = bpf_cpu_to_be64(stamp);

	csum = ~csum_fold(sum);
	/* RFC 768: a checksum that computes to zero is sent as all ones. */
	U16(data, l4 + 6) = bpf_htons(csum ? csum : 0xffff);

	state.frames++;
	if (++state.way >= config.ways_len) {
		state.way = 0;
		state.flow = flow + 1 < config.flows ? flow + 1 : 0;
		state.turn = turn + 1 < config.order_len ? turn + 1 : 0;
	}
	return bpf_redirect_map(&out, way_index, XDP_DROP);
}

SEC("xdp")
int offer_udp4(struct xdp_md *ctx)
{
	return offer(ctx, 0);
}

SEC("xdp")
int offer_udp6(struct xdp_md *ctx)
{
	return offer(ctx, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
