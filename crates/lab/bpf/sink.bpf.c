// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The receiving end: `sink_plain` counts and drops every frame, as cheaply as possible; `sink` also
 * verifies checksums, follows sequence numbers, matches rules and captures, and leaves to the stack
 * whatever is not UDP or TCP, so that ARP and neighbour discovery go on working.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

enum {
	RULES = 8,
	RULE_OFF_MAX = 255,
	CAPTURE_BYTES = 2048,
	/* The longest segment that is verified: 1500 bytes of L3 in 16-bit words. */
	SUM_WORDS = 750,
};

struct sink_counters {
	__u64 frames;
	__u64 bytes; /* frame memory, without FCS */
	__u64 passed;
	__u64 bad_ip_csum;
	__u64 bad_l4_csum;
	__u64 unverified; /* options, extension headers, fragments, or cut short */
	__u64 reordered;
	__u64 untracked; /* no room for a sequence number, or a flow out of range */
	__u64 captured;
	__u64 capture_lost;
};

/* What is known of one flow's sequence numbers ("rounds"), by the flow number in the payload. */
struct sink_flow {
	__u64 frames;
	__u32 next_round; /* one more than the highest seen */
	__u32 reordered;
	__u32 extent_max; /* RFC 4737: how far below the highest, at most, in rounds */
	__u32 pad;
};

struct sink_rule {
	__u32 offset;   /* from the frame's first byte */
	__u32 mask_be;  /* 0: the rule is off */
	__u32 value_be; /* compared under the mask */
	__u32 pad;
};

struct sink_mark {
	__u64 count;
	__u64 first_ns; /* CLOCK_MONOTONIC */
	__u64 last_ns;
};

struct sink_config {
	__u8 verify;
	__u8 track;
	__u8 match;
	__u8 tag_len; /* of the tag that frames have behind the MAC addresses */
	__u32 flows;
	__u32 capture_every; /* 0: no capture */
	__u32 capture_limit;
};

struct sink_capture {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 len;
	__u32 pad;
	__u8 data[CAPTURE_BYTES];
};

const volatile struct sink_config config;

/* Maps of their own, so that user space can write one rule while others match. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULES);
	__type(key, __u32);
	__type(value, struct sink_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RULES);
	__type(key, __u32);
	__type(value, struct sink_mark);
} marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} captures SEC(".maps");

struct l4_view {
	__u32 offset;
	__u32 len; /* of the segment, from the IP header's own length */
	__u32 pseudo_sum;
	__u8 proto;
	__u8 plain; /* no options, no extension headers, no fragment */
	__u8 bad_ip_csum;
};

static __always_inline __u32 sum_words(void *from, const int words)
{
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < words; i++)
		sum += U16(from, i * 2);
	return sum;
}

/* Returns 0 for frames that are not for the sink. */
static __always_inline int view(void *data, void *end, struct l4_view *l4)
{
	if (data + V4_L4 > end)
		return 0;
	if (U16(data, ETHERTYPE) == bpf_htons(TYPE_IPV4)) {
		__u32 tot_len = bpf_ntohs(U16(data, V4_TOT_LEN));

		l4->proto = U8(data, V4_PROTO);
		l4->offset = V4_L4;
		l4->plain = U8(data, ETH_LEN) == 0x45 && tot_len >= IPV4_LEN &&
			    !(U16(data, V4_FRAG) & bpf_htons(0x3fff));
		l4->bad_ip_csum = U8(data, ETH_LEN) == 0x45 &&
				  csum_fold(sum_words(data + ETH_LEN, IPV4_LEN / 2)) != 0xffff;
		l4->len = tot_len - IPV4_LEN;
		l4->pseudo_sum = sum_words(data + V4_SADDR, 4);
	} else if (U16(data, ETHERTYPE) == bpf_htons(TYPE_IPV6) && data + V6_L4 <= end) {
		l4->proto = U8(data, V6_NEXT);
		l4->offset = V6_L4;
		l4->plain = 1;
		l4->bad_ip_csum = 0;
		l4->len = bpf_ntohs(U16(data, V6_PAYLOAD_LEN));
		l4->pseudo_sum = sum_words(data + V6_SADDR, 16);
	} else {
		return 0;
	}
	return l4->proto == PROTO_UDP || l4->proto == PROTO_TCP;
}

