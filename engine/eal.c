/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* DPDK's start and end. */
#include <rte_eal.h>
#include <rte_errno.h>
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
