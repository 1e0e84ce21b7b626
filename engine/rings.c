/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ports of rings: see rings.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "rings.h"

struct fwe_rings {
	struct rte_mempool *pool;
	struct {
		struct rte_ring *in;
		struct rte_ring *out;
		__u16 id;
	} port[FWE_PORTS_MAX];
};

static int fwe_rings_start(struct fwe_rings *rings, __u32 port, __u32 room)
{
	const struct rte_eth_conf conf = {};
	struct rte_ring **in = &rings->port[port].in, **out = &rings->port[port].out;
	char name[RTE_ETH_NAME_MAX_LEN];
	int id;

	snprintf(name, sizeof(name), "in%u", port);
	*in = rte_ring_create(name, room, SOCKET_ID_ANY, RING_F_EXACT_SZ);
	snprintf(name, sizeof(name), "out%u", port);
	*out = rte_ring_create(name, room, SOCKET_ID_ANY, RING_F_EXACT_SZ);
	if (!*in || !*out)
		return -1;
	snprintf(name, sizeof(name), "rings%u", port);
	id = rte_eth_from_rings(name, in, 1, out, 1, SOCKET_ID_ANY);
	if (id < 0 || rte_eth_dev_configure(id, 1, 1, &conf) ||
	    rte_eth_rx_queue_setup(id, 0, room, SOCKET_ID_ANY, NULL, rings->pool) ||
	    rte_eth_tx_queue_setup(id, 0, room, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(id))
		return -1;
	rings->port[port].id = id;
	return 0;
}

struct fwe_rings *fwe_rings_new(__u32 ports, __u32 room, __u32 frames)
{
	struct fwe_rings *rings = calloc(1, sizeof(*rings));

	if (!rings || ports > FWE_PORTS_MAX)
		return NULL;
	rings->pool = rte_pktmbuf_pool_create("rings", frames, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
					      SOCKET_ID_ANY);
	if (!rings->pool)
		return NULL;
	for (__u32 i = 0; i < ports; i++)
		if (fwe_rings_start(rings, i, room))
			return NULL;
	return rings;
}

__u16 fwe_rings_port(const struct fwe_rings *rings, __u32 port)
{
	return rings->port[port].id;
}

int fwe_rings_put(struct fwe_rings *rings, __u32 port, const void *frame, __u32 len, __u32 segment)
{
	struct rte_mbuf *first = NULL;
	__u32 at = 0;

	do {
		__u32 part = len - at < segment ? len - at : segment;
		struct rte_mbuf *next = rte_pktmbuf_alloc(rings->pool);
		char *to = next ? rte_pktmbuf_append(next, part) : NULL;

		if (to)
			memcpy(to, (const char *)frame + at, part);
		if (!to || (first && rte_pktmbuf_chain(first, next))) {
			rte_pktmbuf_free(next);
			rte_pktmbuf_free(first);
			return -1;
		}
		first = first ? first : next;
		at += part;
	} while (at < len);
	if (!rte_ring_enqueue(rings->port[port].in, first))
		return 0;
	rte_pktmbuf_free(first);
	return -1;
}

int fwe_rings_take(struct fwe_rings *rings, __u32 port, void *frame, __u32 size)
{
	struct rte_mbuf *next;
	__u32 len, whole = 0;

	if (rte_ring_dequeue(rings->port[port].out, (void **)&next))
		return -1;
	len = fwe_frame_read(next, frame, size);
	/* devices go by either */
	for (const struct rte_mbuf *part = next; part; part = part->next)
		whole += part->data_len;
	rte_pktmbuf_free(next);
	return whole == len ? (int)len : -2;
}

__u32 fwe_rings_missing(const struct fwe_rings *rings)
{
	return rte_mempool_in_use_count(rings->pool);
}
