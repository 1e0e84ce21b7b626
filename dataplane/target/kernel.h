/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The fields of kernel structures that the data plane reads, relocated at load
 * time (CO-RE), and the kfuncs it calls, weak where a kernel may lack them.
 */
#ifndef FW_TARGET_KERNEL_H
#define FW_TARGET_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "../conntrack.h"

#define FW_CORE __attribute__((preserve_access_index))

union nf_inet_addr {
	__u32 all[4];
} FW_CORE;

union nf_conntrack_man_proto {
	__u16 all;
} FW_CORE;

struct nf_conntrack_man {
	union nf_inet_addr u3;
	union nf_conntrack_man_proto u;
} FW_CORE;

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__u16 all;
		} u;
		__u8 protonum;
	} dst;
} FW_CORE;

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
} FW_CORE;

struct nf_conntrack_zone {
	__u16 id;
} FW_CORE;

struct ip_ct_tcp_state {
	__u32 td_maxwin;
	__u8 flags;
} FW_CORE;

struct ip_ct_tcp {
	struct ip_ct_tcp_state seen[2];
	__u8 state;
} FW_CORE;

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} FW_CORE;

struct nf_ct_ext {
	__u8 offset[1];
} FW_CORE;

struct nf_conn {
	__u32 timeout;
	struct nf_conntrack_zone zone;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	__u32 mark;
	struct nf_ct_ext *ext;
	union nf_conntrack_proto proto;
} FW_CORE;

enum nf_ct_ext_id {
	NF_CT_EXT_HELPER,
	NF_CT_EXT_SEQADJ,
	NF_CT_EXT_SYNPROXY,
	NF_CT_EXT_TIMEOUT,
};

struct ns_common {
	unsigned int inum;
} FW_CORE;

struct net {
	struct ns_common ns;
} FW_CORE;

typedef struct {
	struct net *net;
} FW_CORE possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} FW_CORE;

/* The network namespace of a device, as its inode is numbered. */
static __always_inline __u32 fw_netns_of(const struct net_device *dev)
{
	return BPF_CORE_READ(dev, nd_net.net, ns.inum);
}

struct sk_buff {
	struct net_device *dev;
	unsigned long _skb_refdst;
	unsigned long _nfct;
	__u8 ip_summed : 2;
	int skb_iif;
	__u16 protocol;
	__u16 network_header;
	unsigned char *head;
	__u32 end; /* from `head` on, or a pointer of 32 bits */
} FW_CORE;

struct skb_shared_info {
	unsigned int gso_type;
} FW_CORE;

/* A macro: CO-RE relocates an array index only if it is a constant in the source. */
#define FW_CONN_TUPLE(to, ct, dir)                                                                 \
	do {                                                                                       \
		BPF_CORE_READ_INTO(&(to)->saddr_be, ct, tuplehash[dir].tuple.src.u3.all);          \
		BPF_CORE_READ_INTO(&(to)->daddr_be, ct, tuplehash[dir].tuple.dst.u3.all);          \
		BPF_CORE_READ_INTO(&(to)->sport_be, ct, tuplehash[dir].tuple.src.u.all);           \
		BPF_CORE_READ_INTO(&(to)->dport_be, ct, tuplehash[dir].tuple.dst.u.all);           \
	} while (0)

/* include/linux/skbuff.h */
enum { FW_CHECKSUM_PARTIAL = 3 };

/* Bits of skb_shared_info.gso_type, the same. */
enum fw_gso {
	FW_GSO_DODGY = 1 << 1,
	FW_GSO_UDP_L4 = 1 << 17,
};

/* net/netfilter/nf_conntrack_bpf.c; later fields are optional there */
struct bpf_ct_opts {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

enum nf_nat_manip_type {
	NF_NAT_MANIP_SRC,
};

/* A connection that is no one's yet. Complete, or libbpf takes it for another type. */
struct nf_conn___init {
	struct nf_conn ct;
};

struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 len,
				  struct bpf_ct_opts *opts, __u32 opts_len) __ksym __weak;
struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple, __u32 len,
				  struct bpf_ct_opts *opts, __u32 opts_len) __ksym __weak;
struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *ctx, struct bpf_sock_tuple *tuple,
					__u32 len, struct bpf_ct_opts *opts,
					__u32 opts_len) __ksym __weak;
void bpf_ct_set_timeout(struct nf_conn___init *ct, __u32 timeout_ms) __ksym __weak;
int bpf_ct_set_nat_info(struct nf_conn___init *ct, union nf_inet_addr *addr, int port,
			enum nf_nat_manip_type manip) __ksym __weak;
int bpf_ct_change_timeout(struct nf_conn *ct, __u32 timeout_ms) __ksym __weak;
struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *ct) __ksym __weak;
void bpf_ct_release(struct nf_conn *ct) __ksym __weak;
void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

#endif
