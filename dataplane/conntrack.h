/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The numbers of conntrack that the data plane knows, for every target. */
#ifndef FW_CONNTRACK_H
#define FW_CONNTRACK_H

/* include/uapi/linux/netfilter/nf_conntrack_common.h */
enum fw_ips {
	FW_IPS_EXPECTED = 1 << 0,
	FW_IPS_SEEN_REPLY = 1 << 1,
	FW_IPS_ASSURED = 1 << 2,
	FW_IPS_CONFIRMED = 1 << 3,
	FW_IPS_SEQ_ADJUST = 1 << 6,
	FW_IPS_DYING = 1 << 9,
	FW_IPS_FIXED_TIMEOUT = 1 << 10,
	FW_IPS_TEMPLATE = 1 << 11,
	FW_IPS_NAT_CLASH = 1 << 12,
	FW_IPS_UNTRACKED = FW_IPS_NAT_CLASH, /* of what has no connection */
	FW_IPS_HELPER = 1 << 13,
	FW_IPS_OFFLOAD = 1 << 14,
	FW_IPS_HW_OFFLOAD = 1 << 15,
};

enum fw_ct_const {
	FW_CT_INFO_MASK = 7, /* NFCT_INFOMASK of skb->_nfct */
	FW_CT_IS_REPLY = 3,  /* enum ip_conntrack_info */
	FW_CT_UNTRACKED = 7,
	FW_CT_ESTABLISHED = 3,   /* TCP_CONNTRACK_ESTABLISHED */
	FW_CT_BE_LIBERAL = 0x08, /* IP_CT_TCP_FLAG_BE_LIBERAL */
	FW_WINDOW_MIN = 65536,   /* without scaling, and what a sender may be ahead by */
	FW_CT_SEQADJ_LEN = 24,   /* struct nf_conn_seqadj */
	FW_CT_SYNPROXY_LEN = 12, /* struct nf_conn_synproxy */
};

#endif
