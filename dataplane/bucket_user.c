/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Buckets as user space needs them: the same hash, and which ports are worth what. */
#include <stddef.h>
#include <string.h>
#include "target/bytes.h"
#include "bucket.h"

__u32 fw_user_bucket4(__u32 saddr_be, __u16 sport_be, __u32 daddr_be, __u16 dport_be,
		      const __u64 *key);
void fw_user_port_table(__u32 addr_be, const __u64 *key, struct fw_port_table *table);

__u32 fw_user_bucket4(__u32 saddr_be, __u16 sport_be, __u32 daddr_be, __u16 dport_be,
		      const __u64 *key)
{
	return fw_bucket(fw_bucket_end4(saddr_be, sport_be, key),
			 fw_bucket_end4(daddr_be, dport_be, key));
}

void fw_user_port_table(__u32 addr_be, const __u64 *key, struct fw_port_table *table)
{
	__u16 next[FW_BUCKETS];
	__u32 port, bucket;

	memset(table, 0, sizeof(*table));
	for (port = FW_PRECEDENT_PORT_MIN; port <= 0xffff; port++)
		table->first[fw_bucket_end4(addr_be, fw_htons(port), key) + 1]++;
	for (bucket = 0; bucket < FW_BUCKETS; bucket++) {
		next[bucket] = table->first[bucket];
		table->first[bucket + 1] += table->first[bucket];
	}
	for (port = FW_PRECEDENT_PORT_MIN; port <= 0xffff; port++) {
		bucket = fw_bucket_end4(addr_be, fw_htons(port), key);
		table->port_be[next[bucket]++] = fw_htons(port);
	}
}
