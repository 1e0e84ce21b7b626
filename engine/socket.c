/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ports that stay the kernel's: see socket.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <rte_mbuf.h>

#include "engine.h"
#include "socket.h"

enum {
	/* A page, less XDP's headroom: more than a program that wants one piece is shown. */
	FWE_CHUNK = 4096,
	/* What waits while the worker is elsewhere; powers of two. */
	FWE_RX_ROOM = 2048,
	FWE_TX_ROOM = 1024,
	FWE_CHUNKS = FWE_RX_ROOM + FWE_TX_ROOM,
	/* The kernel frees the queues of a process that has ended a little later. */
	FWE_BUSY_TRIES = 200,
	FWE_BUSY_NS = 10000000,
};

/* A ring that is shared with the kernel. */
struct fwe_xring {
	void *map;
	size_t map_len;
	__u32 *producer;
	__u32 *consumer;
	__u32 *flags;
	void *at;
	__u32 mask;
	__u32 mine; /* as far as this end has come */
};

struct fwe_socket {
	int fd;
	char *chunks;
	struct fwe_xring fill;
	struct fwe_xring done;
	struct fwe_xring rx;
	struct fwe_xring tx;
	int zero_copy; /* the driver takes the chunks themselves */
	__u32 on_way;  /* frames that the kernel has to send */
	__u32 free_count;
	__u64 free[FWE_TX_ROOM]; /* chunks for frames to be sent */
};

struct fwe_sockets {
	struct rte_mempool *pool;
	__u64 no_room;
	__u32 count;
	__u32 next; /* queue that is looked at first */
	struct fwe_socket *queue[FW_SOCKETS_MAX];
};

static int fwe_xring_map(struct fwe_xring *ring, int fd, const struct xdp_ring_offset *offset,
			 __u32 room, size_t element, off_t which)
{
	ring->map_len = offset->desc + room * element;
	ring->map = mmap(NULL, ring->map_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
			 which);
	if (ring->map == MAP_FAILED) {
		ring->map = NULL;
		return -1;
	}
	ring->producer = ring->map + offset->producer;
	ring->consumer = ring->map + offset->consumer;
	ring->flags = ring->map + offset->flags;
	ring->at = ring->map + offset->desc;
	ring->mask = room - 1;
	return 0;
}

static void fwe_xring_unmap(struct fwe_xring *ring)
{
	if (ring->map)
		munmap(ring->map, ring->map_len);
}

static void fwe_socket_close(struct fwe_socket *socket)
{
	if (!socket)
		return;
	fwe_xring_unmap(&socket->fill);
	fwe_xring_unmap(&socket->done);
	fwe_xring_unmap(&socket->rx);
	fwe_xring_unmap(&socket->tx);
	if (socket->fd >= 0)
		close(socket->fd);
	if (socket->chunks)
		munmap(socket->chunks, (size_t)FWE_CHUNKS * FWE_CHUNK);
	free(socket);
}

static int fwe_socket_size(const struct fwe_socket *socket, int what, __u32 room)
{
	return setsockopt(socket->fd, SOL_XDP, what, &room, sizeof(room));
}

