/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* DPDK's start and end. */
#include <errno.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_version.h>

#include "engine.h"

int fwe_eal_start(int count, char **arguments)
{
	return rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
}

void fwe_eal_end(void)
{
	(void)rte_eal_cleanup();
}

const char *fwe_dpdk_version(void)
{
	return rte_version();
}

int fwe_worker_launch(struct fwe_worker *worker)
{
	unsigned int lcore = rte_get_next_lcore(-1, 1, 0);

	return lcore < RTE_MAX_LCORE ? rte_eal_remote_launch(fwe_worker_run, worker, lcore)
				     : -ENODEV;
}

void fwe_worker_wait(struct fwe_worker *worker)
{
	(void)worker; /* there is one */
	rte_eal_mp_wait_lcore();
}

__u64 fwe_tsc_hz(void)
{
	return rte_get_tsc_hz();
}
