/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames of the bench: UDP of many flows, source NAT; what goes in and what has to come out. */
#ifndef FWE_BENCH_FRAME_H
#define FWE_BENCH_FRAME_H

#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "../dataplane/csum.h"
#include "../dataplane/target/bytes.h"
#include "../dataplane/writer.h"

enum fwe_frame_const {
	FWE_ETH_LEN = 14,
	FWE_IP4_LEN = 20,
	FWE_IP6_LEN = 40,
	FWE_UDP_LEN = 8,
	FWE_UDP = 17,
	/* A time and its complement, which together add nothing to a checksum. */
	FWE_STAMP_LEN = 16,
	/* Without FCS. */
	FWE_FRAME4_LEN = 60,
	FWE_FRAME6_LEN = FWE_ETH_LEN + FWE_IP6_LEN + FWE_UDP_LEN + FWE_STAMP_LEN,
	FWE_FRAME_MAX = 80,
	/* Flows to one server; each client has 64 of them. */
	FWE_SERVER_FLOWS = 32768,
	FWE_CLIENT_FLOWS = 64,
	FWE_SPORT = 10000,
	FWE_SPORT_OUT = 20000,
	FWE_DPORT = 5001,
	FWE_TTL = 64,
};

static const __u8 fwe_l2_in[FWE_ETH_LEN] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
static const __u8 fwe_l2_out[FWE_ETH_LEN] = {2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3};

/* What differs from flow to flow. */
struct fwe_bench_step {
	__u32 saddr_be; /* IPv6: the last word */
	__u32 daddr_be;
	__u16 sport_be;
	__u16 ip_check;
	__u16 l4_check;
	__u16 pad;
};

/* Addresses as four words, of IPv4 the last one. */
static inline void fwe_saddr(__u32 *to, __u32 flow, __u32 v6)
{
	to[0] = v6 ? fw_htonl(0x20010db8) : 0;
	to[1] = to[2] = 0;
	to[3] = fw_htonl((v6 ? 1 : 0x0a000001) + flow / FWE_CLIENT_FLOWS);
}

static inline void fwe_daddr(__u32 *to, __u32 flow, __u32 v6)
{
	to[0] = v6 ? fw_htonl(0x20010db8) : 0;
	to[1] = v6 ? fw_htonl(0x00010000) : 0;
	to[2] = 0;
	to[3] = fw_htonl((v6 ? 1 : 0xc6120001) + flow / FWE_SERVER_FLOWS);
}

/* The router's. */
static inline void fwe_saddr_out(__u32 *to, __u32 v6)
{
	to[0] = v6 ? fw_htonl(0x20010db8) : 0;
	to[1] = v6 ? fw_htonl(0x00ff0000) : 0;
	to[2] = 0;
	to[3] = fw_htonl(v6 ? 1 : 0xcb007101);
}

/* Sums up slowly. */
static inline __u64 fwe_sum(const void *data, __u32 len)
{
	const __u8 *octets = data;
	__u64 sum = 0;

	for (__u32 i = 0; i < len; i++)
		sum += (__u64)octets[i] << (i & 1 ? 8 : 0);
	return sum;
}

static inline __u16 fwe_not_0(__u16 check)
{
	return check ? check : 0xffff;
}

/* Of a flow's frame to an address without a time, all checksums computed from all octets. */
static inline __u32 fwe_frame_write_to(__u8 *frame, __u32 flow, __u32 v6, const __u32 *daddr)
{
	__u32 len = v6 ? FWE_FRAME6_LEN : FWE_FRAME4_LEN;
	__u32 l4_at = FWE_ETH_LEN + (v6 ? FWE_IP6_LEN : FWE_IP4_LEN);
	__u8 *ip = frame + FWE_ETH_LEN;
	__u32 saddr[4];
	__u16 words[4] = {fw_htons(FWE_SPORT + flow % FWE_SERVER_FLOWS), fw_htons(FWE_DPORT),
			  fw_htons(len - l4_at), 0};
	__u16 word;
	__u64 sum;

	fwe_saddr(saddr, flow, v6);
	memset(frame, 0, len);
	memcpy(frame, fwe_l2_in, FWE_ETH_LEN);
	memset(frame + l4_at + FWE_UDP_LEN + 8, 0xff, 8);
	memcpy(frame + l4_at, words, sizeof(words));
	if (v6) {
		frame[12] = 0x86;
		frame[13] = 0xdd;
		ip[0] = 0x60;
		word = words[2];
		memcpy(ip + 4, &word, 2);
		ip[6] = FWE_UDP;
		ip[7] = FWE_TTL;
		memcpy(ip + 8, saddr, 16);
		memcpy(ip + 24, daddr, 16);
		sum = fwe_sum(ip + 8, 32);
	} else {
		frame[12] = 0x08;
		ip[0] = 0x45;
		word = fw_htons(len - FWE_ETH_LEN);
		memcpy(ip + 2, &word, 2);
		ip[8] = FWE_TTL;
		ip[9] = FWE_UDP;
		memcpy(ip + 12, saddr + 3, 4);
		memcpy(ip + 16, daddr + 3, 4);
		word = ~fw_csum_fold(fwe_sum(ip, FWE_IP4_LEN));
		memcpy(ip + 10, &word, 2);
		sum = fwe_sum(ip + 12, 8);
	}
	sum += fw_htons(FWE_UDP) + words[2] + fwe_sum(frame + l4_at, len - l4_at);
	word = fwe_not_0(~fw_csum_fold(sum));
	memcpy(frame + l4_at + 6, &word, 2);
	return len;
}

