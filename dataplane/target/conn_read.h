/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connection of an skb at egress: from skb->_nfct where the kernel lets a
 * program see it (6.2), else by looking up the inverse of the tuple that leaves.
 */
#ifndef FW_TARGET_CONN_READ_H
#define FW_TARGET_CONN_READ_H

#include "conn.h"

static __always_inline __u8 fw_conn_ext(struct nf_conn *ct, __u32 id)
{
	struct nf_ct_ext *ext = BPF_CORE_READ(ct, ext);
	__u8 offset = 0;

	/* offset[] is the first member and has one byte for each extension */
	if (ext)
		bpf_probe_read_kernel(&offset, sizeof(offset), &ext->offset[0] + id);
	return offset;
}

/*
 * Does an extension hold anything but zeros in its first `len` bytes? The
 * kernel adds some to every connection that user space makes. `room` is free.
 */
static __always_inline __u8 fw_conn_ext_set(struct nf_conn *ct, __u32 id, struct fw_tuple *room,
					    __u32 len)
{
	struct nf_ct_ext *ext = BPF_CORE_READ(ct, ext);
	__u8 offset = fw_conn_ext(ct, id);
	__u32 any = 0;

	if (!offset)
		return 0;
	__builtin_memset(room, 0, sizeof(*room));
	if (bpf_probe_read_kernel(room, len, (void *)ext + offset))
		return 1;
	for (int i = 0; i < 4; i++)
		any |= room->saddr_be[i] | room->daddr_be[i];
	return !!any;
}

static __always_inline void fw_conn_fill(struct fw_conn *c, struct nf_conn *ct, __u8 dir)
{
	c->present = 1;
	c->dir = dir;
	c->status = BPF_CORE_READ(ct, status);
	c->mark = bpf_core_field_exists(ct->mark) ? BPF_CORE_READ(ct, mark) : 0;
	c->zone = bpf_core_field_exists(ct->zone) ? BPF_CORE_READ(ct, zone.id) : 0;
	c->timeout_ticks = BPF_CORE_READ(ct, timeout) - fw_now();
	c->tcp_state = BPF_CORE_READ(ct, proto.tcp.state);
	c->helper = !!fw_conn_ext(ct, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_HELPER));
	if (bpf_core_enum_value_exists(enum nf_ct_ext_id, NF_CT_EXT_SEQADJ))
		c->seqadj = fw_conn_ext_set(
			ct, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_SEQADJ), &c->orig,
			FW_CT_SEQADJ_LEN);
	if (bpf_core_enum_value_exists(enum nf_ct_ext_id, NF_CT_EXT_SYNPROXY))
		c->seqadj |= fw_conn_ext_set(
			ct, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_SYNPROXY), &c->orig,
			FW_CT_SYNPROXY_LEN);
	if (bpf_core_enum_value_exists(enum nf_ct_ext_id, NF_CT_EXT_TIMEOUT))
		c->timeout_policy = !!fw_conn_ext(
			ct, bpf_core_enum_value(enum nf_ct_ext_id, NF_CT_EXT_TIMEOUT));
	FW_CONN_TUPLE(&c->orig, ct, 0);
	FW_CONN_TUPLE(&c->reply, ct, 1);
}

/* Has the skb a connection? Seen from 6.2 on. */
static __always_inline int fw_conn_attached(fw_ctx *ctx)
{
	struct sk_buff *skb;

	if (!fw_cfg.ct || !fw_cfg.kern_ctx)
		return 0;
	skb = bpf_cast_to_kern_ctx(ctx);
	return !!(skb->_nfct & ~(unsigned long)FW_CT_INFO_MASK);
}

/* Is the L4 checksum that of the pseudo header alone (CHECKSUM_PARTIAL)? Seen from 6.2 on. */
static __always_inline int fw_unfinished(fw_ctx *ctx)
{
	struct sk_buff *skb;

	if (!fw_cfg.kern_ctx)
		return 0;
	skb = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(skb, ip_summed) == FW_CHECKSUM_PARTIAL;
}

static __always_inline void fw_conn_read(fw_ctx *ctx, struct fw_conn *c, const struct fw_tuple *out,
					 const struct fw_pkt *p)
{
	struct fw_tuple *inverse = &c->orig;
	struct bpf_ct_opts opts;
	struct nf_conn *ct;

	__builtin_memset(c, 0, sizeof(*c));
	if (!fw_cfg.ct)
		return;
	/* not bpf_ksym_exists(): before 6.4 that loads for no kfunc that exists */
	if (fw_cfg.kern_ctx) {
		struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
		unsigned long nfct = skb->_nfct;

		ct = (void *)(nfct & ~(unsigned long)FW_CT_INFO_MASK);
		if (ct)
			fw_conn_fill(c, ct, (nfct & FW_CT_INFO_MASK) >= FW_CT_IS_REPLY);
		else
			c->status =
				(nfct & FW_CT_INFO_MASK) == FW_CT_UNTRACKED ? FW_IPS_UNTRACKED : 0;
		return;
	}
	/* *c is room until it is filled: on 6.1 the stack is all used */
	for (int i = 0; i < 4; i++) {
		inverse->saddr_be[i] = out->daddr_be[i];
		inverse->daddr_be[i] = out->saddr_be[i];
	}
	inverse->sport_be = out->dport_be;
	inverse->dport_be = out->sport_be;
	ct = fw_conn_lookup(ctx, inverse, p->family, p->proto, (void *)&c->reply, &opts);
	if (!ct) {
		__builtin_memset(c, 0, sizeof(*c));
		return;
	}
	fw_conn_fill(c, ct, !opts.dir);
	bpf_ct_release(ct);
}

_Static_assert(sizeof(struct bpf_sock_tuple) <= sizeof(struct fw_tuple), "room for the kfunc");

#endif
