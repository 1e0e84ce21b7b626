/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What writes to the flow table (writer.c). */
#ifndef FW_WRITER_H
#define FW_WRITER_H

#include <string.h>
#include "abi.h"
#include "table.h"

/*
 * The table, wherever its memory is. Writers: one at a time. Insert: the place
 * of the new flow, or none. A removed flow keeps its place and state until it is
 * released, which is when no packet can hold it any more.
 */
__u32 fw_table_insert(struct fw_flow *flows, const struct fw_config *config,
		      const struct fw_flow *flow, __u32 index);
void fw_table_remove(struct fw_flow *flows, const struct fw_config *config, __u32 place);
void fw_table_release(struct fw_flow *flows, __u32 place);
/* Size and secret of a table for so many flows. */
void fw_table_config(struct fw_config *config, __u32 flows, const __u64 *random);

/* The words of a flow's key, of its family. */
static inline void fw_words_of(const struct fw_flow *flow, struct fw_words4 *key4,
			       struct fw_words6 *key6)
{
	memcpy(key4, &flow->key, sizeof(*key4));
	memcpy(key6->addresses, flow->key_saddr6_be, 16);
	memcpy(key6->addresses + 2, flow->key_daddr6_be, 16);
	key6->ports = key4->ports;
}

#endif
