/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Buckets as user space needs them: the same hash, and which ports are worth what. */
#include <stddef.h>
#include <string.h>
#include "target/bytes.h"
#include "bucket.h"

__u32 fw_user_bucket(const struct fw_source_end *one, const struct fw_source_end *other,
		     const __u64 *key);
void fw_user_port_table(const struct fw_translated *to, const __u64 *key,
			struct fw_port_table *table);

__u32 fw_user_bucket(const struct fw_source_end *one, const struct fw_source_end *other,
		     const __u64 *key)
{
	return fw_bucket(fw_bucket_end(one, key), fw_bucket_end(other, key));
}

void fw_user_port_table(const struct fw_translated *to, const __u64 *key,
			struct fw_port_table *table)
{
	struct fw_source_end end = {.family = to->family};
	__u16 next[FW_BUCKETS];
	__u32 port, bucket;

	memcpy(end.addr_be, to->addr_be, sizeof(end.addr_be));
	memset(table, 0, sizeof(*table));
	for (port = FW_PRECEDENT_PORT_MIN; port <= 0xffff; port++) {
		end.port_be = fw_htons(port);
		table->first[fw_bucket_end(&end, key) + 1]++;
	}
	for (bucket = 0; bucket < FW_BUCKETS; bucket++) {
		next[bucket] = table->first[bucket];
		table->first[bucket + 1] += table->first[bucket];
	}
	for (port = FW_PRECEDENT_PORT_MIN; port <= 0xffff; port++) {
		end.port_be = fw_htons(port);
		bucket = fw_bucket_end(&end, key);
		table->port_be[next[bucket]++] = end.port_be;
	}
}
