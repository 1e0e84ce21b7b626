/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A core that sleeps: see sleep.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>

#include "engine.h"
#include "sleep.h"
#include "socket.h"

enum {
	/* The nap gets twice as long with each, so often. */
	FWE_NAP_DOUBLES = 10,
	FWE_NAP_MAX_US = 1000,
	/* What is asked of the kernel by default is as coarse as the shortest naps are long. */
	FWE_SLACK_NS = 1000,
	FWE_EVENTS = 16,
};

/* An input and how it wakes the core. */
struct fwe_watched {
	struct fwe_input input;
	__u32 read;
	__u32 nap_us;
	int fd;    /* of the interrupt, as the epoll instance has it; -1: it has not */
	int armed; /* the interrupt */
};

struct fwe_sleeper {
	struct fwe_waker *waker;
	__u32 us_max;
	__u32 count;
	int epoll; /* has the interrupts; -1: there are none */
	__u32 fds_count;
	struct pollfd *fds;
	struct fwe_watched watched[];
};

struct fwe_waker *fwe_waker_new(void)
{
	struct fwe_waker *waker = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_CACHE_LINE_SIZE);

	if (!waker)
		return NULL;
	waker->asleep = 0;
	waker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (waker->fd >= 0)
		return waker;
	free(waker);
	return NULL;
}

void fwe_waker_free(struct fwe_waker *waker)
{
	if (!waker)
		return;
	close(waker->fd);
	free(waker);
}

void fwe_waker_ring(struct fwe_waker *waker)
{
	__u64 one = 1;

	if (__atomic_exchange_n(&waker->asleep, 0, __ATOMIC_RELAXED))
		(void)!write(waker->fd, &one, sizeof(one));
}

__u32 fwe_nap_us(__u32 places, __u32 mbps)
{
	__u64 us = mbps ? (__u64)places * FWE_WIRE_MIN * 8 / mbps / 2 : 0;

	return us > FWE_NAP_MAX_US ? FWE_NAP_MAX_US : us ? us : 1;
}

struct fwe_sleeper *fwe_sleeper_new(struct fwe_waker *waker, __u32 us_max,
				    const struct fwe_input *inputs, __u32 count)
{
	struct fwe_sleeper *sleeper =
		calloc(1, sizeof(*sleeper) + count * sizeof(sleeper->watched[0]));
	__u32 fds = 2, interrupts = 0;

	if (!sleeper)
		return NULL;
	sleeper->waker = waker;
	sleeper->us_max = us_max;
	sleeper->count = count;
	sleeper->epoll = -1;
	for (__u32 i = 0; i < count; i++) {
		sleeper->watched[i] = (struct fwe_watched){.input = inputs[i], .read = 1, .fd = -1};
		if (inputs[i].sockets)
			fds += fwe_sockets_count(inputs[i].sockets);
		interrupts += inputs[i].wakes;
	}
	sleeper->fds = calloc(fds, sizeof(*sleeper->fds));
	if (interrupts)
		sleeper->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sleeper->fds && (sleeper->epoll >= 0 || !interrupts))
		return sleeper;
	fwe_sleeper_free(sleeper);
	return NULL;
}

static void fwe_forget(struct fwe_sleeper *sleeper, struct fwe_watched *watched)
{
	if (watched->fd < 0)
		return;
	(void)rte_eth_dev_rx_intr_ctl_q(watched->input.port, watched->input.queue, sleeper->epoll,
					RTE_INTR_EVENT_DEL, NULL);
	watched->fd = -1;
}

void fwe_sleeper_free(struct fwe_sleeper *sleeper)
{
	if (!sleeper)
		return;
	for (__u32 i = 0; i < sleeper->count; i++)
		fwe_forget(sleeper, &sleeper->watched[i]);
	if (sleeper->epoll >= 0)
		close(sleeper->epoll);
	free(sleeper->fds);
	free(sleeper);
}

void fwe_sleeper_enter(void)
{
	(void)prctl(PR_SET_TIMERSLACK, FWE_SLACK_NS, 0, 0, 0);
}

void fwe_sleeper_set_read(struct fwe_sleeper *sleeper, __u32 input, __u32 read)
{
	sleeper->watched[input].read = read;
}

/* How long the device's ring lets the core be away. */
static __u32 fwe_nap_at(const struct fwe_input *input)
{
	struct rte_eth_rxq_info queue = {};
	struct rte_eth_dev_info info = {};
	struct rte_eth_link link = {};

	if (rte_eth_dev_info_get(input->port, &info) || !info.device ||
	    strcmp(rte_bus_name(rte_dev_bus(info.device)), "pci") ||
	    rte_eth_rx_queue_info_get(input->port, input->queue, &queue))
		return FWE_NAP_VIRTUAL_US;
	/* without a link nothing comes; the core looks again before one is up */
	if (rte_eth_link_get_nowait(input->port, &link) || !link.link_speed ||
	    link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN)
		return FWE_NAP_VIRTUAL_US;
	return fwe_nap_us(queue.nb_desc, link.link_speed);
}

