/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel sends of a packet that it was given for a next hop's sake (asked.h). */
#ifndef FW_ANSWERED_H
#define FW_ANSWERED_H

#include "abi.h"
#include "asked.h"
#include "csum.h"
#include "guard.h"
#include "parse.h"

static __always_inline int fw_asked_equal16(const void *one, const void *other)
{
	const fw_u64_any *a = one, *b = other;

	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

/* Has nothing changed but the TTL, and that by one? */
static __always_inline int fw_asked_same4(const struct fw_slot *slot, const void *data,
					  const void *end)
{
	const struct fw_ip4 *ip = data + FW_ETH_LEN;
	__u32 len;

	if ((const void *)(ip + 1) > end)
		return 0;
	len = fw_ntohs(ip->tot_len_be);
	return ip->version_ihl == 0x45 && ip->tos == slot->tos && len == slot->len_l3 &&
	       ip->id_be == slot->ip_id_be && ip->frag_be == slot->frag_be &&
	       ip->ttl == slot->ttl - 1 && ip->proto == slot->key.port_proto &&
	       ip->saddr_be == slot->key.saddr_be[0] && ip->daddr_be == slot->key.daddr_be[0] &&
	       fw_csum_ip(ip) == 0xffff &&
	       fw_asked_word(ip + 1, end, len - FW_IP4_LEN, 0) ==
		       *(const fw_u32_any *)&slot->key.sport_be &&
	       fw_asked_word(ip + 1, end, len - FW_IP4_LEN, 4) == slot->seq_be;
}

static __always_inline int fw_asked_same6(const struct fw_slot *slot, const void *data,
					  const void *end)
{
	const struct fw_ip6 *ip = data + FW_ETH_LEN;
	__u32 len;

	if ((const void *)(ip + 1) > end)
		return 0;
	len = fw_ntohs(ip->payload_len_be);
	return ip->word0_be == slot->flow_label_be && len + FW_IP6_LEN == slot->len_l3 &&
	       ip->hop_limit == slot->ttl - 1 && ip->next_header == slot->key.port_proto &&
	       fw_asked_equal16(ip->saddr_be, slot->key.saddr_be) &&
	       fw_asked_equal16(ip->daddr_be, slot->key.daddr_be) &&
	       fw_asked_word(ip + 1, end, len, 0) == *(const fw_u32_any *)&slot->key.sport_be &&
	       fw_asked_word(ip + 1, end, len, 4) == slot->seq_be;
}

/* Does it leave where, and as what, the record says? */
static __always_inline int fw_asked_exit(const struct __sk_buff *ctx, const struct fw_hop *hop,
					 const void *data)
{
	return !FW_TARGET_IS_RAW && hop->port == fw_port(ctx) && !fw_mark(ctx) &&
	       fw_l2_equal(data, hop->l2);
}

static __noinline enum fw_reason fw_asked_left(struct __sk_buff *ctx, __u32 token)
{
	struct fw_slot *slot = fw_slot_get(token - 1);
	struct fw_strayed *strayed;
	const void *data, *end;
	struct fw_hop *hop;
	__u32 now = fw_now(), changed;

	if (!slot || now - slot->tick > fw_cfg.hz)
		return FW_R_LEARN_STALE_TOKEN;
	if (slot->egress++)
		return FW_R_LEARN_COPIES;
	fw_pull(ctx);
	data = fw_data(ctx);
	end = fw_data_end(ctx);
	if (data + FW_ETH_LEN + FW_IP4_LEN > end || (ctx->gso_size && !slot->tc_alone) ||
	    ctx->vlan_present)
		return FW_R_LEARN_FRAME;
	hop = fw_hop_get(slot->served);
	if (slot->epoch != fw_ctl.epoch || !hop->status)
		return FW_R_LEARN_EPOCH;
	changed = slot->family == FW_AF_ROUTED6 ? !fw_asked_same6(slot, data, end)
						: !fw_asked_same4(slot, data, end);
	if (!changed && fw_asked_exit(ctx, hop, data)) {
		hop->misses = 0;
		hop->due_tick = now + fw_cfg.hz;
		hop->confirmed_tick = now;
		FW_WRITE_ONCE(hop->epoch, slot->epoch);
		return FW_R_ROUTE_CONFIRMED;
	}
	/* another prefix's packets are not to confirm it before this one's is withdrawn */
	hop->misses = FW_MISSES_MAX + 1;
	hop->due_tick = now + fw_cfg.hz / 4;
	FW_WRITE_ONCE(hop->epoch, 0);
	strayed = fw_event_reserve(sizeof(*strayed));
	if (!strayed)
		return FW_R_LEARN_RING;
	strayed->ev.kind = FW_EV_STRAYED;
	strayed->ev.reason = FW_R_ROUTE_CONTRADICTED;
	strayed->ev.state = slot->served;
	strayed->ev.tick = now;
	__builtin_memcpy(strayed->saddr_be, slot->key.saddr_be, 16);
	__builtin_memcpy(strayed->daddr_be, slot->key.daddr_be, 16);
	strayed->family = slot->family == FW_AF_ROUTED6 ? FW_AF_INET6 : FW_AF_INET;
	strayed->port_out = fw_port(ctx);
	strayed->changed = changed;
	fw_link_copy(strayed->l2_out, data);
	fw_event_submit(strayed);
	return FW_R_ROUTE_CONTRADICTED;
}

#endif
