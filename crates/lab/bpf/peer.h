/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What routers in XDP share that Freeway is compared with: ports, what they leave to the kernel,
 * and the TTL. */
#ifndef LAB_PEER_H
#define LAB_PEER_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "wire.h"

enum {
	V4_NO_OPTIONS = 0x45,
	V4_TTL = ETH_LEN + 8,
};

/* By interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

/* What it leaves to the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} passed SEC(".maps");

static __always_inline int pass(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&passed, &zero);

	if (count)
		++*count;
	return XDP_PASS;
}

/* RFC 1141; the checksum is what it is but for the TTL. */
static __always_inline void decrease_ttl(void *data, __u32 csum)
{
	U8(data, V4_TTL)--;
	csum += bpf_htons(0x0100);
	U16(data, V4_CSUM) = csum + (csum >= 0xffff);
}

#endif
