/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Byte order, memory access and ticks, the same for every target. */
#ifndef FW_TARGET_BYTES_H
#define FW_TARGET_BYTES_H

#include <linux/types.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif
#define fw_likely(x)   __builtin_expect(!!(x), 1)
#define fw_unlikely(x) __builtin_expect(!!(x), 0)
/* Of a function that not every object calls. */
#define FW_UNUSED __attribute__((unused))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define fw_htons(x) ((__u16)__builtin_bswap16(x))
#define fw_htonl(x) ((__u32)__builtin_bswap32(x))
#else
#define fw_htons(x) ((__u16)(x))
#define fw_htonl(x) ((__u32)(x))
#endif
#define fw_ntohs(x) fw_htons(x)
#define fw_ntohl(x) fw_htonl(x)

/*
 * Wire structures and words start at odd multiples of two. BPF is told that
 * they are aligned, or clang splits each access into bytes; every machine with
 * a BPF JIT that Freeway supports does unaligned access in hardware.
 */
#ifdef __bpf__
#define FW_WIRE __attribute__((packed, aligned(4)))
typedef __u64 __attribute__((may_alias)) fw_u64_any;
typedef __u32 __attribute__((may_alias)) fw_u32_any;
typedef __u16 __attribute__((may_alias)) fw_u16_any;
#else
#define FW_WIRE __attribute__((packed, aligned(1)))
typedef __u64 __attribute__((may_alias, aligned(1))) fw_u64_any;
typedef __u32 __attribute__((may_alias, aligned(1))) fw_u32_any;
typedef __u16 __attribute__((may_alias, aligned(1))) fw_u16_any;
#endif

/* A 32-bit sum that is added to a 64-bit one: x86-64 extends it for nothing, but clang rather adds
 * its terms one by one. */
#ifdef __x86_64__
#define FW_WHOLE(sum)                                                                              \
	({                                                                                         \
		__u64 whole = (__u32)(sum);                                                        \
		asm("" : "+r"(whole));                                                             \
		whole;                                                                             \
	})
#else
#define FW_WHOLE(sum) (sum)
#endif

#define FW_READ_ONCE(x)     (*(const volatile __typeof__(x) *)&(x))
#define FW_WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

/* One after the other, or what is gathered spills to the stack. */
#define FW_GATHER(sum, word)                                                                       \
	do {                                                                                       \
		(sum) |= (word);                                                                   \
		asm volatile("" : "+r"(sum));                                                      \
	} while (0)

/* Serial comparison of wrapping ticks. */
static __always_inline int fw_reached(__u32 now, __u32 tick)
{
	return (__s32)(now - tick) >= 0;
}

/* The same of what is never put off for more than `longest_ticks`: also if nothing was ever put off
 * (0), or so long ago that the tick seems to be ahead. Another CPU's `now` may be one tick later.
 */
static __always_inline int fw_due(__u32 now, __u32 tick, __u32 longest_ticks)
{
	return tick - now - 1 > longest_ticks;
}

#endif
