/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the engine does not forward goes to the kernel by a TAP as it came, and what the kernel
 * sends there leaves as it is. A port that stays the kernel's has no TAP, sends by itself, and
 * takes frames back as its own. A thread of its own talks to the kernel, so that no worker makes a
 * system call for a frame; rings lie between, of one writer and one reader, but that several
 * workers share the ring up, or frames of a bucket that moves would overtake each other. A full
 * ring drops what misses the table, never what hits it, and what is of no flow before the rest.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "engine.h"
#include "schedule.h"
#include "socket.h"
#include "steer.h"
#include "../dataplane/target/bytes.h"
#include "../dataplane/nd.h"

enum {
	/* Frames on their way to the kernel, and from it. */
	FWE_UP_ROOM = 1024,
	/* Of these, what frames of no flow leave to others. */
	FWE_UP_KEPT = 256,
	FWE_DOWN_ROOM = 512,
	/* Frames of one turn at one TAP. */
	FWE_EXIT_BURST = 32,
	FWE_SEGMENTS_MAX = 8,
	/* Longest that an AF_XDP socket is given. */
	FWE_INJECTED_MAX = 4096,
};

/* Stages of reasons.def. */
enum fwe_stage {
	FWE_STAGE_FAST,
	FWE_STAGE_HAND,
	FWE_STAGE_PUNT,
	FWE_STAGE_PUNT_LIMIT,
	FWE_STAGE_DROP,
	FWE_STAGE_LEARN,
	FWE_STAGE_KEEP,
};

static const __u8 fwe_stage[FW_R_COUNT] = {
#define FW_REASON(name, stage, words) [FW_R_##name] = FWE_STAGE_##stage,
#include "../dataplane/reasons.def"
#undef FW_REASON
};

/* The exception path of one port. */
struct fwe_exit {
	struct rte_ring *up;
	struct rte_ring *down;
	struct rte_mempool *pool; /* for what comes from the kernel */
	struct fwe_waker *waker;  /* of whom that is for */
	__u32 ifindex;
	__u32 queues_count; /* 0: the port itself is the kernel's */
	int queues[FWE_TAP_QUEUES];
	_Atomic __u16 leaf[FWE_TAP_QUEUES];
	_Atomic __u32 queues_used;
	/* the thread's */
	uint64_t from_kernel __rte_cache_aligned;
	uint64_t not_taken; /* by the TAP, which is down or full, or by the kernel's port */
	/* the workers' */
	uint64_t no_room __rte_cache_aligned;
};

/* The thread's, of all ports. */
struct fwe_exits {
	unsigned int count;
	struct fwe_exit **exit;
	int wake;   /* eventfd(2) */
	int inject; /* program; -1: all have TAPs */
	_Atomic int asleep;
};

static void fwe_ring_drain(struct rte_ring *ring)
{
	void *frame;

	if (!ring)
		return;
	while (!rte_ring_sc_dequeue(ring, &frame))
		rte_pktmbuf_free(frame);
	rte_ring_free(ring);
}

static void fwe_exit_free(struct fwe_exit *exit)
{
	if (!exit)
		return;
	fwe_ring_drain(exit->up);
	fwe_ring_drain(exit->down);
	free(exit);
}

static struct fwe_exit *fwe_exit_new(unsigned int number, const struct fwe_face *face,
				     unsigned int workers, struct rte_mempool *pool)
{
	const unsigned int flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
	/* one that is preempted while it writes must not hold up the others */
	const unsigned int up = workers > 1 ? RING_F_MP_RTS_ENQ | RING_F_SC_DEQ : flags;
	struct fwe_exit *exit = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*exit));
	char name[RTE_RING_NAMESIZE];

	if (!exit)
		return NULL;
	memset(exit, 0, sizeof(*exit));
	exit->pool = pool;
	exit->waker = face->waker;
	exit->ifindex = face->ifindex;
	exit->queues_count = face->queues_count;
	exit->queues_used = !!face->queues_count;
	if (face->queues_count)
		memcpy(exit->queues, face->queues, face->queues_count * sizeof(*exit->queues));
	snprintf(name, sizeof(name), "fwe_up_%u", number);
	exit->up = rte_ring_create(name, FWE_UP_ROOM, SOCKET_ID_ANY, up);
	snprintf(name, sizeof(name), "fwe_down_%u", number);
	exit->down = rte_ring_create(name, FWE_DOWN_ROOM, SOCKET_ID_ANY, flags);
	if (exit->up && exit->down)
		return exit;
	fwe_exit_free(exit);
	return NULL;
}

