/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The native library's interface (user.c). */
#ifndef FW_USER_H
#define FW_USER_H

#include "abi.h"
#include "writer.h"

struct fw_env;

/*
 * A flow has left the table: what is seen of its tuple from now on is new, and
 * need not wait for the silence after its offer. Offers that share its set may
 * be made once more. `offers` and `observations` are all of those maps.
 */
void fw_offers_forget(struct fw_offer_set *offers, struct fw_observation_set *observations,
		      const struct fw_config *config, const struct fw_flow *flow);

/* Of a flow: fw_edges' keys of its own direction and of the other one, at whatever port. */
void fw_edge_keys(const struct fw_config *config, const struct fw_flow *flow, __u64 *own,
		  __u64 *other);

/* NULL if memory is short. Everything is on, the clock stands at 0, deadline 0. */
struct fw_env *fw_user_new(__u32 flows, __u32 nexthops);
void fw_user_free(struct fw_env *env);
struct fw_control *fw_user_control(struct fw_env *env);
struct fw_flow *fw_user_flow(struct fw_env *env, __u32 index);
struct fw_nexthop *fw_user_nexthop(struct fw_env *env, __u32 index);
struct fw_olist *fw_user_olist(struct fw_env *env, __u32 index);
void fw_user_set_now(struct fw_env *env, __u32 tick);
/* 0: every frame takes the pipeline, step by step. */
void fw_user_set_straight(struct fw_env *env, __u32 straight);
/* Non-zero: what closes a connection is left to the kernel, as in the engine. */
void fw_user_set_leaves_closing(struct fw_env *env, __u32 leaves);
/* Frames that went the straight way. */
__u64 fw_user_hits(const struct fw_env *env);
/* Frames that were told straight to be of no flow. */
__u64 fw_user_misses(const struct fw_env *env);
/* What conntrack answers from now on. */
void fw_user_set_conn(struct fw_env *env, const struct fw_conn *conn);
/* What the connection was when the flow was learned; NULL if there is no such index. */
struct fw_kept *fw_user_kept(struct fw_env *env, __u32 index);
/* The largest window of the connection, with which conntrack is liberal; 0: it is not. */
void fw_user_set_window(struct fw_env *env, __u32 window);
/* Publishes, or hides, the flow that was written at this index; -1 if no place is free. */
int fw_user_insert(struct fw_env *env, __u32 index);
void fw_user_remove(struct fw_env *env, __u32 index);
/* Names the other direction of a flow, both in the table. */
void fw_user_set_peer(struct fw_env *env, __u32 index, __u32 peer);
__u64 fw_user_count(const struct fw_env *env, __u32 reason);
/* Limits what the kernel is given for a reason. */
void fw_user_set_limit(struct fw_env *env, __u32 reason, const struct fw_limit *limit);
/* Packets over the limit of a reason. */
__u64 fw_user_policed(const struct fw_env *env, __u32 reason);
/* Was a TCP flow confirmed since the last call? */
__u32 fw_user_seen(struct fw_env *env, __u32 index);
/* Forgets that a flow was offered. */
void fw_user_forget(struct fw_env *env, __u32 index);
/* Non-zero: there is no room for events. */
void fw_user_set_full(struct fw_env *env, __u32 full);
/* Non-zero: half of the room is taken. */
void fw_user_set_crowded(struct fw_env *env, __u32 crowded);
/* The last event, taken; its length, or 0. */
__u32 fw_user_event(struct fw_env *env, void *event, __u32 size);

/* What comes in at a port with these tags and session is another's; -1 if there are too many. */
int fw_user_set_framing(struct fw_env *env, const struct fw_framing *framing,
			const struct fw_framed *framed);

/* A frame lies in a buffer from octet `at`, `len` octets of it; tags move its beginning. */
struct fw_user_frame {
	void *buffer;
	__u32 at;
	__u32 len;
	__u32 port;     /* at which it came in, ifindex */
	__u32 port_out; /* at which it is to leave, if it is forwarded */
	__u32 olist; /* or the list of the ports at which copies of it are to leave; else left alone
		      */
};

/*
 * enum fw_reason: FW_R_FAST with the frame rewritten, FW_R_POLICED or FW_R_STRAY_CLOSE if it
 * is to be dropped, or why the kernel gets it, as it was.
 */
__u32 fw_user_forward(struct fw_env *env, struct fw_user_frame *frame);
/* A copy of a forwarded frame becomes that of a device of its list; -1 if that has none such. */
int fw_user_leg(struct fw_env *env, struct fw_user_frame *frame, __u32 device);
/* The token of a frame that goes to the kernel, or 0. */
__u32 fw_user_ingress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso);
/* enum fw_reason: what was learned from a frame that leaves. */
__u32 fw_user_egress(struct fw_env *env, void *frame, __u32 len, __u32 port, __u32 gso,
		     __u32 token);

#endif
