// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Frames at line rate: BPF_PROG_TEST_RUN with live frames runs one of these programs once for each
 * frame, and the frame leaves through the port in `out`.
 *
 * The kernel recycles pages as the receiver left them, so the whole header is written each time,
 * from a template; only what differs between flows and rounds is computed.
 *
 * Of two ways, such as the directions of a link, the frames leave by turns.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

enum {
	TEMPLATE_WORDS = 11,
	/* Flow i, with n = first + i: near port base + n % 32768, near address base + n / 32768,
	   far port base + n / 32768. */
	BLOCK_SHIFT = 15,
	BLOCK_MASK = (1 << BLOCK_SHIFT) - 1,
	/* A power of two, at least as many as there can be hosts beyond the far side. */
	HOSTS_MAX = 1 << 15,
	/* Segments of a connection move through a window that the other side never acknowledges. */
	TCP_ROUND_MASK = 31,
	WAYS = 2,
};

/* All fields in host byte order, except `words`, which is frame memory. */
struct generator_config {
	__u64 words[TEMPLATE_WORDS];
	__u32 flows;
	__u32 first;     /* number of flow 0 */
	__u32 near_addr; /* the last 32 bits of an IPv6 address */
	/* of the IPv4 header without checksum, near address and, if it varies, far address */
	__u32 ip_sum;
	__u32 l4_sum; /* of pseudo header and segment, without all that varies */
	__u32 tcp_seq;
	__u32 hosts; /* beyond the far side, to which flows go instead; 0: none */
	__u16 tcp_step;
	__u16 near_port;
	__u16 far_port;
	__u8 reverse;    /* the far side sends */
	__u8 near_fixed; /* one near address for all flows, as behind a masquerade */
	__u8 near_each;  /* one for each */
	__u8 has_round;  /* payload bytes 0 to 3 */
	__u8 has_flow;   /* payload bytes 4 to 7 */
	__u8 tag_len;    /* of a tag behind the MAC addresses: 0 or TAG_LEN */
	__u8 headroom;   /* memory ahead of the frame beside XDP's own, or of the other way's tag */
};

/* Written by the one thread that runs the program. */
struct generator_state {
	__u64 frames;
	__u32 flow;
	__u32 round;
	__u32 host;
};

const volatile struct generator_config configs[WAYS];
/* Of a single way; not constant, for a constant takes its whole size in the object. */
__u32 far_hosts[HOSTS_MAX];
struct generator_state states[WAYS];
__u32 way_next;

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, WAYS);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

