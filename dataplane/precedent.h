/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Both directions of a translated connection in one bucket (bucket.h).
 *
 * A source that conntrack has translated before keeps its port: get_unique_tuple() in
 * net/netfilter/nf_nat_core.c looks for a connection of the same source (address, port, protocol)
 * and takes its translation, if it is one that the rule permits and nobody has with that
 * destination. So the first packet of a connection is preceded by an entry of its source, to
 * nowhere, translated to a port of the right bucket. Rules, filters, address, events and the
 * connection itself stay the kernel's.
 *
 * The entry has expired when it is made. No lookup returns it, no listing shows it, and the next
 * lookup that comes by takes it away.
 */
#ifndef FW_PRECEDENT_H
#define FW_PRECEDENT_H

#include "bucket.h"
#include "parse.h"
#include "target/kernel.h"

_Static_assert((int)FW_PRECEDENT_BUCKETS == (int)FW_BUCKETS, "buckets");

/* By ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FW_ORIGINS_MAX);
	__type(key, __u32);
	__type(value, struct fw_origin);
} FW_MAP(fw_origins);

/* Resized before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_port_table);
} FW_MAP(fw_port_tables);

/*
 * Which of its bucket's ports a source has, if not the first. A source has one port towards all
 * destinations, as it has without us. Resized before loading.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct fw_choice_key);
	__type(value, __u32);
} FW_MAP(fw_choices);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fw_precedents);
} FW_MAP(fw_precedents_of);

/* What a first packet says of its connection. */
struct fw_opening {
	struct fw_source_end from;
	struct fw_source_end to;
};

enum {
	FW_PORT_PRIVILEGED = 1024, /* conntrack keeps such ports among themselves */
	FW_TCP_FLAGS_AT = 13,
	FW_IP4_OFFSET_AND_MORE = 0x3fff,
};

/* The two ends; 0 if it is neither TCP nor UDP, or not all of it is there. */
static __always_inline int fw_ends_read(fw_ctx *ctx, struct fw_opening *o, const __u8 **l4)
{
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_ip4 *ip4 = data + FW_ETH_LEN;
	const struct fw_ip6 *ip6 = data + FW_ETH_LEN;

	if (ctx->protocol == fw_htons(FW_ETH_IP)) {
		*l4 = data + FW_ETH_LEN + FW_IP4_LEN;
		if ((const void *)(*l4 + FW_UDP_LEN) > end)
			return 0;
		if (ip4->version_ihl != 0x45 || (ip4->frag_be & fw_htons(FW_IP4_OFFSET_AND_MORE)))
			return 0;
		o->from.family = FW_AF_INET;
		o->from.proto = ip4->proto;
		o->from.addr_be[0] = ip4->saddr_be;
		o->to.addr_be[0] = ip4->daddr_be;
	} else if (ctx->protocol == fw_htons(FW_ETH_IP6)) {
		*l4 = data + FW_ETH_LEN + FW_IP6_LEN;
		if ((const void *)(*l4 + FW_UDP_LEN) > end)
			return 0;
		o->from.family = FW_AF_INET6;
		o->from.proto = ip6->next_header;
		__builtin_memcpy(o->from.addr_be, ip6->saddr_be, sizeof(o->from.addr_be));
		__builtin_memcpy(o->to.addr_be, ip6->daddr_be, sizeof(o->to.addr_be));
	} else {
		return 0;
	}
	o->to.family = o->from.family;
	o->to.proto = o->from.proto;
	o->from.port_be = *(const fw_u16_any *)*l4;
	o->to.port_be = *(const fw_u16_any *)(*l4 + 2);
	return o->from.proto == FW_PROTO_TCP || o->from.proto == FW_PROTO_UDP;
}

