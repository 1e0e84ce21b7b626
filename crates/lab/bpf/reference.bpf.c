// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a router's port costs at the very least: programs to measure against. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "wire.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

/* A multicast router's ports: the kernel passes empty entries of a hashed map at a glance. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} all SEC(".maps");

static __always_inline void count(void)
{
	__u32 zero = 0;
	__u64 *seen = bpf_map_lookup_elem(&frames, &zero);

	if (seen)
		++*seen;
}

SEC("xdp")
int xdp_drop(struct xdp_md *ctx)
{
	count();
	return XDP_DROP;
}

SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp")
int xdp_redirect(struct xdp_md *ctx)
{
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

SEC("xdp")
int xdp_broadcast(struct xdp_md *ctx)
{
	return bpf_redirect_map(&all, 0, BPF_F_BROADCAST);
}

/* Adds a piece of the packet, if its length has that bit, to the sum. */
static __always_inline int add_piece(__u8 **at, const void *end, __u32 len, const __u32 piece,
				     __u32 *sum)
{
	__s64 added;

	if (!(len & piece))
		return 1;
	if (*at + piece > (const __u8 *)end)
		return 0;
	if (piece >= 4)
		added = bpf_csum_diff(NULL, 0, (__be32 *)*at, piece, *sum);
	else
		added = (__u64)*sum + (piece == 2 ? U16(*at, 0) : bpf_htons(**at << 8));
	if (added < 0)
		return 0;
	*sum = csum_fold(added);
	*at += piece;
	return 1;
}

/* Finishes the checksum that the sender left at that of the pseudo header, as a network card does.
 */
static __always_inline void finish(void *l4, const void *end, __u32 len, __u32 pseudo, __u32 field)
{
	__u8 *at = l4;
	__u32 sum = 0;

	if (at + TCP_LEN > (const __u8 *)end || U16(l4, field) != csum_fold(pseudo))
		return;
	if (len & 1024 &&
	    (!add_piece(&at, end, 512, 512, &sum) || !add_piece(&at, end, 512, 512, &sum)))
		return;
	for (__u32 piece = 512; piece; piece /= 2)
		if (!add_piece(&at, end, len, piece, &sum))
			return;
	if (l4 + TCP_LEN <= end)
		U16(l4, field) = ~csum_fold(sum);
}

static __always_inline void finish_any(void *data, const void *end)
{
	__u32 pseudo = 0, len, proto, field;

	if (data + V6_L4 > end)
		return;
	if (U16(data, ETHERTYPE) == bpf_htons(TYPE_IPV4)) {
		proto = U8(data, V4_PROTO);
		len = bpf_ntohs(U16(data, V4_TOT_LEN)) - IPV4_LEN;
		for (int i = 0; i < 4; i++)
			pseudo += U16(data, V4_SADDR + 2 * i);
	} else {
		proto = U8(data, V6_NEXT);
		len = bpf_ntohs(U16(data, V6_PAYLOAD_LEN));
		for (int i = 0; i < 16; i++)
			pseudo += U16(data, V6_SADDR + 2 * i);
	}
	if (proto != PROTO_TCP && proto != PROTO_UDP)
		return;
	pseudo += bpf_htons(proto) + bpf_htons(len);
	field = proto == PROTO_TCP ? 16 : 6;
	if (U16(data, ETHERTYPE) == bpf_htons(TYPE_IPV4))
		finish(data + V4_L4, end, len, pseudo, field);
	else
		finish(data + V6_L4, end, len, pseudo, field);
}

/* What a router's port sends is a network card's: checksums may be left to it. */
SEC("xdp")
int xdp_wire(struct xdp_md *ctx)
{
	finish_any((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return bpf_redirect_map(&out, 0, XDP_DROP);
}

SEC("tc")
int tc_drop(struct __sk_buff *skb)
{
	count();
	return 2; /* TC_ACT_SHOT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
