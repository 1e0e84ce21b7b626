/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ports that stay the kernel's: the engine has an AF_XDP socket at each of their queues
 * (Documentation/networking/af_xdp.rst). Freeway's own XDP program at the port puts into them what
 * is the engine's. DPDK's net_af_xdp is of no use there: it wants the port's program to be its own,
 * and takes off whichever is there when it ends.
 */
#ifndef FWE_SOCKET_H
#define FWE_SOCKET_H

#include "../dataplane/abi.h"

struct rte_mbuf;
struct rte_mempool;
struct fwe_sockets;

struct fwe_socket_counts {
	__u64 lost;    /* frames that found no room in a socket's ring */
	__u64 no_room; /* of the pool, for a frame that came in */
};

/* At all queues of a port. NULL with errno and *error, what was being done. */
struct fwe_sockets *fwe_sockets_open(__u32 ifindex, struct rte_mempool *pool, const char **error);
/* No worker uses them any more. */
void fwe_sockets_close(struct fwe_sockets *sockets);
/* Queues, from 0 on. */
__u32 fwe_sockets_count(const struct fwe_sockets *sockets);
/* Descriptor of the one at a queue. */
int fwe_sockets_fd(const struct fwe_sockets *sockets, __u32 queue);
struct fwe_socket_counts fwe_sockets_sum(const struct fwe_sockets *sockets);

/* True if the kernel has not taken yet what it was given to send. Of the thread that sends. */
int fwe_sockets_unsent(const struct fwe_sockets *sockets);
/* As rte_eth_rx_burst() and rte_eth_tx_burst(). Of one thread. */
__u32 fwe_sockets_receive(struct fwe_sockets *sockets, struct rte_mbuf **frames, __u32 room);
__u32 fwe_sockets_send(struct fwe_sockets *sockets, struct rte_mbuf **frames, __u32 count);

/* A program for fwe_inject(), or -1 with errno. */
int fwe_inject_open(void);
/*
 * Gives the kernel a frame as if it had come in at the port, behind XDP; 0, or -1 with errno. The
 * port has a program of XDP.
 */
int fwe_inject(int program, __u32 ifindex, const void *frame, __u32 len);

#endif
