/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ports whose queues are rings of this process, for tests: frames go in and come out as octets. */
#ifndef FWE_RINGS_H
#define FWE_RINGS_H

#include "engine.h"

struct fwe_rings;

/* So many ports, each with a ring for `room` frames either way, and `frames` buffers. Once in a
 * process; NULL if memory is short. */
struct fwe_rings *fwe_rings_new(__u32 ports, __u32 room, __u32 frames);
/* DPDK's number of a port. */
__u16 fwe_rings_port(const struct fwe_rings *rings, __u32 port);
/* A frame comes in, in segments of so many octets; -1 if there is no room. */
int fwe_rings_put(struct fwe_rings *rings, __u32 port, const void *frame, __u32 len, __u32 segment);
/* The next frame that left; its length, or -1; -2: its segments are not as long as it says. */
int fwe_rings_take(struct fwe_rings *rings, __u32 port, void *frame, __u32 size);
/* Buffers that are not in the pool. */
__u32 fwe_rings_missing(const struct fwe_rings *rings);

#endif
