/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the engine's program calls of the part that runs on DPDK. */
#ifndef FW_ENGINE_H
#define FW_ENGINE_H

/* EAL arguments, the program's name first; 0 or a negative errno. Once in a process. */
int fwe_eal_start(int count, char **arguments);
void fwe_eal_end(void);
/* Such as "DPDK 22.11.11". */
const char *fwe_dpdk_version(void);

#endif
