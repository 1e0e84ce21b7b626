/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding a flow: one bucket, one flow, seldom a second bucket. */
#ifndef FW_LOOKUP_H
#define FW_LOOKUP_H

#include "table.h"

#define FW_FIND_IN_BUCKET(name, key_type, key_is)                                                  \
	static __always_inline struct fw_flow *name(__u64 number, __u32 tag,                       \
						    const struct key_type *key, __u32 *index)      \
	{                                                                                          \
		const struct fw_bucket *bucket = fw_bucket_get(number);                            \
		struct fw_flow *flow;                                                              \
                                                                                                   \
		if (!bucket)                                                                       \
			return NULL;                                                               \
		for (int i = 0; i < FW_BUCKET_SLOTS; i++) {                                        \
			__u32 slot = FW_READ_ONCE(bucket->slot[i]);                                \
                                                                                                   \
			if ((slot ^ tag) > FW_INDEX_MASK || !slot)                                 \
				continue;                                                          \
			*index = slot & FW_INDEX_MASK;                                             \
			flow = fw_flow_get(*index);                                                \
			if (fw_likely(flow && key_is(flow, key)))                                  \
				return flow;                                                       \
		}                                                                                  \
		return NULL;                                                                       \
	}
FW_FIND_IN_BUCKET(fw_bucket_find4, fw_words4, fw_key4_is)
FW_FIND_IN_BUCKET(fw_bucket_find6, fw_words6, fw_key6_is)
#undef FW_FIND_IN_BUCKET

static __always_inline struct fw_flow *fw_search4(const struct fw_words4 *key, __u64 hash,
						  __u32 *index)
{
	__u32 tag = fw_hash_tag(hash);
	struct fw_flow *flow = fw_bucket_find4(fw_hash_bucket(hash), tag, key, index);

	return fw_likely(flow) ? flow : fw_bucket_find4(fw_hash_second(hash), tag, key, index);
}

static __always_inline struct fw_flow *fw_search6(const struct fw_words6 *key, __u64 hash,
						  __u32 *index)
{
	__u32 tag = fw_hash_tag(hash);
	struct fw_flow *flow = fw_bucket_find6(fw_hash_bucket(hash), tag, key, index);

	return fw_likely(flow) ? flow : fw_bucket_find6(fw_hash_second(hash), tag, key, index);
}

static __always_inline struct fw_flow *fw_find4(const struct fw_words4 *key, __u32 *index)
{
	return fw_search4(key, fw_hash4(key, &fw_cfg), index);
}

static __always_inline struct fw_flow *fw_find6(const struct fw_words6 *key, __u32 *index)
{
	return fw_search6(key, fw_hash6(key, &fw_cfg), index);
}

#endif