static __always_inline int generate(struct xdp_md *ctx, const __u32 way, const int v6,
				    const int tcp)
{
	const volatile struct generator_config *config = &configs[way];
	struct generator_state *state = &states[way];
	const int l4 = v6 ? V6_L4 : V4_L4;
	const int payload = l4 + (tcp ? TCP_LEN : UDP_LEN);
	const int near_at = v6 ? (config->reverse ? V6_DADDR + 12 : V6_SADDR + 12)
			       : (config->reverse ? V4_DADDR : V4_SADDR);
	void *data, *end, *eth;

	/* The template has as much in front. */
	if (config->headroom && bpf_xdp_adjust_head(ctx, config->headroom))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	/* Where an Ethernet header without a tag would begin. */
	eth = data + config->tag_len;

	__u32 flow = state->flow, round = state->round;
	__u32 number = flow + config->first, block = number >> BLOCK_SHIFT;
	__u16 near_port = config->near_port + (number & BLOCK_MASK);
	__u16 far_port = config->far_port + block;
	__u32 near_addr = config->near_addr + (config->near_each    ? number
					       : config->near_fixed ? 0
								    : block);
	__u32 near_sum = (near_addr >> 16) + (near_addr & 0xffff);
	__u32 ip_sum = config->ip_sum + near_sum, far_addr;
	__u32 sum = config->l4_sum + near_sum + near_port + far_port;

	if (eth + payload > end)
		return XDP_DROP;
#pragma unroll
	for (int i = 0; i < payload / 8; i++)
		U64(data, i * 8) = config->words[i];
#pragma unroll
	for (int i = payload / 8 * 8; i < payload; i += 2)
		U16(data, i) = ((const volatile __u16 *)config->words)[i / 2];
	if (config->tag_len)
#pragma unroll
		for (int i = payload; i < payload + TAG_LEN; i += 2)
			U16(data, i) = ((const volatile __u16 *)config->words)[i / 2];

	U32(eth, near_at) = bpf_htonl(near_addr);
	if (!v6 && config->hosts) {
		__u32 host = state->host;

		far_addr = far_hosts[host & (HOSTS_MAX - 1)];
		U32(eth, V4_DADDR) = bpf_htonl(far_addr);
		ip_sum += (far_addr >> 16) + (far_addr & 0xffff);
		sum += (far_addr >> 16) + (far_addr & 0xffff);
		state->host = ++host >= config->hosts || flow + 1 >= config->flows ? 0 : host;
	}
	if (!v6)
		U16(eth, V4_CSUM) = bpf_htons(~csum_fold(ip_sum));
	if (config->reverse)
		U32(eth, l4) = bpf_htonl((__u32)far_port << 16 | near_port);
	else
		U32(eth, l4) = bpf_htonl((__u32)near_port << 16 | far_port);
	if (tcp) {
		__u32 seq = config->tcp_seq + (round & TCP_ROUND_MASK) * config->tcp_step;

		U32(eth, l4 + 4) = bpf_htonl(seq);
		sum += (seq >> 16) + (seq & 0xffff);
	}
	if (config->has_round) {
		if (eth + payload + 4 > end)
			return XDP_DROP;
		U32(eth, payload) = bpf_htonl(round);
		sum += (round >> 16) + (round & 0xffff);
	}
	if (config->has_flow) {
		if (eth + payload + 8 > end)
			return XDP_DROP;
		U32(eth, payload + 4) = bpf_htonl(flow);
		sum += (flow >> 16) + (flow & 0xffff);
	}

	__u16 csum = ~csum_fold(sum);

	/* RFC 768: a UDP checksum that computes to zero is sent as all ones. */
	if (!tcp && !csum)
		csum = 0xffff;
	U16(eth, l4 + (tcp ? 16 : 6)) = bpf_htons(csum);

	if (++flow >= config->flows) {
		flow = 0;
		state->round = round + 1;
	}
	state->flow = flow;
	state->frames++;
	return bpf_redirect_map(&out, way, XDP_DROP);
}

/* The ways are constants of either branch: as with one way, the verifier removes what is off. */
static __always_inline int alternate(struct xdp_md *ctx, const int v6, const int tcp)
{
	__u32 way = way_next;

	way_next = !way;
	return way ? generate(ctx, 1, v6, tcp) : generate(ctx, 0, v6, tcp);
}

SEC("xdp")
int generate_udp4(struct xdp_md *ctx)
{
	return generate(ctx, 0, 0, 0);
}

SEC("xdp")
int generate_tcp4(struct xdp_md *ctx)
{
	return generate(ctx, 0, 0, 1);
}

SEC("xdp")
int generate_udp6(struct xdp_md *ctx)
{
	return generate(ctx, 0, 1, 0);
}

SEC("xdp")
int generate_tcp6(struct xdp_md *ctx)
{
	return generate(ctx, 0, 1, 1);
}

SEC("xdp")
int alternate_udp4(struct xdp_md *ctx)
{
	return alternate(ctx, 0, 0);
}

SEC("xdp")
int alternate_tcp4(struct xdp_md *ctx)
{
	return alternate(ctx, 0, 1);
}

SEC("xdp")
int alternate_udp6(struct xdp_md *ctx)
{
	return alternate(ctx, 1, 0);
}

SEC("xdp")
int alternate_tcp6(struct xdp_md *ctx)
{
	return alternate(ctx, 1, 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
