/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every way out is counted here, and reported if the tuple is being watched. */
#ifndef FW_WATCH_H
#define FW_WATCH_H

#include "abi.h"
#include "parse.h"

static __always_inline int fw_watched(const struct fw_watch *w, const struct fw_tuple *t,
				      const struct fw_pkt *p)
{
	if (w->family != p->family || w->proto != p->proto)
		return 0;
	if (w->sport_be != t->sport_be || w->dport_be != t->dport_be)
		return 0;
	for (int i = 0; i < 4; i++)
		if (w->saddr_be[i] != t->saddr_be[i] || w->daddr_be[i] != t->daddr_be[i])
			return 0;
	return 1;
}

static __always_inline void fw_tuple_fill(struct fw_tuple *t, const void *data, __u8 family,
					  __u8 proto)
{
	__u32 id = fw_l4_id(fw_l4_at(data, family), proto);

	__builtin_memset(t, 0, sizeof(*t));
	if (family == FW_AF_INET) {
		t->saddr_be[0] = fw_ip4_at(data)->saddr_be;
		t->daddr_be[0] = fw_ip4_at(data)->daddr_be;
	} else {
		for (int i = 0; i < 4; i++) {
			t->saddr_be[i] = fw_ip6_at(data)->saddr_be[i];
			t->daddr_be[i] = fw_ip6_at(data)->daddr_be[i];
		}
	}
	__builtin_memcpy(&t->sport_be, &id, sizeof(id));
}

/*
 * Rare: only while `explain` watches. Of external linkage, so that the BPF verifier looks at it
 * once, and not once for each way that leads here.
 */
int fw_watch_report(const struct fw_tuple *t, const struct fw_pkt *p, __u32 port,
		    __u32 stage_reason);

__noinline int fw_watch_report(const struct fw_tuple *t, const struct fw_pkt *p, __u32 port,
			       __u32 stage_reason)
{
	const struct fw_watch *w = fw_watch_get();
	struct fw_watch_event *ev;

	if (!w || !t || !p || !fw_watched(w, t, p))
		return 0;
	ev = fw_event_reserve(sizeof(*ev));
	if (!ev)
		return 0;
	ev->ev.kind = FW_EV_WATCH;
	ev->ev.reason = stage_reason & 0xffff;
	ev->ev.state = 0;
	ev->ev.tick = fw_now();
	ev->tuple = *t;
	ev->port = port;
	ev->stage = stage_reason >> 16;
	ev->len_l3 = p->len_l3;
	ev->tcp_flags = p->tcp_flags;
	ev->ttl = p->ttl;
	ev->pad = 0;
	fw_event_submit(ev);
	return 1;
}

static __always_inline void fw_watch(const struct fw_tuple *t, const struct fw_pkt *p, __u32 port,
				     enum fw_stage stage, enum fw_reason reason)
{
	if (p->tuple)
		fw_watch_report(t, p, port, stage << 16 | reason);
}

#endif
