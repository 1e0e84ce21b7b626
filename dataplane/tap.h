/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a capture is told of fast packets: as they came in, and as they left. */
#ifndef FW_TAP_H
#define FW_TAP_H

#include "abi.h"

/* Instead of a slot. */
#define FW_TAP_NOWHERE (~0u)
#define FW_TAP_ENGINE  (FW_TAP_NOWHERE - 1)

struct fw_tap_scratch {
	struct fw_tap_frame head;
	__u8 octets[FW_TAP_TAKEN_MAX];
};

const volatile struct fw_tap_filter fw_tap SEC(".rodata.tap") = {.taken = 256, .per_tick = 1};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} FW_MAP(fw_tap_ring);

/* The frame as it came in, and as it leaves. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct fw_tap_scratch);
} FW_MAP(fw_tap_scratches);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_tap_count);
} FW_MAP(fw_tap_counts);

static __always_inline struct fw_tap_count *fw_tap_count_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&fw_tap_counts, &zero);
}

/* These are of external linkage, so that the verifier looks at them once, and not on each way. */
int fw_tap_sent(__u32 slot);
int fw_tap_matches(const struct fw_tap_scratch *s);
int fw_tap_note(struct xdp_md *ctx);
int fw_tap_tell(struct xdp_md *ctx);

__noinline int fw_tap_sent(__u32 slot)
{
	struct fw_tap_count *count = fw_tap_count_get();

	if (count)
		count->slot = slot;
	return 0;
}
#define FW_SENT(nh) fw_tap_sent((nh)->devmap_slot)
#define FW_HANDED() fw_tap_sent(FW_TAP_ENGINE)

/* Takes of the frame what it has, and is wanted. */
static __always_inline struct fw_tap_scratch *fw_tap_take(struct xdp_md *ctx, __u32 way)
{
	struct fw_tap_scratch *to = bpf_map_lookup_elem(&fw_tap_scratches, &way);
	__u32 length = fw_frame_len(ctx), taken = length;

	if (!to)
		return NULL;
	if (taken > fw_tap.taken)
		taken = fw_tap.taken;
	/* bounds for the verifier, which must not be merged with those above */
	asm volatile("" : "+r"(taken));
	if (taken < FW_ETH_LEN || taken > FW_TAP_TAKEN_MAX)
		return NULL;
	if (bpf_xdp_load_bytes(ctx, 0, to->octets, taken))
		return NULL;
	to->head.way = way;
	to->head.length = length;
	to->head.taken = taken;
	return to;
}

static __always_inline __u16 fw_tap_be16(const __u8 *at)
{
	return at[0] << 8 | at[1];
}

static __always_inline int fw_tap_addresses(const __u8 *at, int words)
{
	for (int end = 0; end < 2; end++)
		for (int i = 0; i < words; i++) {
			__u32 word;

			__builtin_memcpy(&word, at + (end * words + i) * 4, sizeof(word));
			if ((word ^ fw_tap.addr_be[end][i]) & fw_tap.mask_be[end][i])
				return 0;
		}
	return 1;
}

/* Fast packets have neither options nor fragments, so all is where it is in most. */
__noinline int fw_tap_matches(const struct fw_tap_scratch *s)
{
	const __u8 *at;
	__u8 proto, family;
	__u16 type;

	if (!s)
		return 0;
	at = s->octets + FW_ETH_LEN;
	type = fw_tap_be16(at - 2);
	for (int tags = 0; tags < 2; tags++)
		if (type == 0x8100 || type == 0x88a8) {
			type = fw_tap_be16(at + 2);
			at += 4;
		}
	if (type == 0x8864) {
		/* PPP over Ethernet: a session's header, and the protocol's number */
		type = fw_tap_be16(at + 6) == 0x0021 ? 0x0800 : 0x86dd;
		at += 8;
	}
	if (type != 0x0800 && type != 0x86dd)
		return 0;
	family = type == 0x0800 ? 4 : 6;
	if (fw_tap.family && fw_tap.family != family)
		return 0;
	proto = family == 4 ? at[9] : at[6];
	if (!fw_tap.any_proto && fw_tap.proto != proto)
		return 0;
	if (!(family == 4 ? fw_tap_addresses(at + 12, 1) : fw_tap_addresses(at + 8, 4)))
		return 0;
	if (fw_tap.any_ports)
		return 1;
	if (proto != 6 && proto != 17)
		return 0;
	at += family == 4 ? 20 : 40;
	for (int end = 0; end < 2; end++) {
		__u16 port = fw_tap_be16(at + end * 2);

		if (port < fw_tap.port_min[end] || port > fw_tap.port_max[end])
			return 0;
	}
	return 1;
}

/* Begins with each frame. */
__noinline int fw_tap_note(struct xdp_md *ctx)
{
	struct fw_tap_count *count = fw_tap_count_get();

	if (!count)
		return 0;
	count->slot = FW_TAP_NOWHERE;
	count->noted = !!fw_tap_take(ctx, FW_TAP_CAME);
	return 0;
}

static __always_inline int fw_tap_put(struct fw_tap_scratch *s, struct fw_tap_count *count,
				      __u32 port)
{
	__u32 taken = s->head.taken;

	s->head.port = port;
	s->head.number = count->number;
	s->head.cpu = fw_cpu_id();
	asm volatile("" : "+r"(taken));
	if (taken > FW_TAP_TAKEN_MAX)
		return 0;
	return !bpf_ringbuf_output(&fw_tap_ring, s, sizeof(s->head) + taken, 0);
}

/* Ends with one that was redirected. */
__noinline int fw_tap_tell(struct xdp_md *ctx)
{
	struct fw_tap_count *count = fw_tap_count_get();
	__u32 now = fw_now(), came = FW_TAP_CAME;
	struct fw_tap_scratch *in = bpf_map_lookup_elem(&fw_tap_scratches, &came);
	struct fw_tap_scratch *out;

	if (!in || !count || !count->noted)
		return 0;
	out = fw_tap_take(ctx, FW_TAP_LEFT);
	if (!out)
		return 0;
	if (fw_tap.port && fw_tap.port != fw_port(ctx) && fw_tap.slot != count->slot)
		return 0;
	if (!fw_tap_matches(in) && !fw_tap_matches(out))
		return 0;
	if (count->tick != now) {
		count->tick = now;
		count->in_tick = 0;
	}
	if (count->in_tick >= fw_tap.per_tick) {
		count->over++;
		return 0;
	}
	count->in_tick++;
	count->number++;
	in->head.time_ns = out->head.time_ns = bpf_ktime_get_ns();
	in->head.way = count->slot == FW_TAP_ENGINE ? FW_TAP_HANDED : FW_TAP_CAME;
	if (!fw_tap_put(in, count, fw_port(ctx))) {
		count->lost++;
		return 0;
	}
	/* several copies, or the engine's: where they leave is not known here */
	if (count->slot < FW_TAP_ENGINE)
		fw_tap_put(out, count, count->slot);
	count->told++;
	return 1;
}

#endif
