/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* See schedule.h. Tokens are time, as htb has them, in 256ths of a nanosecond. */
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "schedule.h"
#include "../dataplane/target/bytes.h"

enum {
	FWE_TOKEN_BITS = 8,
	/* A cost has so many bits behind the point. */
	FWE_COST_BITS = 16,
	FWE_LEN_BITS = 16,
	FWE_NO_ROW = 0xff,
};

/* The longest that a class can be in debt, or idle: htb's mbuffer. */
#define FWE_TOKENS_MAX ((__s64)60000000000LL << FWE_TOKEN_BITS)

/* Whether a class may send: itself, by what is spare above it, or not at all. */
enum fwe_mode {
	FWE_SENDS = 0,
	FWE_BORROWS,
	FWE_WAITS,
};

/* A frame that waits: its length is here, so that it is not looked at before it leaves. */
struct fwe_waiting {
	struct rte_mbuf *frame;
	__u64 since_len; /* nanoseconds << 16 | octets */
};

/* Tokens of a rate: `cost` of an octet, 0 if there is no limit. */
struct fwe_bucket {
	__s64 tokens;
	__s64 most;
	__u64 cost;
};

struct fwe_node {
	struct fwe_bucket own;
	struct fwe_bucket ceiling;
	__u64 since_ns; /* of the tokens */
	__u64 due_ns;   /* unless it sends: when that changes */
	__u64 under;    /* leaves below, or itself */
	__s32 overhead;
	__u32 least;
	__u16 above;
	__u8 level; /* 0: a leaf; the nearer to the root, the more */
	__u8 mode;
	__u8 borrows_only;
	__u8 priority;
	__u8 row; /* of a leaf with frames: where it has its turns now */
	__u8 pad;
	/* of leaves */
	__u32 quantum;
	__u32 limit;
	__u64 limit_bytes;
	__u32 head;
	__u32 mask;
	struct fwe_waiting *queue;
	__s64 deficit[FWE_CLASS_DEPTH];
	__u32 id;
	__u32 is_leaf;
};

/*
 * Rows of leaves that may send now, by level and priority: those that send by themselves are in
 * level 0, those that borrow in the level of the class that spares. So the first row that is not
 * empty is the one to be served.
 */
struct fwe_schedule {
	__u64 rows; /* that are not empty */
	__u64 row[FWE_CLASS_DEPTH * FWE_CLASS_PRIORITIES];
	__u8 turn[FWE_CLASS_DEPTH * FWE_CLASS_PRIORITIES]; /* the leaf from which on to look */
	__u64 filled;                                      /* leaves with frames */
	__u64 stopped; /* classes that do not send by themselves */
	__u64 due_ns;  /* the first of them */
	__u32 waiting;
	__u32 room;
	__u32 count;
	__u16 other;
	__u16 pad;
	struct fwe_node node[FWE_CLASSES_MAX];
	struct fwe_class_stats stats[FWE_CLASSES_MAX];
};

_Static_assert(FWE_CLASS_DEPTH *FWE_CLASS_PRIORITIES == 64 && FWE_CLASSES_MAX == 64,
	       "rows and leaves are bits of a word");

static const char *fwe_class_wrong(const struct fwe_class *classes, __u32 count, __u16 other)
{
	__u32 inner[FWE_CLASSES_MAX] = {}, depth[FWE_CLASSES_MAX] = {};

	if (!count || count > FWE_CLASSES_MAX)
		return "a schedule has 1 to 64 classes";
	for (__u32 i = 0; i < count; i++) {
		const struct fwe_class *class = &classes[i];

		if (class->above != FWE_CLASS_NONE) {
			if (class->above >= i)
				return "a class is named ahead of the one above it";
			depth[i] = depth[class->above] + 1;
			inner[class->above] = 1;
		}
		if (depth[i] >= FWE_CLASS_DEPTH)
			return "more than 8 classes one above the other";
		if (class->rate && class->rate < 1000)
			return "a rate below 8 kbit/s";
		if (class->ceiling < 1000)
			return "a ceiling below 8 kbit/s";
	}
	for (__u32 i = 0; i < count; i++) {
		if (inner[i])
			continue;
		if (!classes[i].quantum || !classes[i].limit || !classes[i].limit_bytes)
			return "a leaf without quantum or limit";
		if (classes[i].priority >= FWE_CLASS_PRIORITIES)
			return "priorities are 0 to 7";
		if (!classes[i].rate && classes[i].above == FWE_CLASS_NONE)
			return "a class without a rate, and none above it";
	}
	if (other != FWE_CLASS_NONE && (other >= count || inner[other]))
		return "what names no class goes to one that is no leaf";
	return NULL;
}