/* 0 if it opens no connection; of UDP any may. */
static __always_inline int fw_opening_read(fw_ctx *ctx, struct fw_opening *o)
{
	const __u8 flags = FW_TCP_SYN | FW_TCP_FIN | FW_TCP_RST | FW_TCP_ACK;
	const __u8 *l4;

	if (!fw_ends_read(ctx, o, &l4))
		return 0;
	if (o->from.proto == FW_PROTO_TCP) {
		if ((const void *)(l4 + FW_TCP_LEN) > fw_data_end(ctx))
			return 0;
		if ((l4[FW_TCP_FLAGS_AT] & flags) != FW_TCP_SYN)
			return 0;
	}
	return fw_ntohs(o->from.port_be) >= FW_PORT_PRIVILEGED;
}

/* The kfuncs tell families apart by the length, which must be a constant. */
static __always_inline void fw_ends_tuple(struct bpf_sock_tuple *tuple,
					  const struct fw_source_end *from,
					  const struct fw_source_end *to)
{
	if (from->family == FW_AF_INET) {
		tuple->ipv4.saddr = from->addr_be[0];
		tuple->ipv4.daddr = to->addr_be[0];
		tuple->ipv4.sport = from->port_be;
		tuple->ipv4.dport = to->port_be;
		return;
	}
	__builtin_memcpy(tuple->ipv6.saddr, from->addr_be, sizeof(from->addr_be));
	__builtin_memcpy(tuple->ipv6.daddr, to->addr_be, sizeof(to->addr_be));
	tuple->ipv6.sport = from->port_be;
	tuple->ipv6.dport = to->port_be;
}

