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
	struct fw_source_end source;
	__u32 daddr_be;
	__u16 dport_be;
};

enum {
	FW_PORT_PRIVILEGED = 1024, /* conntrack keeps such ports among themselves */
	FW_TCP_FLAGS_AT = 13,
	FW_IP4_OFFSET_AND_MORE = 0x3fff,
};

/* 0 if it opens no connection; of UDP any may. */
static __always_inline int fw_opening_read(fw_ctx *ctx, struct fw_opening *o)
{
	const __u8 flags = FW_TCP_SYN | FW_TCP_FIN | FW_TCP_RST | FW_TCP_ACK;
	const void *data = fw_data(ctx), *end = fw_data_end(ctx);
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	const __u8 *l4 = data + FW_ETH_LEN + FW_IP4_LEN;

	if (ctx->protocol != fw_htons(FW_ETH_IP) || (const void *)(l4 + FW_UDP_LEN) > end)
		return 0;
	if (ip->version_ihl != 0x45 || (ip->frag_be & fw_htons(FW_IP4_OFFSET_AND_MORE)))
		return 0;
	if (ip->proto == FW_PROTO_TCP) {
		if ((const void *)(l4 + FW_TCP_LEN) > end)
			return 0;
		if ((l4[FW_TCP_FLAGS_AT] & flags) != FW_TCP_SYN)
			return 0;
	} else if (ip->proto != FW_PROTO_UDP) {
		return 0;
	}
	o->source.saddr_be = ip->saddr_be;
	o->source.sport_be = *(const fw_u16_any *)l4;
	o->source.proto = ip->proto;
	o->source.pad = 0;
	o->daddr_be = ip->daddr_be;
	o->dport_be = *(const fw_u16_any *)(l4 + 2);
	return fw_ntohs(o->source.sport_be) >= FW_PORT_PRIVILEGED;
}

/* Has conntrack a connection of these ends? */
static __noinline int fw_tracked(fw_ctx *ctx, const struct fw_source_end *from, __u32 daddr_be,
				 __u16 dport_be)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_ct_opts opts = {.netns_id = -1};
	struct nf_conn *ct;

	if (!from)
		return 1;
	opts.l4proto = from->proto;
	tuple.ipv4.saddr = from->saddr_be;
	tuple.ipv4.sport = from->sport_be;
	tuple.ipv4.daddr = daddr_be;
	tuple.ipv4.dport = dport_be;
	ct = bpf_skb_ct_lookup(ctx, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	if (!ct)
		return 0;
	bpf_ct_release(ct);
	return 1;
}

/* Notes the precedent; the one whose place it takes goes, if its packet has not come through. */
static __always_inline void fw_precedent_note(fw_ctx *ctx, struct fw_precedents *mine,
					      const struct fw_source_end *source)
{
	__u32 place = mine->next++ & (FW_PRECEDENTS - 1);
	struct fw_source_end old = mine->source[place];

	mine->source[place] = *source;
	mine->made++;
	if (old.sport_be)
		fw_tracked(ctx, &old, 0, 0);
}

static __always_inline void fw_precedent_make(fw_ctx *ctx, struct fw_precedents *mine,
					      const struct fw_opening *o, __u32 addr_be,
					      __u16 port_be)
{
	struct bpf_ct_opts opts = {.netns_id = -1, .l4proto = o->source.proto};
	struct bpf_sock_tuple tuple = {};
	union nf_inet_addr addr = {};
	struct nf_conn___init *init;
	struct nf_conn *ct;

	tuple.ipv4.saddr = o->source.saddr_be;
	tuple.ipv4.sport = o->source.sport_be;
	init = bpf_skb_ct_alloc(ctx, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	if (!init) {
		mine->refused++;
		return;
	}
	addr.all[0] = addr_be;
	bpf_ct_set_timeout(init, 0);
	bpf_ct_set_nat_info(init, &addr, fw_ntohs(port_be), NF_NAT_MANIP_SRC);
	ct = bpf_ct_insert_entry(init);
	if (!ct) {
		mine->refused++;
		return;
	}
	bpf_ct_release(ct);
	fw_precedent_note(ctx, mine, &o->source);
}

/* For the case that the kernel translates it to this address. */
static __noinline int fw_precede_at(fw_ctx *ctx, const struct fw_opening *o, __u32 addr_be,
				    __u32 table_index)
{
	/* the constants of the load, not those of the source */
	const __u64 key[] = {fw_cfg.hash_key[0], fw_cfg.hash_key[1]};
	const struct fw_port_table *table;
	struct fw_source_end server = {};
	struct fw_precedents *mine;
	struct fw_choice_key choice = {};
	__u32 zero = 0, bucket, first, count, start, tried;
	const __u32 *chosen;
	__u16 port_be = 0;

	table = bpf_map_lookup_elem(&fw_port_tables, &table_index);
	mine = bpf_map_lookup_elem(&fw_precedents_of, &zero);
	if (!o || !table || !mine)
		return 0;
	bucket = fw_bucket_end4(o->source.saddr_be, o->source.sport_be, key) & (FW_BUCKETS - 1);
	first = table->first[bucket];
	count = table->first[bucket + 1] - first;
	if (!count || count > FW_PRECEDENT_PORTS)
		return 0;
	/* not the hash that chose the bucket */
	start = ((__u64)o->source.sport_be << 32 | o->source.saddr_be) * key[1] >> 32;
	choice.end = o->source;
	choice.addr_be = addr_be;
	chosen = bpf_map_lookup_elem(&fw_choices, &choice);
	if (chosen)
		start += *chosen;
	server.saddr_be = o->daddr_be;
	server.sport_be = o->dport_be;
	server.proto = o->source.proto;
	for (tried = 0; tried < FW_PRECEDENT_TRIES; tried++) {
		port_be = table->port_be[(first + (start + tried) % count) &
					 (FW_PRECEDENT_PORTS - 1)];
		if (!fw_tracked(ctx, &server, addr_be, port_be))
			break;
		/* its own, of before: a SYN ends what has closed (nf_conntrack_tcp_packet()) */
		if (!tried && fw_tracked(ctx, &o->source, o->daddr_be, o->dport_be))
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
	fw_precedent_make(ctx, mine, o, addr_be, port_be);
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
	if (o.source.proto == FW_PROTO_UDP && fw_tracked(ctx, &o.source, o.daddr_be, o.dport_be))
		return 0;
	for (__u32 i = 0; i < FW_ORIGIN_ADDRESSES && i < origin->count; i++)
		fw_precede_at(ctx, &o, origin->addr_be[i], origin->table[i]);
	return 0;
}

#endif
