// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counts and drops the IP packets that are sent to a host's port, whatever they carry and however
 * long they are; groups and ARP are left to the stack. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "wire.h"

struct tally_counts {
	__u64 frames;
	__u64 bytes; /* frame memory, without FCS */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally_counts);
} counts SEC(".maps");

SEC("xdp.frags")
int tally(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct tally_counts *count = bpf_map_lookup_elem(&counts, &zero);

	if (!count)
		return XDP_ABORTED;
	if (data + ETH_LEN > end || U8(data, 0) & 1 ||
	    (U16(data, ETHERTYPE) != bpf_htons(TYPE_IPV4) &&
	     U16(data, ETHERTYPE) != bpf_htons(TYPE_IPV6)))
		return XDP_PASS;
	count->frames++;
	count->bytes += bpf_xdp_get_buff_len(ctx);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
