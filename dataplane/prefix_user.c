/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Longest prefix match as a library: what crates/prefix calls. */
#include "prefix4.h"
#include "prefix6.h"

struct fw_address6 {
	__u64 high, low;
};

__u32 fw_user_prefix4(const struct fw_prefix4 *table, __u32 address);
void fw_user_prefix4_burst(const struct fw_prefix4 *table, const __u32 *addresses, __u16 *nexthops,
			   __u32 count);
__u32 fw_user_prefix6(const struct fw_prefix6 *table, __u64 high, __u64 low);
void fw_user_prefix6_burst(const struct fw_prefix6 *table, const struct fw_address6 *addresses,
			   __u16 *nexthops, __u32 count);

__u32 fw_user_prefix4(const struct fw_prefix4 *table, __u32 address)
{
	return fw_prefix4_lookup(table, address);
}

void fw_user_prefix4_burst(const struct fw_prefix4 *table, const __u32 *addresses, __u16 *nexthops,
			   __u32 count)
{
	for (__u32 i = 0; i < count; i += FW_P4_BURST) {
		__u32 rest = count - i;

		fw_prefix4_burst(table, addresses + i, nexthops + i,
				 rest < FW_P4_BURST ? rest : FW_P4_BURST);
	}
}

__u32 fw_user_prefix6(const struct fw_prefix6 *table, __u64 high, __u64 low)
{
	return fw_prefix6_lookup(table, high, low);
}

void fw_user_prefix6_burst(const struct fw_prefix6 *table, const struct fw_address6 *addresses,
			   __u16 *nexthops, __u32 count)
{
	for (__u32 i = 0; i < count; i++)
		nexthops[i] = fw_prefix6_lookup(table, addresses[i].high, addresses[i].low);
}