static struct fwe_bucket fwe_bucket_new(__u64 rate, __u64 burst_ns)
{
	struct fwe_bucket bucket = {};

	if (!rate || rate == FWE_RATE_ANY)
		return bucket;
	bucket.cost = ((unsigned __int128)1000000000 << (FWE_TOKEN_BITS + FWE_COST_BITS)) / rate;
	bucket.most = burst_ns << FWE_TOKEN_BITS;
	if (burst_ns > (__u64)(FWE_TOKENS_MAX >> FWE_TOKEN_BITS))
		bucket.most = FWE_TOKENS_MAX;
	bucket.tokens = bucket.most;
	return bucket;
}

/* A ring for that many frames, and one more. */
static int fwe_queue_new(struct fwe_node *node, __u32 room)
{
	__u32 frames = node->limit < room ? node->limit : room, size = 2;

	while (size <= frames)
		size *= 2;
	node->limit = frames;
	node->mask = size - 1;
	node->queue = malloc(size * sizeof(*node->queue));
	return !!node->queue;
}

struct fwe_schedule *fwe_schedule_new(const struct fwe_class *classes, __u32 count, __u16 other,
				      __u32 room, const char **error)
{
	struct fwe_schedule *schedule;

	*error = fwe_class_wrong(classes, count, other);
	if (*error)
		return NULL;
	*error = "memory is short";
	schedule = aligned_alloc(64, (sizeof(*schedule) + 63) / 64 * 64);
	if (!schedule)
		return NULL;
	memset(schedule, 0, sizeof(*schedule));
	schedule->count = count;
	schedule->other = other;
	schedule->room = room;
	schedule->due_ns = ~0ULL;
	for (__u32 i = 0; i < count; i++) {
		const struct fwe_class *class = &classes[i];
		struct fwe_node *node = &schedule->node[i];
		__u32 depth = 0;

		*node = (struct fwe_node){
			.own = fwe_bucket_new(class->rate, class->burst_ns),
			.ceiling = fwe_bucket_new(class->ceiling, class->ceiling_burst_ns),
			.overhead = class->overhead,
			.least = class->least,
			.above = class->above,
			.borrows_only = !class->rate,
			.mode = class->rate ? FWE_SENDS : FWE_BORROWS,
			.priority = class->priority,
			.row = FWE_NO_ROW,
			.quantum = class->quantum,
			.limit = class->limit,
			.limit_bytes = class->limit_bytes,
			.id = class->id,
			.is_leaf = 1,
		};
		for (__u16 at = class->above; at != FWE_CLASS_NONE; at = classes[at].above) {
			schedule->node[at].is_leaf = 0;
			depth++;
		}
		node->level = FWE_CLASS_DEPTH - 1 - depth;
	}
	for (__u32 i = 0; i < count; i++) {
		struct fwe_node *node = &schedule->node[i];

		if (!node->is_leaf)
			continue;
		node->level = 0;
		node->under = 1ULL << i;
		for (__u16 at = node->above; at != FWE_CLASS_NONE; at = schedule->node[at].above)
			schedule->node[at].under |= 1ULL << i;
		if (!fwe_queue_new(node, room)) {
			fwe_schedule_free(schedule);
			return NULL;
		}
	}
	*error = NULL;
	return schedule;
}

void fwe_schedule_free(struct fwe_schedule *schedule)
{
	if (!schedule)
		return;
	fwe_schedule_purge(schedule);
	for (__u32 i = 0; i < schedule->count; i++)
		free(schedule->node[i].queue);
	free(schedule);
}