/* Has conntrack a connection of these ends? */
static __noinline int fw_tracked(fw_ctx *ctx, const struct fw_source_end *from,
				 const struct fw_source_end *to)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_ct_opts opts = {.netns_id = -1};
	struct nf_conn *ct;

	if (!from || !to)
		return 1;
	opts.l4proto = from->proto;
	fw_ends_tuple(&tuple, from, to);
	if (from->family == FW_AF_INET)
		ct = bpf_skb_ct_lookup(ctx, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	else
		ct = bpf_skb_ct_lookup(ctx, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	if (!ct)
		return 0;
	bpf_ct_release(ct);
	return 1;
}

/* Notes the precedent; the one whose place it takes goes, if nobody has come by it. */
static __noinline int fw_precedent_note(fw_ctx *ctx, const struct fw_source_end *source)
{
	struct fw_source_end nowhere = {}, old;
	struct fw_precedents *mine;
	__u32 zero = 0, place;

	mine = bpf_map_lookup_elem(&fw_precedents_of, &zero);
	if (!mine || !source)
		return 0;
	place = mine->next++ & (FW_PRECEDENTS - 1);
	old = mine->source[place];
	mine->source[place] = *source;
	mine->made++;
	if (old.port_be)
		fw_tracked(ctx, &old, &nowhere);
	return 0;
}

enum {
	FW_PRECEDENT_REFUSED = 0, /* conntrack is full */
	FW_PRECEDENT_KEPT,        /* the source has one already */
	FW_PRECEDENT_MADE,
};

/* An expired connection of the source to nowhere, translated to `as`. */
static __noinline int fw_precedent_make(fw_ctx *ctx, const struct fw_source_end *source,
					const struct fw_source_end *as)
{
	struct bpf_ct_opts opts = {.netns_id = -1};
	struct fw_source_end nowhere = {};
	struct bpf_sock_tuple tuple = {};
	union nf_inet_addr addr = {};
	struct nf_conn___init *init;
	struct nf_conn *ct;

	if (!source || !as)
		return FW_PRECEDENT_REFUSED;
	opts.l4proto = source->proto;
	fw_ends_tuple(&tuple, source, &nowhere);
	if (source->family == FW_AF_INET)
		init = bpf_skb_ct_alloc(ctx, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	else
		init = bpf_skb_ct_alloc(ctx, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	if (!init)
		return FW_PRECEDENT_REFUSED;
	__builtin_memcpy(addr.all, as->addr_be, sizeof(as->addr_be));
	bpf_ct_set_timeout(init, 0);
	bpf_ct_set_nat_info(init, &addr, fw_ntohs(as->port_be), NF_NAT_MANIP_SRC);
	ct = bpf_ct_insert_entry(init);
	if (!ct)
		return FW_PRECEDENT_KEPT;
	/* Some kernels before 6.1.56 and 6.6 count the timeout above from boot, and then the entry
	 * may not have expired. This one is counted from now on all. */
	bpf_ct_change_timeout(ct, 0);
	bpf_ct_release(ct);
	return FW_PRECEDENT_MADE;
}

/* For the case that the kernel translates it to this address. */
static __noinline int fw_precede_as(fw_ctx *ctx, const struct fw_opening *o,
				    const struct fw_translated *to)
{
	/* the constants of the load, not those of the source */
	const __u64 key[] = {fw_cfg.hash_key[0], fw_cfg.hash_key[1], fw_cfg.hash_key[2]};
	__u32 zero = 0, bucket, first, count, start, tried, made;
	const struct fw_port_table *table;
	struct fw_choice_key choice = {};
	struct fw_precedents *mine;
	struct fw_source_end as = {};
	const __u32 *chosen;

	if (!o || !to || to->family != o->from.family)
		return 0;
	table = bpf_map_lookup_elem(&fw_port_tables, &to->table);
	mine = bpf_map_lookup_elem(&fw_precedents_of, &zero);
	if (!table || !mine)
		return 0;
	bucket = fw_bucket_end(&o->from, key) & (FW_BUCKETS - 1);
	first = table->first[bucket];
	count = table->first[bucket + 1] - first;
	if (!count || count > FW_PRECEDENT_PORTS)
		return 0;
	/* not the hash that chose the bucket */
	start = ((__u64)o->from.port_be << 32 | o->from.addr_be[3] | o->from.addr_be[0]) * key[1] >>
		32;
	choice.end = o->from;
	__builtin_memcpy(choice.addr_be, to->addr_be, sizeof(choice.addr_be));
	chosen = bpf_map_lookup_elem(&fw_choices, &choice);
	if (chosen)
		start += *chosen;
	as = o->from;
	__builtin_memcpy(as.addr_be, to->addr_be, sizeof(as.addr_be));
	for (tried = 0; tried < FW_PRECEDENT_TRIES; tried++) {
		as.port_be = table->port_be[(first + (start + tried) % count) &
					    (FW_PRECEDENT_PORTS - 1)];
		if (!fw_tracked(ctx, &o->to, &as))
			break;
		/* its own, of before: a SYN ends what has closed (nf_conntrack_tcp_packet()) */
		if (!tried && fw_tracked(ctx, &o->from, &o->to))
			break;
	}
	if (tried == FW_PRECEDENT_TRIES) {
		mine->taken++;
		return 0;
	}
	if (tried) {
		if (chosen)
			tried += *chosen;
		bpf_map_update_elem(&fw_choices, &choice, &tried, BPF_ANY);
	}
	made = fw_precedent_make(ctx, &o->from, &as);
	/* from here: one frame more on the stack is too many before Linux 6.8 */
	if (made == FW_PRECEDENT_MADE)
		fw_precedent_note(ctx, &o->from);
	else if (made == FW_PRECEDENT_REFUSED)
		mine->refused++;
	return 0;
}

/* Ahead of conntrack, of what comes in at a port whose connections are translated. */
static __noinline int fw_precede(fw_ctx *ctx)
{
	__u32 port = fw_port(ctx);
	const struct fw_origin *origin = bpf_map_lookup_elem(&fw_origins, &port);
	struct fw_opening o = {};

	if (!origin || !fw_opening_read(ctx, &o))
		return 0;
	/* of TCP the SYN says that it is new */
	if (o.from.proto == FW_PROTO_UDP && fw_tracked(ctx, &o.from, &o.to))
		return 0;
	for (__u32 i = 0; i < FW_ORIGIN_ADDRESSES && i < origin->count; i++)
		fw_precede_as(ctx, &o, &origin->to[i]);
	return 0;
}

#endif
