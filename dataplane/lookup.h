/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding a flow: one bucket, one flow, seldom a second bucket. */
#ifndef FW_LOOKUP_H
#define FW_LOOKUP_H

#include "table.h"

#define FW_FIND_IN_BUCKET(name, key_type, differs)                                                 \
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
			if (fw_likely(flow && !differs(flow, key)))                                \
				return flow;                                                       \
		}                                                                                  \
		return NULL;                                                                       \
	}
FW_FIND_IN_BUCKET(fw_bucket_find4, fw_words4, fw_key4_differs)
FW_FIND_IN_BUCKET(fw_bucket_find6, fw_words6, fw_key6_differs)
#undef FW_FIND_IN_BUCKET

/*
 * A search is a function of its own, for most hits do without: the flow's index,
 * or none. Of external linkage, so that the BPF verifier looks at it once.
 */
__u32 fw_search4(__u64 addresses, __u64 ports, __u64 hash);
__u32 fw_search6(const struct fw_words6 *key, __u64 hash);

__noinline __u32 fw_search4(__u64 addresses, __u64 ports, __u64 hash)
{
	struct fw_words4 key = {.addresses = addresses, .ports = ports};
	__u32 index = FW_INDEX_NONE;

	if (fw_bucket_find4(fw_hash_bucket(hash), fw_hash_tag(hash), &key, &index) ||
	    fw_bucket_find4(fw_hash_second(hash), fw_hash_tag(hash), &key, &index))
		return index;
	return FW_INDEX_NONE;
}

__noinline __u32 fw_search6(const struct fw_words6 *key, __u64 hash)
{
	__u32 index = FW_INDEX_NONE;

	if (!key)
		return FW_INDEX_NONE;
	if (fw_bucket_find6(fw_hash_bucket(hash), fw_hash_tag(hash), key, &index) ||
	    fw_bucket_find6(fw_hash_second(hash), fw_hash_tag(hash), key, &index))
		return index;
	return FW_INDEX_NONE;
}

static __always_inline __u32 fw_find4(const struct fw_words4 *key)
{
	return fw_search4(key->addresses, key->ports, fw_hash4(key, &fw_cfg));
}

static __always_inline __u32 fw_find6(const struct fw_words6 *key)
{
	return fw_search6(key, fw_hash6(key, &fw_cfg));
}

#endif