static inline __u32 fwe_frame_write(__u8 *frame, __u32 flow, __u32 v6)
{
	__u32 daddr[4];

	fwe_daddr(daddr, flow, v6);
	return fwe_frame_write_to(frame, flow, v6, daddr);
}

/* `daddrs`: as in struct fwe_bench_config. */
static inline struct fwe_bench_step fwe_step_of(__u32 flow, __u32 v6, const __u32 *daddrs)
{
	__u32 l4_at = FWE_ETH_LEN + (v6 ? FWE_IP6_LEN : FWE_IP4_LEN);
	const __u32 daddr[4] = {[3] = daddrs ? fw_htonl(daddrs[flow]) : 0};
	__u8 frame[FWE_FRAME_MAX];
	struct fwe_bench_step step = {};

	if (daddrs)
		fwe_frame_write_to(frame, flow, v6, daddr);
	else
		fwe_frame_write(frame, flow, v6);
	memcpy(&step.saddr_be, frame + (v6 ? FWE_ETH_LEN + 20 : FWE_ETH_LEN + 12), 4);
	memcpy(&step.daddr_be, frame + (v6 ? FWE_ETH_LEN + 36 : FWE_ETH_LEN + 16), 4);
	memcpy(&step.sport_be, frame + l4_at, 2);
	memcpy(&step.ip_check, frame + FWE_ETH_LEN + 10, 2);
	memcpy(&step.l4_check, frame + l4_at + 6, 2);
	return step;
}

/* Is it what the flow's frame becomes? Addresses, ports, TTL, both checksums, payload. */
static inline int fwe_frame_right(const __u8 *frame, __u32 len, __u32 flows, __u32 v6)
{
	__u32 l4_at = FWE_ETH_LEN + (v6 ? FWE_IP6_LEN : FWE_IP4_LEN), flow;
	__u32 want_len = v6 ? FWE_FRAME6_LEN : FWE_FRAME4_LEN, address[4], last_be;
	__u8 want[FWE_FRAME_MAX];
	__u16 sport_be, word;
	__u64 sum, stamp[2];

	if (len != want_len)
		return 0;
	memcpy(&sport_be, frame + l4_at, 2);
	memcpy(&last_be, frame + (v6 ? FWE_ETH_LEN + 36 : FWE_ETH_LEN + 16), 4);
	fwe_daddr(address, 0, v6);
	flow = (fw_ntohl(last_be) - fw_ntohl(address[3])) * FWE_SERVER_FLOWS + fw_ntohs(sport_be) -
	       FWE_SPORT_OUT;
	if (flow >= flows)
		return 0;
	fwe_frame_write(want, flow, v6);
	memcpy(want, fwe_l2_out, 12);
	fwe_saddr_out(address, v6);
	memcpy(want + l4_at, &sport_be, 2);
	memcpy(stamp, frame + l4_at + FWE_UDP_LEN, sizeof(stamp));
	if (stamp[0] != ~stamp[1])
		return 0;
	memcpy(want + l4_at + FWE_UDP_LEN, stamp, sizeof(stamp));
	/* what comes out sums up; then the rest is compared as it lies */
	memcpy(want + l4_at + 6, frame + l4_at + 6, 2);
	if (v6) {
		want[FWE_ETH_LEN + 7] = FWE_TTL - 1;
		memcpy(want + FWE_ETH_LEN + 8, address, 16);
		sum = fwe_sum(frame + FWE_ETH_LEN + 8, 32);
	} else {
		want[FWE_ETH_LEN + 8] = FWE_TTL - 1;
		memcpy(want + FWE_ETH_LEN + 12, address + 3, 4);
		memset(want + FWE_ETH_LEN + 10, 0, 2);
		word = ~fw_csum_fold(fwe_sum(want + FWE_ETH_LEN, FWE_IP4_LEN));
		memcpy(want + FWE_ETH_LEN + 10, &word, 2);
		sum = fwe_sum(frame + FWE_ETH_LEN + 12, 8);
	}
	sum += fw_htons(FWE_UDP) + fw_htons(len - l4_at) + fwe_sum(frame + l4_at, len - l4_at);
	return !memcmp(frame, want, len) && fw_csum_fold(sum) == 0xffff;
}

