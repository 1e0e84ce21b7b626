/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that drop ahead of the fast path, without what the fast path is made of. */
#ifndef FW_TARGET_AHEAD_H
#define FW_TARGET_AHEAD_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "bytes.h"
#include "../abi.h"

#define FW_MAP(name) name SEC(".maps")

struct fw_control fw_ctl SEC(".data.control") = {.epoch = 1};

/* An element of an array that is as long as the index may be large. */
#define FW_ELEMENT(name, type, array, bound)                                                       \
	static __always_inline type *name(__u64 index)                                             \
	{                                                                                          \
		type *base = (type *)(array);                                                      \
                                                                                                   \
		bound;                                                                             \
		/* hide the array's nominal size of one */                                         \
		asm volatile("" : "+r"(base), "+r"(index));                                        \
		__builtin_assume(base + index != NULL);                                            \
		return base + index;                                                               \
	}

static __always_inline __u32 fw_cpu_id(void)
{
	return bpf_get_smp_processor_id();
}

#endif
