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

int fwe_lcore_launch(int (*run)(void *), void *argument, __u32 lcore)
{
	return rte_lcore_is_enabled(lcore) ? rte_eal_remote_launch(run, argument, lcore) : -ENODEV;
}

void fwe_lcore_wait(__u32 lcore)
{
	(void)rte_eal_wait_lcore(lcore);
}

__u64 fwe_tsc_hz(void)
{
	return rte_get_tsc_hz();
}
