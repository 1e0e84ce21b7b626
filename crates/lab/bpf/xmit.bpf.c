// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a port's driver takes of the frames that a stream redirects to it: a full ring drops after
 * the stream's program was told of success. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* A live frame's receiver is the loopback device. */
enum {
	LOOPBACK_IFINDEX = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

#pragma clang attribute pop

/* The port: an index is one of its namespace. */
struct xmit_config {
	__u32 netns_inode;
	__u32 ifindex;
};

const volatile struct xmit_config config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} taken SEC(".maps");

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(xmit, const struct net_device *from, const struct net_device *to, int sent, int drops,
	     int err)
{
	__u32 zero = 0;
	__u64 *count;

	if (!from || !to || from->ifindex != LOOPBACK_IFINDEX ||
	    (__u32)to->ifindex != config.ifindex || to->nd_net.net->ns.inum != config.netns_inode)
		return 0;
	count = bpf_map_lookup_elem(&taken, &zero);
	if (count && sent > 0)
		*count += sent;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
