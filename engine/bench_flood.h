/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The bench's flood: frames of no flow, which the worker hands out beside those that hit. */
#ifndef FWE_BENCH_FLOOD_H
#define FWE_BENCH_FLOOD_H

#include "bench_rings.h"

/* So many come in now, unless they are held; how many found room. */
__u32 fwe_flood(const struct fwe_bench *bench, __u32 count, __u32 held);
/* The kernel takes so many of those that the worker has handed out, FWE_BENCH_BURST at most. */
void fwe_flood_take(const struct fwe_bench *bench, __u32 count);
/* Takes all. */
void fwe_flood_end(const struct fwe_bench *bench);

#endif
