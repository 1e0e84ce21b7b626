/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ports and the memory of their frames. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include "engine.h"

enum {
	FWE_POOL_CACHE = 256,
	FWE_DESCRIPTORS = 1024,
};

/*
 * Where devices go by virtual addresses, or there are no huge pages to go by others, buffers lie
 * side by side: net_af_xdp maps as much memory as they have octets, and loses what lies beyond.
 */
static unsigned int fwe_pool_flags(void)
{
	int by_address = rte_eal_iova_mode() == RTE_IOVA_VA || !rte_eal_has_hugepages();

	return by_address ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
}

/* Such a pool tells nobody where its buffers are: by virtual addresses that is known, and a card
 * has to. */
static void fwe_frame_init(struct rte_mempool *pool, void *argument, void *frame,
			   unsigned int number)
{
	if (rte_eal_iova_mode() == RTE_IOVA_VA)
		rte_mempool_get_header(frame)->iova = (uintptr_t)frame;
	rte_pktmbuf_init(pool, argument, frame, number);
}

struct rte_mempool *fwe_pool_new(uint32_t frames, uint16_t room, int numa)
{
	static uint32_t made;
	char name[RTE_MEMPOOL_NAMESIZE];
	struct rte_pktmbuf_pool_private about = {
		.mbuf_data_room_size = RTE_PKTMBUF_HEADROOM + room,
	};
	/* which is a part of a pool, and not all of a small one */
	unsigned int cache = frames >= 4 * FWE_POOL_CACHE ? FWE_POOL_CACHE : 0;
	struct rte_mempool *pool;

	snprintf(name, sizeof(name), "fwe_frames%u",
		 __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED));
	pool = rte_mempool_create_empty(name, frames,
					sizeof(struct rte_mbuf) + about.mbuf_data_room_size, cache,
					sizeof(about), numa, fwe_pool_flags());
	if (!pool)
		return NULL;
	/* a thread that is preempted in the pool must not hold up a worker */
	if (rte_mempool_set_ops_byname(pool, "ring_mt_rts", NULL))
		goto failed;
	rte_pktmbuf_pool_init(pool, &about);
	if (rte_mempool_populate_default(pool) < 0)
		goto failed;
	rte_mempool_obj_iter(pool, fwe_frame_init, NULL);
	return pool;
failed:
	rte_mempool_free(pool);
	return NULL;
}

void fwe_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

uint32_t fwe_pool_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

int fwe_port_find(const char *device)
{
	uint16_t port;

	return rte_eth_dev_get_port_by_name(device, &port) ? -ENODEV : port;
}

int fwe_port_queues(uint16_t port, uint16_t *rx, uint16_t *tx)
{
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc)
		return rc;
	*rx = info.max_rx_queues;
	*tx = info.max_tx_queues;
	return 0;
}

static int fwe_port_configure(uint16_t port, const struct fwe_port_config *config,
			      uint16_t interrupts)
{
	const uint64_t wanted = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP;
	struct rte_eth_conf conf = {};
	struct rte_eth_dev_info info;
	int rc = rte_eth_dev_info_get(port, &info);

	if (rc)
		return rc;
	if (config->mtu)
		conf.rxmode.mtu = config->mtu;
	/* a frame longer than a buffer has several, which a driver may only send if it was told */
	if (config->mtu > RTE_ETHER_MTU)
		conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	conf.intr_conf.rxq = interrupts;
	if (info.max_rx_queues < config->rx_queues || info.max_tx_queues < config->tx_queues)
		return -ENODEV;
	/* a virtual device that says no way to spread flows has one of its own */
	if (config->rx_queues > 1 && info.flow_type_rss_offloads & wanted) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & wanted;
	}
	return rte_eth_dev_configure(port, config->rx_queues, config->tx_queues, &conf);
}

static int fwe_port_set_up(uint16_t port, const struct fwe_port_config *config,
			   struct rte_mempool *pool)
{
	uint16_t rx = FWE_DESCRIPTORS, tx = FWE_DESCRIPTORS;
	int socket = rte_eth_dev_socket_id(port);
	int rc = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);

	for (uint16_t queue = 0; !rc && queue < config->rx_queues; queue++)
		rc = rte_eth_rx_queue_setup(port, queue, rx, socket, NULL, pool);
	for (uint16_t queue = 0; !rc && queue < config->tx_queues; queue++)
		rc = rte_eth_tx_queue_setup(port, queue, tx, socket, NULL);
	return rc;
}

static int fwe_port_begin(uint16_t port, const struct fwe_port_config *config, uint16_t interrupts,
			  struct rte_mempool *pool)
{
	int rc = fwe_port_configure(port, config, interrupts);

	if (!rc)
		rc = fwe_port_set_up(port, config, pool);
	if (!rc)
		rc = rte_eth_dev_start(port);
	return rc;
}

int fwe_port_start(uint16_t port, const struct fwe_port_config *config, struct rte_mempool *pool)
{
	struct rte_ether_addr address;
	int rc = fwe_port_begin(port, config, config->interrupts, pool);

	/* a driver that has none may say so here, or where it starts */
	if (rc && config->interrupts)
		rc = fwe_port_begin(port, config, 0, pool);
	if (rc)
		return rc;
	/* beside its own: a virtual device's may be that of somebody else's interface */
	if (config->mac) {
		memcpy(address.addr_bytes, config->mac, sizeof(address.addr_bytes));
		(void)rte_eth_dev_mac_addr_add(port, &address, 0);
	}
	/*
	 * Addresses are the kernel's: of bridges, macvlans, VRRP, and other ones of the TAP. It
	 * drops what is for none of them. A device that does not take all takes what it can.
	 */
	(void)rte_eth_allmulticast_enable(port);
	(void)rte_eth_promiscuous_enable(port);
	return 0;
}

static int fwe_queue_wakes(uint16_t port, uint16_t queue)
{
	struct rte_eth_dev_info info;
	int rc;

	if (rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue) < 0)
		return 0;
	rc = rte_eth_dev_rx_intr_enable(port, queue);
	if (!rc)
		(void)rte_eth_dev_rx_intr_disable(port, queue);
	/* its descriptor is the kernel's own, which tells of frames always */
	return !rc || (rc == -ENOTSUP && !rte_eth_dev_info_get(port, &info) &&
		       !strcmp(info.driver_name, "net_tap"));
}

int fwe_port_wakes(uint16_t port, uint16_t rx_queues)
{
	int type = rte_log_register("lib.ethdev"), level = rte_log_get_level(type), wakes = 1;

	/* that a device has none is no error */
	rte_log_set_level(type, RTE_LOG_CRIT);
	for (uint16_t queue = 0; queue < rx_queues; queue++)
		wakes &= fwe_queue_wakes(port, queue);
	rte_log_set_level(type, level);
	return wakes;
}

void fwe_port_stop(uint16_t port)
{
	(void)rte_eth_dev_stop(port);
	(void)rte_eth_dev_close(port);
}

int fwe_port_mac(uint16_t port, uint8_t *mac)
{
	struct rte_ether_addr address;
	int rc = rte_eth_macaddr_get(port, &address);

	if (!rc)
		memcpy(mac, address.addr_bytes, sizeof(address.addr_bytes));
	return rc;
}

int fwe_port_mtu(uint16_t port)
{
	uint16_t mtu;
	int rc = rte_eth_dev_get_mtu(port, &mtu);

	return rc ? rc : mtu;
}

int fwe_port_has_link(uint16_t port)
{
	struct rte_eth_link link;

	return !rte_eth_link_get_nowait(port, &link) && link.link_status == RTE_ETH_LINK_UP;
}