/* 1: right, 0: wrong, -1: cannot tell. */
static __always_inline int l4_csum_ok(void *data, void *end, const struct l4_view *l4)
{
	__u32 sum = l4->pseudo_sum + bpf_htons(l4->proto) + bpf_htons(l4->len);
	__u32 len = l4->len & 0x7ff;
	__u16 *word = data + l4->offset;

	if (!l4->plain || l4->len > SUM_WORDS * 2 || l4->len < UDP_LEN)
		return -1;
	if (data + l4->offset + UDP_LEN > end)
		return -1;
	/* RFC 768: zero means that the sender computed none; RFC 8200 allows that not for IPv6. */
	if (l4->proto == PROTO_UDP && l4->offset == V4_L4 && !U16(word, 6))
		return 1;
	for (int i = 0; i < SUM_WORDS; i++) {
		if (i >= len / 2)
			break;
		void *next = word + 1;

		/* Keeps the compiler from computing with `end`, which the verifier forbids. */
		asm volatile("" : "+r"(next));
		if (next > end)
			return -1;
		sum += *word++;
	}
	if (len & 1) {
		__u8 *last = data + l4->offset + (len - 1);

		if ((void *)(last + 1) > end)
			return -1;
		sum += bpf_htons((__u16)*last << 8);
	}
	return csum_fold(sum) == 0xffff;
}

static __always_inline void follow(void *data, void *end, const struct l4_view *l4,
				   struct sink_counters *count)
{
	void *payload = data + l4->offset + (l4->proto == PROTO_TCP ? TCP_LEN : UDP_LEN);
	struct sink_flow *flow;
	__u32 round, index;

	if (payload + 8 > end) {
		count->untracked++;
		return;
	}
	round = bpf_ntohl(U32(payload, 0));
	index = bpf_ntohl(U32(payload, 4));
	flow = index < config.flows ? bpf_map_lookup_elem(&flows, &index) : 0;
	if (!flow) {
		count->untracked++;
		return;
	}
	flow->frames++;
	if (round >= flow->next_round) {
		flow->next_round = round + 1;
		return;
	}
	__u32 extent = flow->next_round - 1 - round;

	flow->reordered++;
	if (extent > flow->extent_max)
		flow->extent_max = extent;
	count->reordered++;
}

static __always_inline void match(void *data, void *end, __u64 now_ns)
{
	for (__u32 i = 0; i < RULES; i++) {
		__u32 key = i;
		struct sink_rule *rule = bpf_map_lookup_elem(&rules, &key);
		struct sink_mark *mark = bpf_map_lookup_elem(&marks, &key);

		if (!rule || !mark || !rule->mask_be)
			continue;

		void *at = data + (rule->offset & RULE_OFF_MAX);

		if (at + 4 > end ||
		    (U32(at, 0) & rule->mask_be) != (rule->value_be & rule->mask_be))
			continue;
		__sync_fetch_and_add(&mark->count, 1);
		if (!mark->first_ns)
			mark->first_ns = now_ns;
		mark->last_ns = now_ns;
	}
}

static __always_inline void capture(struct xdp_md *ctx, struct sink_counters *count)
{
	__u64 len = ctx->data_end - ctx->data;
	struct sink_capture *slot;

	if ((count->frames - 1) % config.capture_every || count->captured >= config.capture_limit)
		return;
	slot = bpf_ringbuf_reserve(&captures, sizeof(*slot), 0);
	if (!slot) {
		count->capture_lost++;
		return;
	}
	/* Keeps the compiler from testing another copy of the length than it passes. */
	asm volatile("" : "+r"(len));
	if (len < ETH_LEN || len > CAPTURE_BYTES || bpf_xdp_load_bytes(ctx, 0, slot->data, len)) {
		bpf_ringbuf_discard(slot, 0);
		count->capture_lost++;
		return;
	}
	slot->time_ns = bpf_ktime_get_ns();
	slot->len = len;
	slot->pad = 0;
	count->captured++;
	bpf_ringbuf_submit(slot, 0);
}

static __always_inline int tagged_as_asked(void *data, void *end)
{
	if (!config.tag_len)
		return 1;
	return data + ETH_LEN + TAG_LEN <= end && U16(data, ETHERTYPE) == bpf_htons(TYPE_VLAN);
}

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	/* Where an Ethernet header without the tag would begin. */
	void *eth = data + config.tag_len;
	__u32 zero = 0;
	struct sink_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct l4_view l4 = {};

	if (!count)
		return XDP_ABORTED;
	if (!tagged_as_asked(data, end) || !view(eth, end, &l4)) {
		count->passed++;
		return XDP_PASS;
	}
	count->frames++;
	count->bytes += end - data;
	if (config.match)
		match(data, end, bpf_ktime_get_ns());
	if (config.track)
		follow(eth, end, &l4, count);
	if (config.verify) {
		int ok = l4_csum_ok(eth, end, &l4);

		count->bad_ip_csum += l4.bad_ip_csum;
		if (ok < 0)
			count->unverified++;
		else
			count->bad_l4_csum += !ok;
	}
	if (config.capture_every)
		capture(ctx, count);
	return XDP_DROP;
}

SEC("xdp")
int sink_plain(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct sink_counters *count = bpf_map_lookup_elem(&counters, &zero);

	if (count) {
		count->frames++;
		count->bytes += ctx->data_end - ctx->data;
	}
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
