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

static __u32 fw_end_worth(const struct fw_source_end *end, const __u64 *key)
{
	__u64 words[2];

	if (end->family == FW_AF_INET)
		return fw_bucket_end4(end->addr_be[0], end->port_be, key);
	memcpy(words, end->addr_be, sizeof(words));
	return fw_bucket_end6(words[0], words[1], end->port_be, key);
}

__u32 fw_user_bucket(const struct fw_source_end *one, const struct fw_source_end *other,
		     const __u64 *key)
{
	return fw_bucket(fw_end_worth(one, key), fw_end_worth(other, key));
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
		table->first[fw_end_worth(&end, key) + 1]++;
	}
	for (bucket = 0; bucket < FW_BUCKETS; bucket++) {
		next[bucket] = table->first[bucket];
		table->first[bucket + 1] += table->first[bucket];
	}
	for (port = FW_PRECEDENT_PORT_MIN; port <= 0xffff; port++) {
		end.port_be = fw_htons(port);
		bucket = fw_end_worth(&end, key);
		table->port_be[next[bucket]++] = end.port_be;
	}
}