const struct fwe_class_stats *fwe_schedule_stats(const struct fwe_schedule *schedule, __u32 class)
{
	return &schedule->stats[class];
}

__u32 fwe_schedule_waiting(const struct fwe_schedule *schedule)
{
	return FW_READ_ONCE(schedule->waiting);
}

/* The row in which a leaf with frames has its turns. */
static __always_inline __u8 fwe_row_of(const struct fwe_schedule *schedule,
				       const struct fwe_node *leaf)
{
	const struct fwe_node *at = leaf;

	while (at->mode == FWE_BORROWS && at->above != FWE_CLASS_NONE)
		at = &schedule->node[at->above];
	if (at->mode != FWE_SENDS)
		return FWE_NO_ROW;
	return at->level * FWE_CLASS_PRIORITIES + leaf->priority;
}

static __always_inline void fwe_row_leave(struct fwe_schedule *schedule, __u32 number)
{
	__u8 row = schedule->node[number].row;

	if (row == FWE_NO_ROW)
		return;
	schedule->row[row] &= ~(1ULL << number);
	if (!schedule->row[row])
		schedule->rows &= ~(1ULL << row);
	schedule->node[number].row = FWE_NO_ROW;
}

static __always_inline void fwe_row_enter(struct fwe_schedule *schedule, __u32 number)
{
	struct fwe_node *leaf = &schedule->node[number];
	__u8 row = fwe_row_of(schedule, leaf);

	if (row == leaf->row)
		return;
	fwe_row_leave(schedule, number);
	leaf->row = row;
	if (row == FWE_NO_ROW)
		return;
	schedule->row[row] |= 1ULL << number;
	schedule->rows |= 1ULL << row;
}

/* Of a class whose tokens are of `now_ns`: htb_class_mode(). */
static __always_inline void fwe_mode_update(struct fwe_schedule *schedule, __u32 number,
					    __u64 now_ns)
{
	struct fwe_node *node = &schedule->node[number];
	__u64 bit = 1ULL << number;
	__u8 mode = FWE_SENDS;
	__s64 lacking = 0;

	if (node->ceiling.cost && node->ceiling.tokens < 0) {
		mode = FWE_WAITS;
		lacking = -node->ceiling.tokens;
	} else if (node->borrows_only) {
		mode = FWE_BORROWS;
	} else if (node->own.cost && node->own.tokens < 0) {
		mode = FWE_BORROWS;
		lacking = -node->own.tokens;
	}
	if (lacking) {
		node->due_ns = now_ns + ((lacking + (1 << FWE_TOKEN_BITS) - 1) >> FWE_TOKEN_BITS);
		schedule->stopped |= bit;
		if (node->due_ns < schedule->due_ns)
			schedule->due_ns = node->due_ns;
	} else {
		schedule->stopped &= ~bit;
	}
	if (mode == node->mode)
		return;
	node->mode = mode;
	for (__u64 leaves = node->under & schedule->filled; leaves; leaves &= leaves - 1)
		fwe_row_enter(schedule, __builtin_ctzll(leaves));
}

static __always_inline void fwe_bucket_fill(struct fwe_bucket *bucket, __s64 elapsed)
{
	if (!bucket->cost)
		return;
	bucket->tokens += elapsed;
	if (bucket->tokens > bucket->most)
		bucket->tokens = bucket->most;
}

static __always_inline void fwe_bucket_charge(struct fwe_bucket *bucket, __u64 len)
{
	bucket->tokens -= (len * bucket->cost) >> FWE_COST_BITS;
	if (fw_unlikely(bucket->tokens < -FWE_TOKENS_MAX))
		bucket->tokens = -FWE_TOKENS_MAX;
}

static __always_inline void fwe_node_advance(struct fwe_node *node, __u64 now_ns)
{
	__u64 elapsed_ns = now_ns - node->since_ns;

	if (fw_unlikely(elapsed_ns > (__u64)(FWE_TOKENS_MAX >> FWE_TOKEN_BITS)))
		elapsed_ns = FWE_TOKENS_MAX >> FWE_TOKEN_BITS;
	fwe_bucket_fill(&node->own, elapsed_ns << FWE_TOKEN_BITS);
	fwe_bucket_fill(&node->ceiling, elapsed_ns << FWE_TOKEN_BITS);
	node->since_ns = now_ns;
}

