/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Why the kernel does not forward what `explain` watches: the reason that it gives
 * where it frees the packet. Attached only while a tuple is watched.
 */
#include "target/bpf.h"
#include "target/kernel.h"
#include <bpf/bpf_tracing.h>
#include "parse.h"
#include "watch.h"

/* skb->_skb_refdst, but for SKB_DST_NOREF; skb->_nfct, but for NFCT_INFOMASK */
enum { FW_DST_PTRMASK = ~1UL, FW_NFCT_PTRMASK = ~7UL, FW_NFCT_INFOMASK = 7 };

/* What the packet's headers say now; 0 if they are none of IP. */
static __always_inline int fw_drop_parse(struct fw_tuple *t, struct fw_pkt *p,
					 const struct sk_buff *skb)
{
	const void *ip = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	__u16 protocol_be = BPF_CORE_READ(skb, protocol);
	__u32 l4[2] = {}, id, len;
	struct fw_ip4 ip4;
	struct fw_ip6 ip6;

	if (protocol_be == fw_htons(FW_ETH_IP)) {
		if (bpf_probe_read_kernel(&ip4, sizeof(ip4), ip) || ip4.version_ihl >> 4 != 4)
			return 0;
		p->family = FW_AF_INET;
		p->proto = ip4.proto;
		p->ttl = ip4.ttl;
		t->saddr_be[0] = ip4.saddr_be;
		t->daddr_be[0] = ip4.daddr_be;
		len = (ip4.version_ihl & 15) * 4;
	} else if (protocol_be == fw_htons(FW_ETH_IP6)) {
		if (bpf_probe_read_kernel(&ip6, sizeof(ip6), ip))
			return 0;
		p->family = FW_AF_INET6;
		p->proto = ip6.next_header;
		p->ttl = ip6.hop_limit;
		__builtin_memcpy(t->saddr_be, ip6.saddr_be, sizeof(t->saddr_be));
		__builtin_memcpy(t->daddr_be, ip6.daddr_be, sizeof(t->daddr_be));
		len = FW_IP6_LEN;
	} else {
		return 0;
	}
	if (bpf_probe_read_kernel(l4, sizeof(l4), ip + len))
		return 0;
	id = fw_l4_id(l4, p->proto);
	__builtin_memcpy(&t->sport_be, &id, sizeof(id));
	return 1;
}

/* The same as it came in, by its connection: it may have been translated since. */
static __always_inline int fw_drop_came(struct fw_tuple *t, const struct sk_buff *skb)
{
	unsigned long nfct = BPF_CORE_READ(skb, _nfct);
	const struct nf_conn *ct = (const void *)(nfct & FW_NFCT_PTRMASK);

	if (!ct)
		return 0;
	if ((nfct & FW_NFCT_INFOMASK) >= FW_CT_IS_REPLY)
		FW_CONN_TUPLE(t, ct, 1);
	else
		FW_CONN_TUPLE(t, ct, 0);
	return 1;
}

static __always_inline enum fw_drop_place fw_drop_place(const struct sk_buff *skb, __u32 port)
{
	if (!(BPF_CORE_READ(skb, _skb_refdst) & FW_DST_PTRMASK))
		return FW_DROP_CAME;
	return BPF_CORE_READ(skb, skb_iif) == (int)port ? FW_DROP_ROUTED : FW_DROP_LEAVING;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(freeway_dropped, const struct sk_buff *skb, void *location, int reason)
{
	/* the call's last byte, for it may end its function */
	__u64 function = (__u64)location - 1;
	const struct fw_watch *w = fw_watch_get();
	const struct net_device *dev = BPF_CORE_READ(skb, dev);
	struct fw_tuple t = {};
	struct fw_dropped *ev;
	struct fw_pkt p = {};
	__u32 port;

	/* other namespaces have their own routers, and hosts that end the flow */
	if (!w || !dev || fw_netns_of(dev) != fw_cfg.netns_inum)
		return 0;
	if (!fw_drop_parse(&t, &p, skb))
		return 0;
	if (!fw_watched(w, &t, &p) && !(fw_drop_came(&t, skb) && fw_watched(w, &t, &p)))
		return 0;
	ev = fw_event_reserve(sizeof(*ev));
	if (!ev)
		return 0;
	port = BPF_CORE_READ(dev, ifindex);
	ev->ev.kind = FW_EV_DROPPED;
	ev->ev.reason = reason;
	ev->ev.state = 0;
	ev->ev.tick = fw_now();
	ev->tuple = t;
	ev->port = port;
	ev->place = fw_drop_place(skb, port);
	ev->ttl = p.ttl;
	ev->function[0] = 0;
	BPF_SNPRINTF((char *)ev->function, sizeof(ev->function), "%ps", function);
	fw_event_submit(ev);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