/* False with errno. */
static int fwe_exits_prepare(struct fwe_exits *exits, const struct fwe_face *faces,
			     unsigned int count)
{
	for (unsigned int i = 0; i < count && exits->inject < 0; i++) {
		if (faces[i].queues_count)
			continue;
		exits->inject = fwe_inject_open();
		if (exits->inject < 0)
			return 0;
	}
	return 1;
}

struct fwe_exits *fwe_exits_new(const struct fwe_face *faces, unsigned int count,
				unsigned int workers, struct rte_mempool *pool)
{
	struct fwe_exits *exits = calloc(1, sizeof(*exits));

	if (!exits)
		return NULL;
	exits->inject = -1;
	exits->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	exits->exit = calloc(count, sizeof(*exits->exit));
	if (exits->wake < 0 || !exits->exit || !fwe_exits_prepare(exits, faces, count)) {
		fwe_exits_free(exits);
		return NULL;
	}
	for (; exits->count < count; exits->count++) {
		struct fwe_exit *exit =
			fwe_exit_new(exits->count, &faces[exits->count], workers, pool);

		if (!exit) {
			fwe_exits_free(exits);
			return NULL;
		}
		exits->exit[exits->count] = exit;
	}
	return exits;
}

void fwe_exits_free(struct fwe_exits *exits)
{
	for (unsigned int i = 0; i < exits->count; i++)
		fwe_exit_free(exits->exit[i]);
	free(exits->exit);
	if (exits->wake >= 0)
		close(exits->wake);
	if (exits->inject >= 0)
		close(exits->inject);
	free(exits);
}

/* After frames were given: the thread may sleep. */
static void fwe_exits_wake(struct fwe_exits *exits)
{
	uint64_t one = 1;

	/* what was given is seen by whoever is about to sleep, or it is seen here that it does */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&exits->asleep, memory_order_relaxed) &&
	    atomic_exchange_explicit(&exits->asleep, 0, memory_order_relaxed))
		(void)!write(exits->wake, &one, sizeof(one));
}

static int fwe_tap_write(const struct rte_mbuf *frame, int tap)
{
	struct iovec part[FWE_SEGMENTS_MAX];
	int parts = 0;

	for (; frame && parts < FWE_SEGMENTS_MAX; frame = frame->next)
		part[parts++] = (struct iovec){rte_pktmbuf_mtod(frame, void *), frame->data_len};
	if (frame)
		return -1;
	return writev(tap, part, parts) < 0 ? -1 : 0;
}

/* To the port itself. */
static int fwe_port_give(const struct rte_mbuf *frame, int program, __u32 ifindex)
{
	char whole[FWE_INJECTED_MAX];

	if (frame->pkt_len > sizeof(whole))
		return -1;
	return fwe_inject(program, ifindex, whole, fwe_frame_read(frame, whole, sizeof(whole)));
}

/* Frames that went up. */
static unsigned int fwe_exit_up(struct fwe_exit *exit, int inject)
{
	struct rte_mbuf *frames[FWE_EXIT_BURST];
	unsigned int count =
		rte_ring_sc_dequeue_burst(exit->up, (void **)frames, FWE_EXIT_BURST, NULL);

	for (unsigned int i = 0; i < count; i++) {
		int failed = exit->queues_count ? fwe_tap_write(frames[i], exit->queues[0])
						: fwe_port_give(frames[i], inject, exit->ifindex);

		if (failed)
			exit->not_taken++;
	}
	rte_pktmbuf_free_bulk(frames, count);
	return count;
}

/* Frames that came down by a queue; negative: the TAP is gone. What finds no room stays in the
 * kernel. */