/* True if the input wakes the core from now on. */
static int fwe_arm(struct fwe_sleeper *sleeper, struct fwe_watched *watched)
{
	const struct fwe_input *input = &watched->input;
	int fd, rc;

	if (!input->wakes)
		return 0;
	/* another peer of a virtual device has another one */
	fd = rte_eth_dev_rx_intr_ctl_q_get_fd(input->port, input->queue);
	if (fd != watched->fd) {
		fwe_forget(sleeper, watched);
		if (fd < 0 || rte_eth_dev_rx_intr_ctl_q(input->port, input->queue, sleeper->epoll,
							RTE_INTR_EVENT_ADD, NULL))
			return 0;
		watched->fd = fd;
	}
	rc = rte_eth_dev_rx_intr_enable(input->port, input->queue);
	watched->armed = !rc;
	/* net_tap's are always on */
	return !rc || rc == -ENOTSUP;
}

static void fwe_disarm(struct fwe_sleeper *sleeper)
{
	struct rte_epoll_event events[FWE_EVENTS];

	for (__u32 i = 0; i < sleeper->count; i++) {
		struct fwe_watched *watched = &sleeper->watched[i];

		if (watched->armed)
			(void)rte_eth_dev_rx_intr_disable(watched->input.port,
							  watched->input.queue);
		watched->armed = 0;
	}
	/* reads what the interrupts have written */
	if (sleeper->epoll >= 0)
		while (rte_epoll_wait(sleeper->epoll, events, FWE_EVENTS, 0) == FWE_EVENTS)
			;
}

static void fwe_poll_for(struct fwe_sleeper *sleeper, int fd)
{
	sleeper->fds[sleeper->fds_count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* All that can wake the core does from now on; how long it may sleep, by what cannot. */
static __u32 fwe_watch_all(struct fwe_sleeper *sleeper, __u32 idle)
{
	__u32 over = idle - FWE_IDLE_TURNS, us = sleeper->us_max, nap_us;

	nap_us = over < FWE_NAP_DOUBLES ? 1u << over : FWE_NAP_MAX_US;
	sleeper->fds_count = 0;
	if (sleeper->waker)
		fwe_poll_for(sleeper, sleeper->waker->fd);
	else if (us > nap_us)
		us = nap_us;
	if (sleeper->epoll >= 0)
		fwe_poll_for(sleeper, sleeper->epoll);
	for (__u32 i = 0; i < sleeper->count; i++) {
		struct fwe_watched *watched = &sleeper->watched[i];
		struct fwe_sockets *sockets = watched->input.sockets;

		if (!watched->read) {
			fwe_forget(sleeper, watched);
			continue;
		}
		for (__u32 queue = 0; sockets && queue < fwe_sockets_count(sockets); queue++)
			fwe_poll_for(sleeper, fwe_sockets_fd(sockets, queue));
		if (sockets ? !fwe_sockets_unsent(sockets) : fwe_arm(sleeper, watched))
			continue;
		/* links come and go while nothing does */
		if (sockets)
			watched->nap_us = FWE_NAP_VIRTUAL_US;
		else if (!watched->nap_us || over % FWE_IDLE_TURNS == 1)
			watched->nap_us = fwe_nap_at(&watched->input);
		if (nap_us > watched->nap_us)
			nap_us = watched->nap_us;
		if (us > nap_us)
			us = nap_us;
	}
	return us;
}

static void fwe_set_asleep(struct fwe_sleeper *sleeper, __u32 asleep)
{
	if (sleeper->waker)
		__atomic_store_n(&sleeper->waker->asleep, asleep, __ATOMIC_RELAXED);
	/* as fwe_wake() */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

__u32 fwe_sleep(struct fwe_sleeper *sleeper, struct fwe_slept *slept, __u32 idle,
		__u32 (*turn)(void *core), void *core)
{
	__u32 us = fwe_watch_all(sleeper, idle);
	const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	__u64 since, times;
	int ready;

	fwe_set_asleep(sleeper, 1);
	/* what came before it was watched wakes nobody */
	if (turn(core)) {
		fwe_set_asleep(sleeper, 0);
		fwe_disarm(sleeper);
		return 0;
	}
	since = rte_rdtsc();
	ready = ppoll(sleeper->fds, sleeper->fds_count, &time, NULL);
	slept->cycles += rte_rdtsc() - since;
	slept->times++;
	slept->woken += ready > 0;
	fwe_set_asleep(sleeper, 0);
	if (ready > 0 && sleeper->waker && sleeper->fds[0].revents)
		(void)!read(sleeper->waker->fd, &times, sizeof(times));
	fwe_disarm(sleeper);
	return ready > 0 ? 0 : idle + 1;
}
