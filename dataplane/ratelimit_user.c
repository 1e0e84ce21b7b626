/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits of sources as a library, for tests: each thread has its own, and sets the clock. */
#include <stddef.h>
#include <string.h>
#include "target/bytes.h"
#include "abi.h"

enum { FW_LINES_LOG2 = 8 };

static const struct fw_control fw_ctl = {.on = 1, .deadline_tick = 1U << 30};
static const struct fw_ratelimit_config fw_ratelimit_cfg = {
	.hash_key = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9},
	.shift = 64 - FW_LINES_LOG2,
};
static _Thread_local struct fw_ratelimit fw_ratelimit;
static _Thread_local struct fw_ratelimit_here fw_ratelimit_here;
static _Thread_local struct fw_ratelimit_bucket buckets[FW_RATELIMIT_WAYS << FW_LINES_LOG2];
static _Thread_local struct fw_ratelimit_count counts[FW_RATELIMITS];
static _Thread_local __u64 now_tick;

static __always_inline __u32 fw_cpu_id(void)
{
	return 0;
}

static __always_inline __u64 fw_now_long(void)
{
	return now_tick;
}

static __always_inline struct fw_ratelimit_bucket *fw_ratelimit_bucket_get(__u64 index)
{
	return &buckets[index];
}

static __always_inline struct fw_ratelimit_count *fw_ratelimit_count_get(__u64 index)
{
	return &counts[index];
}

#include "ratelimit.h"

void fw_user_ratelimit_reset(const struct fw_ratelimit_here *here);
void fw_user_ratelimit_set(__u32 number, const struct fw_ratelimit_rule *rule);
void fw_user_ratelimit_count(__u32 number, struct fw_ratelimit_count *count);
int fw_user_ratelimit_drops(const __u8 *frame, __u32 len, __u64 tick);

void fw_user_ratelimit_reset(const struct fw_ratelimit_here *here)
{
	fw_ratelimit_here = *here;
	memset(&fw_ratelimit, 0, sizeof(fw_ratelimit));
	memset(buckets, 0, sizeof(buckets));
	memset(counts, 0, sizeof(counts));
}

void fw_user_ratelimit_set(__u32 number, const struct fw_ratelimit_rule *rule)
{
	fw_ratelimit.rule[number] = *rule;
}

void fw_user_ratelimit_count(__u32 number, struct fw_ratelimit_count *count)
{
	*count = counts[number];
}

int fw_user_ratelimit_drops(const __u8 *frame, __u32 len, __u64 tick)
{
	now_tick = tick;
	return fw_ratelimit_drops(frame, frame + len);
}