static int fwe_queue_down(struct fwe_exit *exit, __u32 queue)
{
	__u16 leaf = atomic_load_explicit(&exit->leaf[queue], memory_order_relaxed);
	unsigned int room = rte_ring_free_count(exit->down);
	int count = 0;

	if (room > FWE_EXIT_BURST)
		room = FWE_EXIT_BURST;
	for (unsigned int tried = 0; tried < room; tried++) {
		struct rte_mbuf *frame = rte_pktmbuf_alloc(exit->pool);
		struct iovec parts[2];
		ssize_t len;
		char beyond;

		if (!frame)
			break;
		parts[0] = (struct iovec){rte_pktmbuf_mtod(frame, void *),
					  rte_pktmbuf_tailroom(frame)};
		parts[1] = (struct iovec){&beyond, 1};
		len = readv(exit->queues[queue], parts, 2);
		if (len <= 0) {
			rte_pktmbuf_free(frame);
			if (len < 0 && (errno == EBADFD || errno == EBADF))
				return -1;
			break;
		}
		/* the TAP's MTU was raised above what the port can send */
		if ((size_t)len > parts[0].iov_len) {
			rte_pktmbuf_free(frame);
			exit->not_taken++;
			continue;
		}
		frame->data_len = len;
		frame->pkt_len = len;
		frame->hash.usr = leaf;
		(void)rte_ring_sp_enqueue(exit->down, frame);
		count++;
	}
	exit->from_kernel += count;
	if (count)
		fwe_wake(exit->waker);
	return count;
}

static int fwe_exit_down(struct fwe_exit *exit)
{
	__u32 used = atomic_load_explicit(&exit->queues_used, memory_order_acquire);
	int all = 0;

	for (__u32 queue = 0; queue < used; queue++) {
		int count = fwe_queue_down(exit, queue);

		if (count < 0)
			return -1;
		all += count;
	}
	return all;
}

void fwe_exits_set_leaves(struct fwe_exits *exits, __u32 port, const __u16 *leaves, __u32 count)
{
	struct fwe_exit *exit = exits->exit[port];

	if (count > exit->queues_count)
		count = exit->queues_count;
	for (__u32 queue = 0; queue < count; queue++)
		atomic_store_explicit(&exit->leaf[queue], leaves[queue], memory_order_relaxed);
	/* what lies in one that is no longer named is not forgotten there */
	if (count > exit->queues_used)
		atomic_store_explicit(&exit->queues_used, count, memory_order_release);
	fwe_exits_wake(exits);
}

/* Sleeps until a TAP or a worker has something, or for `timeout_ms`. */
static void fwe_exits_sleep(struct fwe_exits *exits, int timeout_ms)
{
	struct pollfd fds[exits->count * FWE_TAP_QUEUES + 1];
	unsigned int all = 0;
	uint64_t times;

	atomic_store_explicit(&exits->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int i = 0; i < exits->count; i++) {
		struct fwe_exit *exit = exits->exit[i];

		if (rte_ring_count(exit->up))
			timeout_ms = 0;
		/* one whose ring is full is looked at again when the worker has made room */
		short events = rte_ring_full(exit->down) ? 0 : POLLIN;

		for (__u32 queue = 0; queue < exit->queues_used; queue++)
			fds[all++] = (struct pollfd){.fd = exit->queues[queue], .events = events};
		if (!events && timeout_ms > 1)
			timeout_ms = 1;
	}
	fds[all] = (struct pollfd){.fd = exits->wake, .events = POLLIN};
	if (poll(fds, all + 1, timeout_ms) > 0 && fds[all].revents)
		(void)!read(exits->wake, &times, sizeof(times));
	atomic_store_explicit(&exits->asleep, 0, memory_order_relaxed);
}

int fwe_exits_turn(struct fwe_exits *exits, int timeout_ms)
{
	unsigned int moved = 0;

	for (unsigned int i = 0; i < exits->count; i++) {
		int down = fwe_exit_down(exits->exit[i]);

		if (down < 0)
			return i + 1;
		moved += down + fwe_exit_up(exits->exit[i], exits->inject);
	}
	if (!moved)
		fwe_exits_sleep(exits, timeout_ms);
	return 0;
}

struct fwe_exits_counts fwe_exits_sum(const struct fwe_exits *exits)
{
	struct fwe_exits_counts sum = {};