/* Is it what a frame without a flow becomes? MAC addresses, TTL, and the header's checksum. */
static inline int fwe_route_right(const __u8 *frame, __u32 len, __u32 flows, const __u32 *daddrs)
{
	const __u8 *ip = frame + FWE_ETH_LEN, *udp = ip + FWE_IP4_LEN;
	__u8 want[FWE_FRAME_MAX];
	__u32 saddr[4], last_be, flow, daddr[4] = {};
	__u16 sport_be, word;

	if (len != FWE_FRAME4_LEN)
		return 0;
	memcpy(&last_be, ip + 12, 4);
	memcpy(&sport_be, udp, 2);
	fwe_saddr(saddr, 0, 0);
	flow = (fw_ntohl(last_be) - fw_ntohl(saddr[3])) * FWE_CLIENT_FLOWS +
	       (fw_ntohs(sport_be) - FWE_SPORT) % FWE_CLIENT_FLOWS;
	if (flow >= flows)
		return 0;
	daddr[3] = fw_htonl(daddrs[flow]);
	fwe_frame_write_to(want, flow, 0, daddr);
	memcpy(want, fwe_l2_out, 12);
	want[FWE_ETH_LEN + 8] = FWE_TTL - 1;
	memset(want + FWE_ETH_LEN + 10, 0, 2);
	word = ~fw_csum_fold(fwe_sum(want + FWE_ETH_LEN, FWE_IP4_LEN));
	memcpy(want + FWE_ETH_LEN + 10, &word, 2);
	memcpy(want + FWE_ETH_LEN + FWE_IP4_LEN + FWE_UDP_LEN, udp + FWE_UDP_LEN, FWE_STAMP_LEN);
	return !memcmp(frame, want, len);
}

/* The flow's record, as it is once learned. */
static inline void fwe_flow_write(struct fw_flow *f, __u32 flow, __u32 v6, __u32 now_tick)
{
	__u32 saddr[4], daddr[4], saddr_out[4];
	__u64 sum = 0;

	fwe_saddr(saddr, flow, v6);
	fwe_daddr(daddr, flow, v6);
	fwe_saddr_out(saddr_out, v6);
	*f = (struct fw_flow){
		.key = {.sport_be = fw_htons(FWE_SPORT + flow % FWE_SERVER_FLOWS),
			.dport_be = fw_htons(FWE_DPORT),
			.port_proto = (__u32)FWE_BENCH_PORT_IN << 8 | FWE_UDP},
		.ttl_in = FWE_TTL,
		.ttl_out = FWE_TTL - 1,
		.proto = FWE_UDP,
		.sport_be = fw_htons(FWE_SPORT_OUT + flow % FWE_SERVER_FLOWS),
		.dport_be = fw_htons(FWE_DPORT),
		.nexthop = FWE_BENCH_NEXTHOP,
		.flags = FW_FLOW_NAT | FW_FLOW_ENGINE,
		.state = {.status = FW_ST_ACTIVE,
			  .epoch = 1,
			  .used_tick = now_tick,
			  .due_tick = now_tick + 0x3fffffff,
			  .reval_tick = now_tick + 0x3fffffff,
			  .confirmed_tick = now_tick,
			  .interval = 250,
			  .len_max = 1500},
	};
	memcpy(f->l2_in, fwe_l2_in, 12);
	for (int i = 0; i < 4; i++)
		sum += fw_csum_diff(saddr[i], saddr_out[i]);
	f->l3_delta = fw_csum_fold(
		sum + fw_csum_diff(fw_htons(FWE_TTL << 8), fw_htons((FWE_TTL - 1) << 8)));
	f->l4_delta = fw_csum_fold(sum + fw_csum_diff(f->key.sport_be, f->sport_be));
	if (v6) {
		f->key.port_proto |= FW_KEY_IP6;
		f->l2_in[12] = 0x86;
		f->l2_in[13] = 0xdd;
		f->word0_in_be = fw_htonl(0x60000000);
		memcpy(f->key_saddr6_be, saddr, 16);
		memcpy(f->key_daddr6_be, daddr, 16);
		memcpy(f->saddr6_be, saddr_out, 16);
		memcpy(f->daddr6_be, daddr, 16);
		return;
	}
	f->l2_in[12] = 0x08;
	f->version_ihl = 0x45;
	f->key.saddr_be = saddr[3];
	f->key.daddr_be = daddr[3];
	f->saddr_be = saddr_out[3];
	f->daddr_be = daddr[3];
}

#endif
