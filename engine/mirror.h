/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of frames for who looks on: what comes in or leaves at a port, as it is on its wire, is
 * copied to another port. Rules go by the frame itself, not by flows: so what goes through the
 * kernel is copied, too.
 */
#ifndef FWE_MIRROR_H
#define FWE_MIRROR_H

#include "engine.h"

struct fwe_mirror_net {
	__u8 addr[16]; /* as in the header; IPv4: the first four octets */
	__u8 v6;
	__u8 len; /* of the prefix, bits */
};

struct fwe_mirror_range {
	__u16 first;
	__u16 last;
};

enum fwe_mirror_const {
	FWE_MIRROR_ANY_PROTO = 256,
};

/* What one end of a packet has to be; a list without entries: anything. */
struct fwe_mirror_end {
	const struct fwe_mirror_net *nets;
	const struct fwe_mirror_range *ports;
	__u32 nets_count;
	__u32 ports_count;
};

/*
 * Source and destination may be so, or the other way round: what is named is a conversation. A rule
 * that names nothing of a packet takes any frame, ARP as well.
 */
struct fwe_mirror_rule {
	__u64 at;     /* a mask of ports, by number */
	__u32 target; /* number of the port of the copies */
	__u32 proto;  /* of IP, behind IPv6's extension headers; or FWE_MIRROR_ANY_PROTO */
	struct fwe_mirror_end src;
	struct fwe_mirror_end dst;
};

/* The first rule that takes a frame counts. What is pointed to lives as long. */
struct fwe_mirror {
	const struct fwe_mirror_rule *rules;
	__u32 rules_count;
	__u32 pad;
	struct rte_mempool *pool; /* of copies */
};

/* Copies that wait to be sent. */
struct fwe_mirrored {
	__u32 count;
	__u32 failed; /* the pool was empty */
	__u32 bucket[FWE_BURST_MAX];
	__u8 target[FWE_BURST_MAX];
	struct rte_mbuf *frame[FWE_BURST_MAX];
};

/* Ports at which rules look, as a mask. */
__u64 fwe_mirror_ports(const struct fwe_mirror *mirror);

/* Copies what rules take of frames that are at a port, at most FWE_BURST_MAX. */
void fwe_mirror_copy(const struct fwe_mirror *mirror, __u32 port, struct rte_mbuf *const *frames,
		     __u32 count, struct fwe_mirrored *copies);

/* The number of the first rule that takes a frame at a port, or -1. */
int fwe_mirror_match(const struct fwe_mirror *mirror, __u32 port, const __u8 *data, __u32 len);

#endif
