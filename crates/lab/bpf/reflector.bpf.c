// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Answers every UDP datagram with the same datagram sent back, and every TCP SYN with a SYN-ACK, so
 * that connections on the way become assured. Other TCP segments are counted and dropped.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

/* The sequence number of the far side's SYN, host byte order. */
const volatile __u32 far_isn;
/* Of a PPPoE session's header, which all frames have, or 0. */
const volatile __u32 header_len;

struct reflector_counters {
	__u64 reflected;
	__u64 absorbed;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reflector_counters);
} counters SEC(".maps");

/*
 * The port itself. Not XDP_TX: veth_xdp_flush() wakes only a peer that has an XDP program, a
 * redirect any peer with NAPI.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} out SEC(".maps");

static __always_inline void swap_macs(void *data)
{
	__u16 a0 = U16(data, 0), a1 = U16(data, 2), a2 = U16(data, 4);

	U16(data, 0) = U16(data, 6);
	U16(data, 2) = U16(data, 8);
	U16(data, 4) = U16(data, 10);
	U16(data, 6) = a0;
	U16(data, 8) = a1;
	U16(data, 10) = a2;
}

/* SYN to SYN-ACK: sequence and acknowledgement numbers, flags, and the checksum by difference (RFC
 * 1624). */
static __always_inline void answer_syn(void *l4)
{
	__u32 seq = bpf_ntohl(U32(l4, 4)), ack = bpf_ntohl(U32(l4, 8));
	__u32 new_seq = far_isn, new_ack = seq + 1;
	__u32 sum = (__u16)~bpf_ntohs(U16(l4, 16));

	sum += (__u16) ~(seq >> 16) + (__u16)~seq + (__u16) ~(ack >> 16) + (__u16)~ack;
	sum += (new_seq >> 16) + (new_seq & 0xffff) + (new_ack >> 16) + (new_ack & 0xffff);
	sum += (__u16)~U8(l4, 13) + (TCP_FLAG_SYN | TCP_FLAG_ACK);
	U32(l4, 4) = bpf_htonl(new_seq);
	U32(l4, 8) = bpf_htonl(new_ack);
	U8(l4, 13) = TCP_FLAG_SYN | TCP_FLAG_ACK;
	U16(l4, 16) = bpf_htons(~csum_fold(sum));
}

/* `data` is where an Ethernet header without the session's would begin. */
static __always_inline int reflect(void *frame, void *data, void *end, const int v6)
{
	void *l4 = data + (v6 ? V6_L4 : V4_L4);
	__u8 proto = U8(data, v6 ? V6_NEXT : V4_PROTO);
	__u32 zero = 0;
	struct reflector_counters *count = bpf_map_lookup_elem(&counters, &zero);

	if (!count || l4 + UDP_LEN > end)
		return XDP_PASS;
	if (proto == PROTO_TCP) {
		if (l4 + TCP_LEN > end)
			return XDP_PASS;
		if ((U8(l4, 13) & (TCP_FLAG_SYN | TCP_FLAG_ACK)) != TCP_FLAG_SYN) {
			count->absorbed++;
			return XDP_DROP;
		}
		answer_syn(l4);
	} else if (proto != PROTO_UDP) {
		return XDP_PASS;
	}

	swap_macs(frame);
#pragma unroll
	for (int i = 0; i < (v6 ? 4 : 1); i++) {
		__u32 saddr = U32(data, (v6 ? V6_SADDR : V4_SADDR) + i * 4);

		U32(data, (v6 ? V6_SADDR : V4_SADDR) + i * 4) =
			U32(data, (v6 ? V6_DADDR : V4_DADDR) + i * 4);
		U32(data, (v6 ? V6_DADDR : V4_DADDR) + i * 4) = saddr;
	}
	__u16 sport = U16(l4, 0);

	U16(l4, 0) = U16(l4, 2);
	U16(l4, 2) = sport;
	count->reflected++;
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

SEC("xdp")
int reflector(struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	void *data = frame + header_len;
	/* In a session PPP's protocol field takes the place of the Ethernet type. */
	__u16 ipv4 = header_len ? PPP_IPV4 : TYPE_IPV4;
	__u16 ipv6 = header_len ? PPP_IPV6 : TYPE_IPV6;

	if (data + V4_L4 > end)
		return XDP_PASS;
	if (header_len && U16(frame, ETHERTYPE) != bpf_htons(TYPE_PPPOE))
		return XDP_PASS;
	if (U16(data, ETHERTYPE) == bpf_htons(ipv4) && U8(data, ETH_LEN) == 0x45)
		return reflect(frame, data, end, 0);
	if (U16(data, ETHERTYPE) == bpf_htons(ipv6) && data + V6_L4 <= end)
		return reflect(frame, data, end, 1);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