/* Classes that may send again by now: htb_do_events(). */
static __noinline void fwe_schedule_wake(struct fwe_schedule *schedule, __u64 now_ns)
{
	schedule->due_ns = ~0ULL;
	for (__u64 left = schedule->stopped; left; left &= left - 1) {
		__u32 number = __builtin_ctzll(left);
		struct fwe_node *node = &schedule->node[number];

		if (node->due_ns <= now_ns) {
			fwe_node_advance(node, now_ns);
			fwe_mode_update(schedule, number, now_ns);
		} else if (node->due_ns < schedule->due_ns) {
			schedule->due_ns = node->due_ns;
		}
	}
}

/* A frame of the leaf's has been sent by what the class of that level had: htb_charge_class(). */
static __always_inline void fwe_charge(struct fwe_schedule *schedule, __u32 number, __u32 level,
				       __u32 len, __u64 now_ns)
{
	for (__u32 at = number; at != FWE_CLASS_NONE;) {
		struct fwe_node *node = &schedule->node[at];
		__s64 counted = (__s64)len + node->overhead;

		if (counted < node->least)
			counted = node->least;
		fwe_node_advance(node, now_ns);
		/* what it has borrowed is not of its own rate */
		if (node->level >= level && !node->borrows_only)
			fwe_bucket_charge(&node->own, counted);
		fwe_bucket_charge(&node->ceiling, counted);
		fwe_mode_update(schedule, at, now_ns);
		at = node->above;
	}
}

static __always_inline void fwe_delay_note(struct fwe_class_stats *stats, __u64 delay_ns)
{
	__u32 at = delay_ns >> 10 ? 64 - __builtin_clzll(delay_ns >> 10) : 0;

	stats->delay_ns += delay_ns;
	stats->delays[at < FWE_DELAYS ? at : FWE_DELAYS - 1]++;
}

/* The next frame of a leaf in the first row, which is not empty. */
static __always_inline struct rte_mbuf *fwe_take_one(struct fwe_schedule *schedule, __u64 now_ns)
{
	__u32 row = __builtin_ctzll(schedule->rows), level = row / FWE_CLASS_PRIORITIES, number;
	__u64 from = schedule->row[row] >> schedule->turn[row] << schedule->turn[row];
	struct fwe_class_stats *stats;
	struct fwe_waiting *waiting;
	struct fwe_node *leaf;
	struct rte_mbuf *frame;
	__u32 len;

	number = __builtin_ctzll(from ? from : schedule->row[row]);
	leaf = &schedule->node[number];
	stats = &schedule->stats[number];
	waiting = &leaf->queue[leaf->head++ & leaf->mask];
	frame = waiting->frame;
	rte_prefetch0(leaf->queue[leaf->head & leaf->mask].frame);
	len = waiting->since_len & ((1 << FWE_LEN_BITS) - 1);
	fwe_delay_note(stats,
		       ((now_ns << FWE_LEN_BITS) - (waiting->since_len - len)) >> FWE_LEN_BITS);
	stats->frames++;
	stats->bytes += len;
	stats->waiting--;
	stats->waiting_bytes -= len;
	schedule->waiting--;
	leaf->deficit[level] -= len;
	schedule->turn[row] = number;
	if (leaf->deficit[level] < 0) {
		leaf->deficit[level] += leaf->quantum;
		schedule->turn[row] = (number + 1) % FWE_CLASSES_MAX;
	}
	if (!stats->waiting) {
		schedule->filled &= ~(1ULL << number);
		fwe_row_leave(schedule, number);
	}
	fwe_charge(schedule, number, level, len, now_ns);
	return frame;
}

__u32 fwe_schedule_take(struct fwe_schedule *schedule, struct rte_mbuf **frames, __u32 room,
			__u64 now_ns)
{
	__u32 count = 0;

	if (!schedule->waiting)
		return 0;
	for (; count < room; count++) {
		if (schedule->due_ns <= now_ns)
			fwe_schedule_wake(schedule, now_ns);
		if (!schedule->rows)
			break;
		frames[count] = fwe_take_one(schedule, now_ns);
	}
	return count;
}