/* Its memory and rings. */
static int fwe_socket_prepare(struct fwe_socket *socket)
{
	struct xdp_umem_reg umem = {.len = (__u64)FWE_CHUNKS * FWE_CHUNK, .chunk_size = FWE_CHUNK};
	struct xdp_mmap_offsets offsets;
	socklen_t len = sizeof(offsets);
	void *chunks = mmap(NULL, umem.len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (chunks == MAP_FAILED)
		return -1;
	socket->chunks = chunks;
	umem.addr = (__u64)(uintptr_t)chunks;
	if (setsockopt(socket->fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)) ||
	    fwe_socket_size(socket, XDP_UMEM_FILL_RING, FWE_RX_ROOM) ||
	    fwe_socket_size(socket, XDP_UMEM_COMPLETION_RING, FWE_TX_ROOM) ||
	    fwe_socket_size(socket, XDP_RX_RING, FWE_RX_ROOM) ||
	    fwe_socket_size(socket, XDP_TX_RING, FWE_TX_ROOM) ||
	    getsockopt(socket->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &len))
		return -1;
	return fwe_xring_map(&socket->fill, socket->fd, &offsets.fr, FWE_RX_ROOM, sizeof(__u64),
			     XDP_UMEM_PGOFF_FILL_RING) ||
	       fwe_xring_map(&socket->done, socket->fd, &offsets.cr, FWE_TX_ROOM, sizeof(__u64),
			     XDP_UMEM_PGOFF_COMPLETION_RING) ||
	       fwe_xring_map(&socket->rx, socket->fd, &offsets.rx, FWE_RX_ROOM,
			     sizeof(struct xdp_desc), XDP_PGOFF_RX_RING) ||
	       fwe_xring_map(&socket->tx, socket->fd, &offsets.tx, FWE_TX_ROOM,
			     sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
}

/* One half of the chunks waits for what comes in, the other for what is to leave. */
static void fwe_socket_share_out(struct fwe_socket *socket)
{
	__u64 *chunk = socket->fill.at;

	for (__u32 i = 0; i < FWE_RX_ROOM; i++)
		chunk[i] = (__u64)i * FWE_CHUNK;
	socket->fill.mine = FWE_RX_ROOM;
	__atomic_store_n(socket->fill.producer, socket->fill.mine, __ATOMIC_RELEASE);
	for (__u32 i = 0; i < FWE_TX_ROOM; i++)
		socket->free[i] = (__u64)(FWE_RX_ROOM + i) * FWE_CHUNK;
	socket->free_count = FWE_TX_ROOM;
}

/* EINVAL: the port has no such queue. */
static int fwe_socket_bind(struct fwe_socket *socket, __u32 ifindex, __u32 queue)
{
	struct xdp_options options = {};
	socklen_t len = sizeof(options);
	const struct sockaddr_xdp address = {.sxdp_family = AF_XDP,
					     .sxdp_flags = XDP_USE_NEED_WAKEUP,
					     .sxdp_ifindex = ifindex,
					     .sxdp_queue_id = queue};

	for (int i = 0;; i++) {
		if (!bind(socket->fd, (const void *)&address, sizeof(address)))
			break;
		if (errno != EBUSY || i >= FWE_BUSY_TRIES)
			return -1;
		nanosleep(&(struct timespec){.tv_nsec = FWE_BUSY_NS}, NULL);
	}
	if (!getsockopt(socket->fd, SOL_XDP, XDP_OPTIONS, &options, &len))
		socket->zero_copy = !!(options.flags & XDP_OPTIONS_ZEROCOPY);
	return 0;
}

static struct fwe_socket *fwe_socket_open(__u32 ifindex, __u32 queue, const char **error)
{
	struct fwe_socket *opened = calloc(1, sizeof(*opened));
	int why;

	*error = "no memory";
	if (!opened)
		return NULL;
	opened->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	*error = "cannot open an AF_XDP socket";
	if (opened->fd >= 0) {
		*error = "cannot give an AF_XDP socket its memory";
		if (!fwe_socket_prepare(opened)) {
			fwe_socket_share_out(opened);
			*error = "cannot bind an AF_XDP socket to it";
			if (!fwe_socket_bind(opened, ifindex, queue))
				return opened;
		}
	}
	why = errno;
	fwe_socket_close(opened);
	errno = why;
	return NULL;
}

struct fwe_sockets *fwe_sockets_open(__u32 ifindex, struct rte_mempool *pool, const char **error)
{
	struct fwe_sockets *sockets = calloc(1, sizeof(*sockets));
	int why;

	*error = "no memory";
	if (!sockets)
		return NULL;
	sockets->pool = pool;
	for (; sockets->count < FW_SOCKETS_MAX; sockets->count++) {
		struct fwe_socket *opened = fwe_socket_open(ifindex, sockets->count, error);

		sockets->queue[sockets->count] = opened;
		if (!opened)
			break;
	}
	/* the kernel says so of the first queue that there is not */
	if (sockets->count && (errno == EINVAL || sockets->count == FW_SOCKETS_MAX))
		return sockets;
	why = errno;
	fwe_sockets_close(sockets);
	errno = why;
	return NULL;
}

void fwe_sockets_close(struct fwe_sockets *sockets)
{
	for (__u32 i = 0; i < sockets->count; i++)
		fwe_socket_close(sockets->queue[i]);
	free(sockets);
}

__u32 fwe_sockets_count(const struct fwe_sockets *sockets)
{
	return sockets->count;
}

int fwe_sockets_fd(const struct fwe_sockets *sockets, __u32 queue)
{
	return sockets->queue[queue]->fd;
}

struct fwe_socket_counts fwe_sockets_sum(const struct fwe_sockets *sockets)
{
	struct fwe_socket_counts sum = {
		.no_room = __atomic_load_n(&sockets->no_room, __ATOMIC_RELAXED),
	};

	for (__u32 i = 0; i < sockets->count; i++) {
		struct xdp_statistics stats = {};
		socklen_t len = sizeof(stats);

		/* it has no chunk left, or no place to say so */
		if (!getsockopt(sockets->queue[i]->fd, SOL_XDP, XDP_STATISTICS, &stats, &len))
			sum.lost += stats.rx_dropped + stats.rx_ring_full;
	}
	return sum;
}

/* A copy of so many octets, or NULL. */
static struct rte_mbuf *fwe_copy_in(struct rte_mempool *pool, const char *from, __u32 len)
{
	struct rte_mbuf *first = rte_pktmbuf_alloc(pool), *last = first;

	while (last) {
		__u32 part = rte_pktmbuf_tailroom(last);

		if (part > len)
			part = len;
		memcpy(rte_pktmbuf_mtod(last, char *), from, part);
		last->data_len = part;
		first->pkt_len += part;
		from += part;
		len -= part;
		if (!len)
			return first;
		last->next = rte_pktmbuf_alloc(pool);
		first->nb_segs++;
		last = last->next;
	}
	rte_pktmbuf_free(first);
	return NULL;
}

static __u32 fwe_socket_receive(struct fwe_sockets *sockets, struct fwe_socket *socket,
				struct rte_mbuf **frames, __u32 room)
{
	struct fwe_xring *rx = &socket->rx, *fill = &socket->fill;
	__u32 there = __atomic_load_n(rx->producer, __ATOMIC_ACQUIRE) - rx->mine, count = 0;
	const struct xdp_desc *frame = rx->at;
	__u64 *chunk = fill->at;

	if (there > room)
		there = room;
	for (__u32 i = 0; i < there; i++) {
		const struct xdp_desc *next = &frame[rx->mine++ & rx->mask];

		frames[count] = fwe_copy_in(sockets->pool, socket->chunks + next->addr, next->len);
		if (frames[count])
			count++;
		else
			__atomic_store_n(&sockets->no_room, sockets->no_room + 1, __ATOMIC_RELAXED);
		/* as many chunks go round as the ring has places: there is always one */
		chunk[fill->mine++ & fill->mask] = next->addr & -(__u64)FWE_CHUNK;
	}
	if (there) {
		__atomic_store_n(fill->producer, fill->mine, __ATOMIC_RELEASE);
		__atomic_store_n(rx->consumer, rx->mine, __ATOMIC_RELEASE);
	}
	if (__atomic_load_n(fill->flags, __ATOMIC_ACQUIRE) & XDP_RING_NEED_WAKEUP)
		(void)recvfrom(socket->fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
	return count;
}

/* Takes back what was sent, and has the kernel go on with the rest. */
static void fwe_socket_push(struct fwe_socket *socket)
{
	struct fwe_xring *done = &socket->done;
	__u32 sent = __atomic_load_n(done->producer, __ATOMIC_ACQUIRE) - done->mine;
	const __u64 *chunk = done->at;

	for (__u32 i = 0; i < sent; i++)
		socket->free[socket->free_count++] = chunk[done->mine++ & done->mask];
	if (sent)
		__atomic_store_n(done->consumer, done->mine, __ATOMIC_RELEASE);
	socket->on_way -= sent;
	if (__atomic_load_n(socket->tx.consumer, __ATOMIC_ACQUIRE) == socket->tx.mine)
		return;
	/* a copy is sent within the call */
	if (!socket->zero_copy ||
	    (__atomic_load_n(socket->tx.flags, __ATOMIC_ACQUIRE) & XDP_RING_NEED_WAKEUP))
		(void)sendto(socket->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

int fwe_sockets_unsent(const struct fwe_sockets *sockets)
{
	const struct fwe_xring *tx = &sockets->queue[0]->tx;

	return __atomic_load_n(tx->consumer, __ATOMIC_ACQUIRE) != tx->mine;
}

__u32 fwe_sockets_receive(struct fwe_sockets *sockets, struct rte_mbuf **frames, __u32 room)
{
	__u32 count = 0, first = sockets->next++;

	for (__u32 i = 0; i < sockets->count; i++) {
		struct fwe_socket *socket = sockets->queue[(first + i) % sockets->count];

		if (socket->on_way)
			fwe_socket_push(socket);
		if (count < room)
			count += fwe_socket_receive(sockets, socket, frames + count, room - count);
	}
	return count;
}

static int fwe_socket_put(struct fwe_socket *socket, const struct rte_mbuf *frame)
{
	struct xdp_desc *next = socket->tx.at;
	__u64 chunk;

	if (!socket->free_count || frame->pkt_len > FWE_CHUNK)
		return -1;
	chunk = socket->free[--socket->free_count];
	next[socket->tx.mine++ & socket->tx.mask] = (struct xdp_desc){
		.addr = chunk,
		.len = fwe_frame_read(frame, socket->chunks + chunk, FWE_CHUNK),
	};
	return 0;
}

/* By the first queue: one worker sends, and a driver has one for each CPU of its own. */
__u32 fwe_sockets_send(struct fwe_sockets *sockets, struct rte_mbuf **frames, __u32 count)
{
	struct fwe_socket *socket = sockets->queue[0];
	__u32 sent = 0;

	if (socket->free_count < count)
		fwe_socket_push(socket);
	while (sent < count && !fwe_socket_put(socket, frames[sent]))
		sent++;
	if (!sent)
		return 0;
	socket->on_way += sent;
	__atomic_store_n(socket->tx.producer, socket->tx.mine, __ATOMIC_RELEASE);
	rte_pktmbuf_free_bulk(frames, sent);
	fwe_socket_push(socket);
	return sent;
}