	for (unsigned int i = 0; i < exits->count; i++) {
		const struct fwe_exit *exit = exits->exit[i];

		sum.from_kernel += __atomic_load_n(&exit->from_kernel, __ATOMIC_RELAXED);
		sum.not_taken += __atomic_load_n(&exit->not_taken, __ATOMIC_RELAXED);
		sum.no_room += __atomic_load_n(&exit->no_room, __ATOMIC_RELAXED);
	}
	return sum;
}

__u32 fwe_exits_take(struct fwe_exits *exits, __u32 port, struct rte_mbuf **frames, __u32 room)
{
	return rte_ring_sc_dequeue_burst(exits->exit[port]->up, (void **)frames, room, NULL);
}

/* Neighbour discovery, with whatever tags it came. */
static int fwe_is_nd(const struct rte_mbuf *frame)
{
	const void *data = rte_pktmbuf_mtod(frame, const void *), *end = data + frame->data_len;
	struct fw_pkt p = {.family = FW_AF_INET6};
	const struct fw_ip6 *ip;
	__u16 type_be;

	for (; data + FW_ETH_LEN + FW_IP6_LEN <= end; data += FW_TAG_LEN) {
		type_be = *(const fw_u16_any *)(data + FW_ETH_MAC2);
		if (type_be != fw_htons(FW_ETH_8021Q) && type_be != fw_htons(FW_ETH_8021AD))
			break;
	}
	if (data + FW_ETH_LEN + FW_IP6_LEN > end || type_be != fw_htons(FW_ETH_IP6))
		return 0;
	ip = data + FW_ETH_LEN;
	p.proto = ip->next_header;
	p.ttl = ip->hop_limit;
	return fw_is_nd(data, end, &p);
}

/* Of no flow, and nothing without which a link ends. */
static int fwe_is_limited(const struct rte_mbuf *frame, enum fw_reason reason)
{
	return fwe_stage[reason] == FWE_STAGE_PUNT_LIMIT &&
	       !(reason == FW_R_ICMP && fwe_is_nd(frame));
}

/*
 * Frames for which there is room; the others are freed. What keeps flows and links alive, such as a
 * packet by which the kernel is asked, ARP or neighbour discovery, finds room in a flood of misses.
 */
static __u32 fwe_exit_admit(const struct fwe_exit *exit, struct rte_mbuf **frames,
			    const __u8 *reasons, __u32 count)
{
	__u32 room = rte_ring_free_count(exit->up), kept = 0;

	if (fw_likely(room >= FWE_UP_KEPT + count))
		return count;
	room = room > FWE_UP_KEPT ? room - FWE_UP_KEPT : 0;
	for (__u32 i = 0; i < count; i++) {
		int limited = fwe_is_limited(frames[i], reasons[i]);

		if (limited && !room) {
			rte_pktmbuf_free(frames[i]);
			continue;
		}
		room -= limited;
		frames[kept++] = frames[i];
	}
	return kept;
}

void fwe_exits_exception(void *context, const struct fwe_port *port, struct rte_mbuf **frames,
			 const __u8 *reasons, __u32 count)
{
	struct fwe_exits *exits = context;
	struct fwe_exit *exit = exits->exit[port->number];
	__u32 admitted = fwe_exit_admit(exit, frames, reasons, count);
	__u32 given = rte_ring_enqueue_burst(exit->up, (void **)frames, admitted, NULL);

	if (fw_unlikely(given < count))
		__atomic_fetch_add(&exit->no_room, count - given, __ATOMIC_RELAXED);
	if (given < admitted)
		rte_pktmbuf_free_bulk(frames + given, admitted - given);
	/* where there was no room the thread has been woken before, and does not sleep yet */
	if (given)
		fwe_exits_wake(exits);
}

__u32 fwe_exits_source(void *context, const struct fwe_port *port, struct rte_mbuf **frames,
		       __u32 room)
{
	struct fwe_exits *exits = context;

	return rte_ring_sc_dequeue_burst(exits->exit[port->number]->down, (void **)frames, room,
					 NULL);
}

int fwe_thread_register(void)
{
	return rte_thread_register() ? -rte_errno : 0;
}

void fwe_thread_unregister(void)
{
	rte_thread_unregister();
}