static __always_inline int fwe_put_one(struct fwe_schedule *schedule, __u32 number,
				       struct rte_mbuf *frame, __u64 since_len)
{
	struct fwe_class_stats *stats = &schedule->stats[number];
	struct fwe_node *leaf = &schedule->node[number];
	__u32 len = since_len & ((1 << FWE_LEN_BITS) - 1);

	if (fw_unlikely(stats->waiting >= leaf->limit ||
			stats->waiting_bytes + len > leaf->limit_bytes ||
			schedule->waiting >= schedule->room)) {
		stats->dropped++;
		return 0;
	}
	leaf->queue[(leaf->head + stats->waiting) & leaf->mask] =
		(struct fwe_waiting){.frame = frame, .since_len = since_len};
	schedule->waiting++;
	stats->waiting_bytes += len;
	if (!stats->waiting++) {
		schedule->filled |= 1ULL << number;
		fwe_row_enter(schedule, number);
	}
	return 1;
}

__u32 fwe_schedule_put(struct fwe_schedule *schedule, const __u16 *leaves, struct rte_mbuf **frames,
		       __u32 count, __u64 now_ns)
{
	__u32 passing = 0;

	for (__u32 i = 0; i < count; i++) {
		/* a number of a schedule that was here before may be none of this one's */
		__u32 number = leaves[i] - 1u, len = frames[i]->pkt_len;

		if (fw_unlikely(leaves[i] == FWE_CLASS_NONE))
			number = FWE_CLASS_NONE;
		else if (fw_unlikely(number >= schedule->count || !schedule->node[number].is_leaf))
			number = schedule->other;
		if (fw_unlikely(number == FWE_CLASS_NONE)) {
			frames[passing++] = frames[i];
			continue;
		}
		if (fw_unlikely(len >= 1 << FWE_LEN_BITS))
			len = (1 << FWE_LEN_BITS) - 1;
		if (!fwe_put_one(schedule, number, frames[i], now_ns << FWE_LEN_BITS | len))
			rte_pktmbuf_free(frames[i]);
	}
	return passing;
}

void fwe_schedule_purge(struct fwe_schedule *schedule)
{
	for (__u64 left = schedule->filled; left; left &= left - 1) {
		__u32 number = __builtin_ctzll(left);
		struct fwe_class_stats *stats = &schedule->stats[number];
		struct fwe_node *leaf = &schedule->node[number];

		for (; stats->waiting; stats->waiting--) {
			rte_pktmbuf_free(leaf->queue[leaf->head++ & leaf->mask].frame);
			stats->dropped++;
		}
		stats->waiting_bytes = 0;
		fwe_row_leave(schedule, number);
	}
	schedule->filled = 0;
	schedule->waiting = 0;
}

void fwe_schedule_inherit(struct fwe_schedule *schedule, struct fwe_schedule *old)
{
	for (__u32 i = 0; i < old->count; i++) {
		struct fwe_class_stats *stats = &old->stats[i];
		struct fwe_node *from = &old->node[i];
		__u32 to = 0;

		while (to < schedule->count &&
		       (!schedule->node[to].is_leaf || schedule->node[to].id != from->id))
			to++;
		for (; stats->waiting; stats->waiting--) {
			struct fwe_waiting *waiting = &from->queue[from->head++ & from->mask];

			if (to == schedule->count ||
			    !fwe_put_one(schedule, to, waiting->frame, waiting->since_len))
				rte_pktmbuf_free(waiting->frame);
		}
		if (to < schedule->count && from->is_leaf) {
			/* counters go on */
			schedule->stats[to].frames += stats->frames;
			schedule->stats[to].bytes += stats->bytes;
			schedule->stats[to].dropped += stats->dropped;
			schedule->stats[to].delay_ns += stats->delay_ns;
			for (__u32 d = 0; d < FWE_DELAYS; d++)
				schedule->stats[to].delays[d] += stats->delays[d];
		}
	}
	old->filled = 0;
	old->waiting = 0;
}
