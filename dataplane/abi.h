/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The one binary interface between the data plane (BPF and native C) and user
 * space. Rust types are generated from this file. Constants are enums, so that
 * BTF and bindgen see them. No field is pointer-sized.
 *
 * Byte order: *_be is network order; everything else is host order.
 * Time: *_tick counts jiffies, 32 bits, and wraps; compare by signed difference.
 */
#ifndef FW_ABI_H
#define FW_ABI_H

#include <linux/types.h>

enum fw_const {
	FW_ABI_VERSION = 1,
	/* Ethernet, two 802.1Q tags, PPPoE and PPP. */
	FW_L2_MAX = 32,
	/* Tokens 1..FW_SLOTS travel in skb->tc_index; 0 is "none". */
	FW_SLOTS = 32768,
	/* Filter of what was observed once or offered lately. */
	FW_OFFER_BITS = 16,
	FW_OFFER_SETS = 1 << FW_OFFER_BITS,
	FW_OFFER_WAYS = 4,
	/* Sources that a CPU tells apart, by a hash; what one of them may show and offer in a
	 * second before it has only what others leave. */
	FW_SOURCES = 256,
	FW_SOURCE_OBSERVATIONS = 2048,
	FW_SOURCE_OFFERS = 1024,
	/* As many as a link can have VLANs. */
	FW_PORTS_MAX = 4096,
	/* Queues of ports at which the engine takes frames from XDP. */
	FW_SOCKETS_MAX = 1024,
	/* 802.1Q tags of a frame, of four octets each. */
	FW_TAGS_MAX = 2,
	FW_TAG_LEN = 4,
	/* By which a PPPoE session makes a frame longer: PPP's protocol takes the place of the
	   type. */
	FW_PPPOE_LEN = 8,
	/* Sessions that are looked at. */
	FW_SESSIONS_MAX = 256,
	/* With a session's number in the lower half. */
	FW_SESSION = 1 << 16,
	/* Lists of ports for frames that are copied, and ports in one; element 0 stays unused. */
	FW_OLISTS = 256,
	FW_OLIST_MAX = 31,
	/* Pairs of stations of bridges whose frames take a known path, and frames on their way
	   through the kernel's bridge. */
	FW_PATHS_MAX = 8192,
	FW_CROSSINGS = FW_SLOTS / 4,
	/* an IPv6 header's addresses, too */
	FW_CROSSING_HEAD = 56,
	FW_OWN_MACS_MAX = 4096,
	FW_EVENTS_SIZE = 1 << 22,
	FW_REASONS_MAX = 128,
	/* One packet seen once is not yet a pattern. */
	FW_MISSES_MAX = 3,
	/* Element 0 of the flow and next-hop arrays stays unused. */
	FW_INDEX_NONE = 0,
	/* Adjacent places of flows whose ports are close. */
	FW_GROUP = 64,
	/* Most places beside its home that a flow may be put to. */
	FW_REACH_MAX = 63,
	FW_SEEN_FLOWS = 64,
	FW_HASH_KEYS = 5,
	FW_KEY_IP6 = 1u << 31,
	/* IPS_* bits of a connection that must stay as they were learned:
	 * SEEN_REPLY, ASSURED, SEQ_ADJUST, NAT_CLASH, HELPER, OFFLOAD; rules see what
	 * has been answered as established, before as new */
	FW_CT_STATUS_KEEP = 1 << 1 | 1 << 2 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14,
	/* 2^32 by the golden ratio: a product's upper bits are a hash (Knuth, TAOCP 6.4) */
	FW_GOLDEN = 0x9e3779b1,
	FW_AF_INET = 4,
	FW_AF_INET6 = 6,
	/* Of a slot: a packet that asks for a prefix's next hop, the record `served`. */
	FW_AF_ROUTED = 1,
	FW_AF_ROUTED6 = 2,
};

/* Why a packet took the way it took: one list, see reasons.def. */
enum fw_reason {
#define FW_REASON(name, stage, words) FW_R_##name,
#include "reasons.def"
#undef FW_REASON
	FW_R_COUNT,
};

/* What a hit is allowed to do with the flow. */
enum fw_status {
	FW_ST_FREE = 0,
	/* In the table, not to be used yet: the connection is being prepared. */
	FW_ST_PREPARING = 1,
	FW_ST_ACTIVE = 2,
	/* FIN, RST or a failed connection check: the manager decides anew. */
	FW_ST_SUSPENDED = 3,
};

enum fw_flow_flag {
	/* Addresses or ports change: the L4 checksum does too. */
	FW_FLOW_NAT = 1 << 0,
	/* tc forwards this flow; XDP leaves it alone. */
	FW_FLOW_TC = 1 << 1,
	/* A conntrack entry stands behind it and is checked once a second. */
	FW_FLOW_CT = 1 << 2,
	/* The engine forwards this flow; XDP hands it over where it has its frames. */
	FW_FLOW_ENGINE = 1 << 3,
	/* Who forwards it; none of these: XDP. */
	FW_FLOW_OWNERS = FW_FLOW_TC | FW_FLOW_ENGINE,
};

/*
 * Flow key: ingress port, which of tagged frames is the VLAN's device, and 5-tuple as
 * the frame came in.
 * port_proto is ifindex << 8 | IP protocol; FW_KEY_IP6 marks IPv6.
 */
struct fw_key4 {
	__u32 saddr_be;
	__u32 daddr_be;
	__u16 sport_be;
	__u16 dport_be;
	__u32 port_proto;
};

struct fw_key6 {
	__u32 saddr_be[4];
	__u32 daddr_be[4];
	__u16 sport_be;
	__u16 dport_be;
	__u32 port_proto;
};

/*
 * The part of a flow that changes, one cache line. Counters are plain: RSS
 * keeps a direction on one CPU.
 */
struct fw_state {
	__u64 packets;
	__u64 bytes;  /* L2, as sent, without FCS */
	__u32 status; /* enum fw_status */
	__u32 epoch;  /* of the last confirmation; 0: to be confirmed */
	__u32 used_tick;
	/* the earlier of revalidation and connection check */
	__u32 due_tick;
	__u32 reval_tick;
	__u32 confirmed_tick;
	/* of the last plain TCP segment, as it came in; both 0: none yet */
	__u32 seq_be;
	__u32 ack_be;
	__u32 peer;     /* place of the other direction's flow, or none */
	__u32 index;    /* the manager's number of the flow */
	__u16 interval; /* of revalidation, ticks */
	__u16 len_data; /* octets of data of that segment */
	__u16 len_max;  /* longest L3 packet that the kernel is proven to forward */
	__u8 misses;    /* revalidations that did not come out, in a row */
	__u8 pending;   /* a revalidation is under way */
};

/* What the connection behind a flow was when the flow was learned, by the flow's index. */
struct fw_kept {
	__u32 ct_mark;
	__u32 ct_status; /* IPS_* bits that must stay: FW_CT_STATUS_KEEP */
};

/*
 * What the last segment of a direction of a TCP connection said that did not take the fast path,
 * by fw_edge_key(): of connections that are, or were, of the table. fw_state has those of fast
 * segments.
 */
struct fw_edge {
	__u64 peer; /* fw_edge_key() of the other direction */
	__u32 seq_be;
	__u32 ack_be;   /* both 0: none yet */
	__u32 len_data; /* octets */
	__u32 tick;
};

/*
 * A flow: key, guard (what else must be equal), action (what is then done) and
 * state. An element of an array that the manager writes by mmap(2); the data
 * plane writes only its state. The hash of the key names its home in the array;
 * if that is taken it is displaced by 1, 3, 6, 10 ... groups and a few places. An IPv4 hit
 * touches the first two of the three cache lines, and nothing else of the table.
 *
 * Deltas are ones' complement sums of ~old and new 16-bit words (RFC 1624
 * eqn. 3), never 0.
 */
struct fw_flow {
	struct fw_key4 key; /* IPv6: addresses are 0 here */
	/* 24 octets as an IPv4 frame begins, compared as they lie under a mask */
	__u8 l2_in[14];
	__u8 version_ihl; /* IPv4: 0x45 */
	__u8 dscp_in;     /* upper six bits of TOS or traffic class */
	/* IPv6: version, DSCP and flow label; IPv4: length and identification, not compared */
	__u32 word0_in_be;
	__u16 zero; /* IPv4: fragment */
	__u8 ttl_in;
	__u8 dscp_out; /* not compared */
	/* 16 octets as an IPv4 frame leaves, from TTL to ports, changed or not; a delta in the
	 * checksum's place */
	__u8 ttl_out;
	__u8 proto;     /* IPv4 */
	__u16 l3_delta; /* IPv4: addresses, TTL and TOS */
	__u32 saddr_be; /* IPv4 */
	__u32 daddr_be;
	__u16 sport_be;
	__u16 dport_be;
	__u32 nexthop; /* index */
	__u16 l4_delta;
	__u8 flags; /* enum fw_flow_flag */
	/* of this home, whoever lives here: how far to look for its displaced flows */
	__u8 reach;

	struct fw_state state;

	__u32 key_saddr6_be[4];
	__u32 key_daddr6_be[4];
	__u32 saddr6_be[4];
	__u32 daddr6_be[4];
};

/*
 * Tags between the MAC addresses and what the frame carries, outermost first:
 * protocol, then VLAN, priority 0. Unused ones are 0.
 */
struct fw_tag {
	__u16 tpid_be;
	__u16 tci_be;
};

/* What fw_nexthop.valid says. */
enum fw_nexthop_kind {
	FW_NH_INVALID = 0,
	FW_NH_PORT = 1,
	/* A list of ports, each of which gets a copy; devmap_slot is the list's number. */
	FW_NH_OLIST = 2,
	/* One whose copies are alike: what is written ahead of the copying is all. */
	FW_NH_OLIST_ALIKE = 3,
};

/* Where a flow leaves: immutable once valid, then only invalidated. */
struct fw_nexthop {
	__u8 l2[FW_L2_MAX - 8]; /* without tags and session */
	/* these the devices below write; of flows that XDP owns */
	struct fw_tag tag[FW_TAGS_MAX];
	__u32 port; /* egress ifindex */
	__u32 devmap_slot;
	__u32 valid;     /* enum fw_nexthop_kind */
	__u16 tags_len;  /* octets */
	__u16 outer_len; /* of tags and session */
	__u16 l2_len;
	/* of flows that the engine owns: leaf of the output's scheduler, from 1 on; 0: there is
	 * none */
	__u16 leaf;
	/* of the skb, for qdiscs and their filters; of flows that tc owns, or that have a leaf */
	__u32 mark;
	__u32 priority;
	__u32 session; /* 0, or FW_SESSION and its number */
};

/*
 * Outgoing interface list (RFC 7761) of a multicast flow: where its copies leave, and as
 * what. Immutable while a flow may be using it. No two are of one device.
 */
struct fw_olist {
	__u32 count;
	__u32 device[FW_OLIST_MAX]; /* at which they leave, ifindex */
	struct fw_nexthop leg[FW_OLIST_MAX];
};

/* Ahead of a frame that is copied: how each copy's port knows what to make of it. */
struct fw_copy {
	__u32 magic; /* fw_config.copy_magic */
	__u32 olist;
};

/* How the packets of a device come in at another one, for XDP. */
struct fw_framing {
	__u32 port; /* at which they come in, ifindex */
	struct fw_tag tag[FW_TAGS_MAX];
	__u32 session; /* 0, or FW_SESSION and its number */
};

/* Whose they are. */
struct fw_framed {
	__u32 port; /* ifindex */
	/* destination and source of a session's frames */
	__u8 macs[12];
};

/* A station of a bridge that sends to another one. */
struct fw_stations {
	__u32 port;    /* of the bridge, at which its frames come in, ifindex; of what the router
			* sends, the bridge or a VLAN of it */
	__u8 macs[12]; /* destination, source */
	struct fw_tag tag; /* with priority and DEI; all 0: none */
};

/* What a bridge goes by for packets to a group: br_mdb_entry_skb_get(). IPv4 in the first word. */
struct fw_group {
	__u32 saddr_be[4];
	__u32 daddr_be[4];
};

/* Which way their frames take, as the kernel has been seen to send them. */
struct fw_path {
	struct fw_stations
		key; /* once more: the place of one that is gone may be another's at once */
	__u32 epoch; /* in which that was; 0: they wait */
	__u32 reval_tick;
	__u32 interval; /* ticks between two revalidations */
	__u32 used_tick;
	__u32 port; /* of the bridge, at which they leave, ifindex */
	__u32 devmap_slot;
	struct fw_tag tag;     /* of the frame that leaves */
	__u32 count;           /* place of what is counted */
	__u16 len_max;         /* octets of a frame that comes in */
	__u16 misses;          /* revalidations without an answer */
	struct fw_group group; /* of what is copied, which this is for alone */
};

struct fw_path_count {
	__u64 packets;
	__u64 bytes; /* of frames as they come in */
};

/* In the place of a path's slot: its frames are the router's, as of path->port. */
#define FW_PATH_UP 0xffffffffU
/* In the same place: they are copied to the list of the next hop path->port. */
#define FW_PATH_COPIES 0xfffffffeU

/* An address of the router's own, at some bridge. */
struct fw_own_mac {
	__u8 mac[6];
	__u8 pad[2];
};

/* Bits of fw_control.bridges. */
enum fw_bridges {
	FW_BRIDGES_LEARN = 1 << 0,
	/* What is for the router itself, too, and what it sends. */
	FW_BRIDGES_ROUTED = 1 << 1,
	/* What is for groups, where a bridge knows who listens. */
	FW_BRIDGES_GROUPS = 1 << 2,
};

enum fw_crossing_flags {
	/* The router sent it: key.port is the bridge, or a VLAN of it. */
	FW_CROSSING_DOWN = 1 << 0,
	/* It is for the router, and had a path in XDP. */
	FW_CROSSING_SEEN = 1 << 1,
};

/* A frame on its way through the kernel's bridge. */
struct fw_crossing {
	struct fw_stations key;
	__u32 epoch;
	__u32 tick;
	__u32 egress; /* frames that left under its token */
	__u32 len;    /* octets, without the tag */
	__u32 flags;  /* enum fw_crossing_flags */
	/* of a frame to a group: legs of the known path by which copies left, and whether the
	 * copies are offered */
	__u32 served;
	__u32 offered;
	__u8 head[FW_CROSSING_HEAD];
};

/* What a PPPoE session's frames are seen to be. */
enum fw_session_shown {
	/* What leaves is IP and nothing else around it: no compression, encryption, fragments. */
	FW_SESSION_PLAIN = 1 << 0,
	/* Something else did leave. */
	FW_SESSION_OTHER = 1 << 1,
	/* What comes in comes out at several devices. */
	FW_SESSION_SHARED = 1 << 2,
};

/*
 * Made by the daemon for the sessions that there are, written by tc. Its place is the
 * value of FW_SESSION and its number in another map.
 */
struct fw_session {
	__u32 device;  /* at which its frames leave, ifindex */
	__u32 port;    /* the PPP device at which its packets come out, ifindex */
	__u32 shown;   /* enum fw_session_shown */
	__u8 macs[12]; /* destination and source of what leaves */
};

/*
 * Marks of TCP flows of which the kernel has confirmed a packet, a byte each:
 * the data plane sets them, the manager reads and clears.
 */
struct fw_seen {
	__u8 flow[FW_SEEN_FLOWS];
};

/* Written by the daemon, read by each packet: one cache line. */
struct fw_control {
	/* FW_ST_ACTIVE if the fast path is on, else 0; with epoch one word, as in fw_state. */
	__u32 on;
	/* Hard epoch, never 0. Flows confirmed in another one wait in the kernel. */
	__u32 epoch;
	/* Past it every program passes everything to the kernel. Where it is long past, tc moves
	 * it. */
	__u32 deadline_tick;
	/* Non-zero: a tuple is being watched (fw_watch). */
	__u32 watch;
	/* Non-zero: learn at egress. */
	__u32 learn;
	/* Revalidations that each CPU may let through in a tick. */
	__u32 reval_budget;
	/* Connections that each CPU may look up in a tick for its hits. */
	__u32 check_budget;
	/* Candidates that each CPU may offer in a tick. */
	__u32 offer_budget;
	/* TCP data frames that each CPU keeps out of GRO in a tick. */
	__u32 sample_budget;
	/* Non-zero: UDP connections without any reply may be learned. */
	__u32 udp_one_way;
	/* Non-zero: conntrack sees IPv4 or IPv6, so a packet without a connection is invalid. */
	__u32 tracks4;
	__u32 tracks6;
	/* Non-zero: some flows are tc's, or a tuple is watched, also where there is no XDP. */
	__u32 tc_forwards;
	/* Non-zero: there are multicast routes. */
	__u32 multicast;
	/* enum fw_bridges: what is learned of bridged frames. */
	__u32 bridges;
	/*
	 * Non-zero: there are edges of TCP connections (struct fw_edge). What ends said before this
	 * tick counts no more: another router may have forwarded for them meanwhile.
	 */
	__u32 edges_tick;
};

/* The tuple that `explain` watches; ports and addresses as on the wire. */
struct fw_watch {
	__u32 saddr_be[4];
	__u32 daddr_be[4];
	__u16 sport_be;
	__u16 dport_be;
	__u8 family; /* FW_AF_* */
	__u8 proto;
	__u16 pad;
};

/* Packets of one reason that the kernel is given, on each CPU. */
struct fw_limit {
	__u32 packets_per_s; /* 0: all */
	__u32 burst;         /* packets that may come at once after a pause */
};

/* Load-time constants: what they switch off is not even loaded. */
struct fw_config {
	__u32 hz;             /* ticks a second */
	__u32 ct;             /* conntrack kfuncs are there */
	__u32 ct_check_ticks; /* between two connection checks of a flow */
	__u32 slots_per_cpu;  /* power of two */
	/* elements - 1 of arrays whose size is a power of two */
	__u32 flow_mask;
	__u32 nexthop_mask;
	__u32 kern_ctx;   /* bpf_cast_to_kern_ctx() is there (6.2) */
	__u32 hash_shift; /* what is left is a flow's home */
	__u32 police;     /* some reason has a limit */
	__u32 sockets;    /* XDP may have to hand frames to the engine */
	__u32 copy_magic; /* random: metadata may also be a driver's */
	__u32 netns_inum; /* the daemon's network namespace, as its inode is numbered */
	__u32 hop_mask;
	__u32 precedents;             /* connections are given translated ports by their bucket */
	__u64 hash_key[FW_HASH_KEYS]; /* random and odd, so that nobody can aim at a home */
	struct fw_limit limit[FW_REASONS_MAX];
};

/*
 * Precedents: what conntrack follows when it translates the source of a connection (precedent.h).
 */
enum fw_precedent_const {
	/* Addresses that the connections of an ingress port are translated to. */
	FW_ORIGIN_ADDRESSES = 4,
	FW_ORIGINS_MAX = 1024,
	FW_PORT_TABLES = 16,
	/* Translated ports: where no service is, whose name middleboxes might go by. */
	FW_PRECEDENT_PORT_MIN = 32768,
	FW_PRECEDENT_PORTS = 65536 - FW_PRECEDENT_PORT_MIN,
	FW_PRECEDENT_BUCKETS = 512,
	/* Ports that are tried for a connection, if others have the first ones. */
	FW_PRECEDENT_TRIES = 16,
	/* Of a CPU; power of two, and more than what a poll brings between tc ingress and NAT. */
	FW_PRECEDENTS = 64,
	FW_CHOICES_MAX = 16384,
};

/* An address that connections are translated to, and its fw_port_table. Of IPv4 the first word. */
struct fw_translated {
	__u32 addr_be[4];
	__u32 table;
	__u32 family; /* FW_AF_* */
};

/* An ingress port whose connections are translated. */
struct fw_origin {
	__u32 count;
	struct fw_translated to[FW_ORIGIN_ADDRESSES];
};

/* Ports that are worth the same at an address: bucket b has those from first[b] to first[b + 1]. */
struct fw_port_table {
	__u16 first[FW_PRECEDENT_BUCKETS + 1];
	__u16 pad;
	__u16 port_be[FW_PRECEDENT_PORTS];
};

/* A source that has a precedent. */
struct fw_source_end {
	__u32 addr_be[4];
	__u16 port_be;
	__u8 proto;
	__u8 family; /* FW_AF_* */
};

/* A source at a translated address. */
struct fw_choice_key {
	struct fw_source_end end;
	__u32 addr_be[4];
};

/* Of one CPU: the youngest precedents, and what became of all. */
struct fw_precedents {
	__u64 made;
	__u64 taken;   /* the ports that were tried are others' with that destination */
	__u64 refused; /* conntrack is full */
	__u32 next;
	__u32 pad;
	struct fw_source_end source[FW_PRECEDENTS];
};

/* A token bucket: one for each reason and CPU. */
struct fw_policer {
	__u64 dropped; /* packets */
	__u64 credit;  /* in shares of a packet, fw_config.hz to one */
	__u32 tick;    /* at which the credit was that */
	__u32 pad;
};

/*
 * What the scrubber drops ahead of the kernel: addresses of sets that a rule of the ruleset
 * drops by. A rule of the kernel's is one or several of these, each a bit of a word.
 */
enum fw_scrub_const {
	FW_SCRUB_RULES = 64,
	/* Which rules drop an address: those of a class, and most have the same few. */
	FW_SCRUB_CLASSES = 1024,
	/* Of an entry in place of its class: nobody's yet; somebody's that has left. */
	FW_SCRUB_FREE = 0,
	FW_SCRUB_LEFT = 1,
	FW_SCRUB_CLASS_FIRST = 2,
	/* Entries of a cache line, and lines that are looked at from an address's home on. */
	FW_SCRUB_WAYS4 = 7,
	FW_SCRUB_WAYS6 = 2,
	FW_SCRUB_LINES4 = 8,
	FW_SCRUB_LINES6 = 4,
	/* Sides of a line: one too many, so that they are found by a shift. */
	FW_SCRUB_SIDES4 = 8,
	/* In place of a tag: an address whose home is here stands in a line behind. */
	FW_SCRUB_MORE_SHIFT = 56,
	/* Where in a sum a tag is: below what names the line. */
	FW_SCRUB_TAG_SHIFT = 24,
	/* Ranges of ports that a rule may name. */
	FW_SCRUB_RANGES = 8,
	/* One drop of so many is counted at its address. */
	FW_SCRUB_SAMPLE = 64,
	/* What stands beside the address in a concatenation: bits of fw_scrub6.pair's kind. */
	FW_SCRUB_PAIR_PROTO = 1 << 0,
	FW_SCRUB_PAIR_DPORT = 1 << 1,
	FW_SCRUB_PAIR_SPORT = 1 << 2,
	FW_SCRUB_PAIR_IP4 = 1 << 3,
	FW_SCRUB_PAIR_SHIFT = 24,
	/* Bits of fw_scrub.ranges. */
	FW_SCRUB_NETS4 = 1 << 0,
	FW_SCRUB_NETS6 = 1 << 1,
};

/*
 * IPv4 addresses, a cache line of them: all that a drop reads of its address, but in the last
 * second of its time. Tags are bytes of the addresses' sums, compared all at once.
 */
struct fw_scrub4 {
	__u64 tags; /* of way i at bit 8 * i */
	__u32 addr_be[FW_SCRUB_WAYS4];
	/* a class, and above it the upper bits of the end's tick, 0 if there is none; or
	   FW_SCRUB_FREE */
	__u32 meta[FW_SCRUB_WAYS4];
};

/* What is seldom asked of an address. */
struct fw_scrub_side4 {
	__u32 until_tick; /* 0: for good */
	__u32 hits;       /* packets, by sample */
};

/* An IPv6 address, or one of either version with what stands beside it. */
struct fw_scrub6 {
	__u32 addr_be[4]; /* IPv4: in the first */
	__u32 pair;       /* kind << FW_SCRUB_PAIR_SHIFT | protocol << 16 | port; 0: none */
	__u32 until_tick;
	__u32 hits;
	__u32 class;
};

/* Keys of longest prefix matches, and their value. */
struct fw_scrub_net4 {
	__u32 len;
	__u32 addr_be;
};

struct fw_scrub_net6 {
	__u32 len;
	__u32 addr_be[4];
};

struct fw_scrub_net {
	__u32 until_tick;
	__u32 class;
	__u32 hits;
	__u32 pad;
};

struct fw_scrub_class {
	__u64 rules;
	__u64 plain; /* the lowest of them, if it has no conditions */
	__u32 first; /* its number */
	__u32 pad[3];
};

/* What else must be equal for a rule to drop. */
struct fw_scrub_rule {
	__u32 due_tick; /* from then on the kernel is given the next packet */
	__u8 proto;     /* 0: any */
	__u8 dports;    /* ranges in use; 0: any */
	__u16 pad;
	__u16 dport_first[FW_SCRUB_RANGES];
	__u16 dport_last[FW_SCRUB_RANGES];
};

/* Written by the daemon, the same at all ports. */
struct fw_scrub {
	__u32 valid;  /* 0: everything is the kernel's */
	__u32 ranges; /* enum fw_scrub_const: there are prefixes */
	__u32 pairs;  /* bit k: there are concatenations of kind k */
	__u32 pad;
	struct fw_scrub_rule rule[FW_SCRUB_RULES];
	struct fw_scrub_class class[FW_SCRUB_CLASSES];
};

/* The same of one port. */
struct fw_scrub_here {
	__u64 by_source; /* rules that look at the source */
	__u64 by_destination;
	__u8 mac[6]; /* frames to other stations are the kernel's */
	__u16 pad;
};

struct fw_scrub_count {
	__u64 dropped; /* packets */
	__u64 bytes;   /* of their frames */
	__u64 passed;  /* that the rule would drop, and the kernel was given */
};

/* Load-time constants. */
struct fw_scrub_config {
	__u32 hz;
	__u32 shift4; /* what is left of a sum names a line */
	__u32 mask6;  /* entries - 1 */
	__u32 shift6; /* as shift4 */
	__u32 count_mask;
	__u32 pad;
	__u64 hash_key[3];
};

/*
 * Limits of what sources may send (ratelimit.h): a token bucket for each limit and prefix of
 * sources. Times are in shares of a tick, so many to one as FW_RATELIMIT_SHIFT says.
 */
enum fw_ratelimit_const {
	FW_RATELIMITS = 32,
	FW_RATELIMIT_SHIFT = 24,
	/* Buckets of a line: what its prefix's sum names. */
	FW_RATELIMIT_WAYS = 4,
	/* Of a bucket in place of its owner: nobody's; about to be somebody's. */
	FW_RATELIMIT_FREE = 0,
	FW_RATELIMIT_TAKEN = 1,
	/* Owners: IPv6 or not, a limit, and from there on the number of its making, 1 or more. */
	FW_RATELIMIT_OWNER_IP6 = 1 << 7,
	FW_RATELIMIT_OWNER_SHIFT = 8,
};

/* What limits tell apart, by port as masks of limits. */
enum fw_ratelimit_kind {
	FW_RATELIMIT_OTHER,
	FW_RATELIMIT_TCP,
	FW_RATELIMIT_SYN, /* which begins a connection */
	FW_RATELIMIT_UDP,
	FW_RATELIMIT_ICMP,
	FW_RATELIMIT_KINDS,
};

/* A bucket that is full says no more than one that is not there. */
struct fw_ratelimit_bucket {
	__u64 full_at;   /* when it is full if nothing more comes */
	__u64 prefix[2]; /* as in the packet, without what is behind the prefix; IPv4: the first */
	__u32 owner;
	__u32 dropped; /* packets */
};

/* A limit. It changes only while no port has it. */
struct fw_ratelimit_rule {
	__u64 cost;       /* time that a packet takes away */
	__u64 depth;      /* time that may be taken away before a packet is too many */
	__u64 mask_be[2]; /* IPv6 */
	__u64 mask4_be;
	__u32 owner; /* without FW_RATELIMIT_OWNER_IP6 */
	__u32 pad;
};

/* Written by the daemon, the same at all ports. */
struct fw_ratelimit {
	struct fw_ratelimit_rule rule[FW_RATELIMITS];
};

/* What a port has of its own. */
struct fw_ratelimit_here {
	__u32 limits[FW_RATELIMIT_KINDS]; /* as bits */
	__u8 mac[6];                      /* frames to other stations are none of theirs */
	__u16 pad[3];
};

/* One for each limit and CPU. */
struct fw_ratelimit_count {
	__u64 dropped;   /* packets */
	__u64 bytes;     /* of their frames */
	__u64 forgotten; /* buckets that were not full, for want of room */
};

/* Load-time constants. */
struct fw_ratelimit_config {
	__u64 hash_key[3];
	__u32 shift; /* what is left of a sum names a line */
	__u32 count_mask;
};

/*
 * Prefix paths: packets without a flow leave by the kernel's routes. A longest prefix match
 * (prefix4.h, prefix6.h) gives a leaf, the leaf a record, which carries packets while the kernel's
 * own frames confirm it.
 */
enum fw_route_const {
	/* Leaves: of IPv4, and from here on of IPv6. */
	FW_LEAVES6 = 4096,
	FW_LEAVES = 2 * FW_LEAVES6,
	/* Records, which rest before they are used again; 0 of both is the kernel's. */
	FW_HOPS = 2 * FW_LEAVES,
	/* A unicast route that is the kernel's to follow. */
	FW_LEAF_UNICAST = 1,
	FW_LEAF_FIRST = 2,
	/*
	 * Of each block of destinations a packet a second goes through the kernel: first octets of
	 * IPv4, then hashes of the first 32 bits of IPv6.
	 */
	FW_ROUTE_BLOCKS6 = 256,
	FW_ROUTE_BLOCKS = 2 * FW_ROUTE_BLOCKS6,
	/* Ticks by which the engine's clock is behind that of programs, at most, and some more. */
	FW_CLOCKS_DIFFER = 8,
	/* Bits of a hash of the router's own addresses. */
	FW_OWN_BITS = 12,
	/* fw_route_here.rp_filter */
	FW_RP_OFF = 0,
	FW_RP_STRICT = 1,
	FW_RP_LOOSE = 2,
	/* fw_hop.status of one that XDP may not send by. */
	FW_HOP_TC = 4,
	/* What is known at a port: of itself, and of each 802.1Q VLAN above it, by its number. */
	FW_ROUTE_VLANS = 4096,
	/* Ports of the engine and VLANs at them are half as many at most. */
	FW_ROUTE_ENTRANCES = 1024,
	/* A VLAN's home is so many places, times its number, behind its port's own. */
	FW_ROUTE_ENTRANCE_STEP = 61,
	/* Families, as bits. */
	FW_ROUTES_IPV4 = 1,
	FW_ROUTES_IPV6 = 2,
	/* Beside families, at a port: the engine's, whose flows tc leaves it. */
	FW_ROUTES_ENGINE = 4,
};

/* Where the engine is concerned. */
enum fw_hop_engine {
	FW_HOP_ELSEWHERE = 0, /* it leaves at a port that is not the engine's */
	FW_HOP_ENGINE = 1,    /* the engine may send by it */
	/* The engine's as a flow alone: at the engine's ports tc leaves it to flows. */
	FW_HOP_FLOWS = 2,
};

/* A next hop. The daemon writes a record while no leaf leads to it, and changes only `status`. */
struct fw_hop {
	__u8 l2[14];
	__u16 len_max; /* longest L3 packet */
	__u32 port;    /* egress ifindex */
	__u32 devmap_slot;
	__u32 status; /* FW_ST_ACTIVE: XDP may send by it; FW_HOP_TC: XDP may not; 0: nobody's */
	__u32 epoch;  /* of the last confirmation; 0: to be confirmed */
	__u32 due_tick;
	__u32 confirmed_tick;
	__u32 misses; /* packets through the kernel that did not come out, in a row */
	__u32 leaf;
	struct fw_tag tag; /* that XDP and the engine put on, for the device below; all 0: none */
	__u32 tc;          /* non-zero: tc may send by it */
	__u32 engine;      /* enum fw_hop_engine */
	__u32 wanted;      /* the engine has given the kernel a packet of it: tc is to ask by one */
};

/* The same at all ports. */
struct fw_routes {
	__u32 valid; /* FW_ROUTES_*: everything else is the kernel's */
	/* Rises ahead of each reuse of what was in use: who looks things up without RCU reads it
	   before and after, as a seqcount. */
	__u32 seq;
	__u32 due_tick[FW_ROUTE_BLOCKS];
	/* IPv4 addresses that the kernel refuses as sources: a set bit is perhaps one. */
	__u32 own[(1 << FW_OWN_BITS) / 32];
	__u32 record[FW_LEAVES];
};

/* Of one port, or of a VLAN above it. */
struct fw_route_here {
	__u8 mac[6]; /* frames to other stations are the kernel's */
	__u16 rp_filter;
	__u32 port;     /* ifindex */
	__u32 families; /* FW_ROUTES_* */
};

/* Of a port of the engine, or of a VLAN at one; open addressing. */
struct fw_route_entrance {
	__u32 base; /* ifindex of the TAP; 0: none */
	__u32 vlan; /* 802.1Q; 0: the TAP itself */
	struct fw_route_here here;
	__u32 unused[2];
};

/* By CPU, then by the engine's worker; and leaf. */
struct fw_route_count {
	__u64 packets;
	__u64 bytes; /* of their frames, as sent, without FCS */
};

/* Load-time constants. */
struct fw_route_config {
	__u32 count_mask;
	__u32 pad;
};

/* Ahead of a frame that XDP gives to the kernel: the record by which it would have left. */
struct fw_route_hint {
	__u32 magic; /* ~fw_config.copy_magic */
	__u32 hop;
};

/* Context of the clock program: user space asks for the data plane's time. */
struct fw_clock {
	__u32 tick;
	__u32 pad;
};

enum fw_hooked_const {
	/* NFPROTO_ numbers, NF_INET_NUMHOOKS. */
	FW_NF_IPV4 = 2,
	FW_NF_BRIDGE = 7,
	FW_NF_IPV6 = 10,
	FW_HOOKS = 5,
	FW_HOOKED_MAX = 64,
	FW_HOOKED_NAME = 64,
};

/* Context of the programs that tell who is hooked in: a device, or a hook of netfilter. */
struct fw_hooked_at {
	__u32 ifindex;
	__u32 family; /* FW_NF_* */
	__u32 hook;
	__u32 pad;
};

/* Their answer. */
struct fw_hooked {
	__u32 count; /* there may be more than have a place */
	__u32 pad;
	/* Functions as "%ps" prints them: with their module, if they are of one. */
	__u8 names[FW_HOOKED_MAX][FW_HOOKED_NAME];
};

/* What was observed at egress lately. */
struct fw_observation {
	__u32 tag; /* of key, action and epoch, odd; 0: none */
	__u32 first_tick;
};

/* A tuple that was observed, and when it was offered. */
struct fw_offer {
	__u32 key_tag; /* of the key alone */
	__u32 tick;    /* odd; 0: not yet */
};

/*
 * Observations whose keys fall together; one alone would be pushed out by turns.
 * Offers are all that tc ingress looks at: few bytes, those of adjacent flows
 * beside each other.
 */
struct fw_offer_set {
	struct fw_offer offer[FW_OFFER_WAYS];
};

struct fw_observation_set {
	struct fw_observation seen[FW_OFFER_WAYS];
};

/* What came in: written by tc ingress, read by tc egress under its token. */
struct fw_slot {
	__u8 l2[FW_L2_MAX];
	struct fw_key6 key; /* IPv4 in saddr_be[0], daddr_be[0] */
	__u32 epoch;
	__u32 tick;
	__u32 egress; /* frames that left under this token */
	__u32 mark;
	__u16 l2_len;
	__u16 len_l3; /* of a segment for GSO */
	__u16 ip_id_be;
	__u16 frag_be;
	__u16 l4_csum;
	__u8 ttl;
	__u8 tos;
	__u8 family;
	__u8 tcp_flags;
	__u8 gso;
	/* XDP does not see the port's frames: nothing keeps one out of GRO */
	__u8 tc_alone;
	/* IPv6: flow label, without version and traffic class */
	__u32 flow_label_be;
	__u32 seq_be;
	__u32 ack_be;
	/* of multicast: legs of the known flow by which copies left, and the first
	 * observation's time if the copies are offered */
	__u32 served;
	__u32 offered;
	__u32 first_tick;
};

struct fw_tuple {
	__u32 saddr_be[4];
	__u32 daddr_be[4];
	__u16 sport_be;
	__u16 dport_be;
};

/* Connection as seen at egress. */
struct fw_conn {
	struct fw_tuple orig;
	struct fw_tuple reply;
	__u32 status; /* IPS_*; without a connection IPS_UNTRACKED if a rule said so (6.2) */
	__u32 mark;
	__u32 timeout_ticks; /* left */
	__u16 zone;
	__u8 present;
	__u8 dir; /* 0 original, 1 reply */
	__u8 tcp_state;
	__u8 helper;
	__u8 seqadj;         /* it adjusts sequence numbers, or the synproxy does */
	__u8 timeout_policy; /* its timeouts are its own (extension) */
};

/* Budgets and scratch room of one CPU. */
/* What hosts of one hash have shown and offered within the second that began with first_tick. */
struct fw_source {
	__u32 first_tick;
	__u32 observations;
	__u32 offers;
};

struct fw_cpu {
	__u32 tick;
	__u32 revalidated; /* in this tick, as the next three */
	__u32 checked;
	__u32 offered;
	__u32 sampled;
	__u32 slot;       /* next slot to write */
	__u32 sample_seq; /* makes XDP metadata unique */
	__u32 refused;    /* a revalidation was, in this tick */
	__u32 late_ticks; /* by which revalidations are late, for lack of budget */
	__u32 woken;      /* the tick after that in which the reader of events was */
	__u32 crossing;   /* next of this CPU to write */
	__u32 pad;
	struct fw_conn conn; /* more than the BPF stack has room for */
	struct fw_tuple watched;
	struct fw_source sources[FW_SOURCES];
};

enum fw_event_kind {
	FW_EV_CANDIDATE = 1,
	/* A flow of the table came out otherwise than it says. */
	FW_EV_CHANGED = 2,
	FW_EV_SUSPENDED = 3,
	FW_EV_WATCH = 4,
	/* Bridged frames were seen twice to take the same path. */
	FW_EV_CROSSED = 5,
	FW_EV_DROPPED = 6,
	/* A packet left otherwise than by its prefix's next hop. */
	FW_EV_STRAYED = 7,
};

struct fw_event {
	__u32 kind;
	__u32 reason; /* suspended, watch: enum fw_reason; dropped: the kernel's skb_drop_reason */
	__u32 state;  /* flow concerned, or none */
	__u32 tick;
};

/* FW_EV_CANDIDATE and FW_EV_CHANGED: seen twice with the same outcome. */
struct fw_candidate {
	struct fw_event ev;
	struct fw_key6 key;
	__u8 l2_in[FW_L2_MAX];
	__u8 l2_out[FW_L2_MAX];
	__u32 saddr_be[4];
	__u32 daddr_be[4];
	__u16 sport_be;
	__u16 dport_be;
	__u16 l2_in_len;
	__u16 l2_out_len;
	__u16 len_l3;
	__u16 l3_delta;
	__u16 l4_delta;
	__u8 family;
	__u8 tos_in;
	__u8 tos_out;
	__u8 ttl_in;
	__u8 ttl_out;
	__u8 nat;     /* addresses or ports changed */
	__u8 unwired; /* seen as no wire carries it: merged, or with an unfinished checksum */
	__u8 copy;    /* of multicast: frames that left before it for the one that came in */
	__u8 pad[2];
	__u32 port_out; /* ifindex */
	__u32 epoch;    /* in which it came in */
	__u32 mark;     /* skb->mark at egress */
	__u32 priority;
	__u32 token;
	__u32 first_tick; /* of the first of the two observations */
	__u32 flow_label_be;
	struct fw_conn conn;
};

/* FW_EV_CROSSED */
struct fw_crossed {
	struct fw_event ev;
	struct fw_stations key;
	__u32 port_out; /* of the bridge, ifindex */
	struct fw_tag tag_out;
	__u32 epoch; /* in which it came in */
	__u32 set;   /* in which the offer is noted */
	/* of a frame to a group */
	__u32 token;
	__u32 copy; /* frames that left before it for the one that came in */
	__u32 tick; /* in which that was */
	struct fw_group group;
};

/* FW_EV_WATCH */
struct fw_watch_event {
	struct fw_event ev;
	struct fw_tuple tuple;
	__u32 port;
	__u32 stage; /* enum fw_stage */
	__u16 len_l3;
	__u8 tcp_flags;
	__u8 ttl;
	__u32 pad;
};

/* FW_EV_STRAYED; ev.state is the record. */
struct fw_strayed {
	struct fw_event ev;
	__u32 saddr_be[4]; /* IPv4 in [0] */
	__u32 daddr_be[4];
	__u32 port_out; /* ifindex */
	__u32 family;   /* FW_AF_INET, FW_AF_INET6 */
	__u32 changed;  /* something in the packet was, beside the TTL */
	__u32 pad;
	__u8 l2_out[16];
};

enum { FW_FUNCTION_LEN = 48 };

/* FW_EV_DROPPED: the kernel freed a packet of the watched tuple instead of sending it. */
struct fw_dropped {
	struct fw_event ev;
	struct fw_tuple tuple;          /* as it came in, also where it was translated since */
	__u32 port;                     /* of the device that it was at, ifindex */
	__u32 place;                    /* enum fw_drop_place */
	__u32 ttl;                      /* as it was then */
	__u8 function[FW_FUNCTION_LEN]; /* of the kernel, that freed it; ends at a 0 */
};

/* How far it had come. */
enum fw_drop_place {
	FW_DROP_CAME = 0,    /* no route was looked up yet */
	FW_DROP_ROUTED = 1,  /* where it is to go was known */
	FW_DROP_LEAVING = 2, /* it was given to the device where it leaves */
};

enum fw_stage {
	FW_STAGE_XDP = 0,
	FW_STAGE_TC_INGRESS = 1,
	FW_STAGE_TC_EGRESS = 2,
	FW_STAGE_USER = 3,
};

/* Failed redirects to a port, from the xdp tracepoints. */
struct fw_port_fault {
	__u64 failed;
	__u64 overflowed; /* for these the driver's ring had no room */
	__s32 error;      /* errno of the last */
	__u32 pad;
};

/* A capture takes so much of a frame at most. */
#define FW_TAP_TAKEN_MAX 2048u

/* Of which fast packets a capture is told, before or after translation, and how much. */
struct fw_tap_filter {
	__u32 addr_be[2][4]; /* source and destination; of IPv4 the first word */
	__u32 mask_be[2][4];
	__u16 port_min[2];
	__u16 port_max[2];
	__u32 port; /* where they come in or go out, by ifindex; 0: wherever */
	__u32 slot; /* the same in the device map */
	__u32 taken;
	__u32 per_tick; /* most packets of a CPU in a tick */
	__u8 family;    /* 4 or 6; 0: both */
	__u8 proto;
	__u8 any_proto;
	__u8 any_ports; /* frames need not have any */
};

/* Of a packet's frames. */
enum fw_tap_way {
	FW_TAP_CAME = 0,
	FW_TAP_LEFT = 1,
	FW_TAP_HANDED = 2, /* as it came in; it is the engine's */
};

/* One of its records; as much of the frame follows as was taken. */
struct fw_tap_frame {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 number;  /* the same of what came in and what left, on a CPU */
	__u32 cpu;
	__u32 port; /* ifindex, or of what left the slot in the device map */
	__u32 way;  /* enum fw_tap_way */
	__u32 length;
	__u32 taken;
};

/* Of one CPU. */
struct fw_tap_count {
	__u64 told;
	__u64 over; /* packets over the rate */
	__u64 lost; /* packets for which the ring had no room */
	__u32 number;
	__u32 tick;
	__u32 in_tick;
	__u32 slot;  /* where the packet that is looked at leaves */
	__u32 noted; /* it is known as it came in */
	__u32 pad;
};

#define FW_ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
FW_ABI_SIZE(fw_key4, 16);
FW_ABI_SIZE(fw_key6, 40);
FW_ABI_SIZE(fw_state, 64);
FW_ABI_SIZE(fw_kept, 8);
FW_ABI_SIZE(fw_tap_filter, 92);
FW_ABI_SIZE(fw_tap_frame, 32);
FW_ABI_SIZE(fw_tap_count, 48);
FW_ABI_SIZE(fw_edge, 24);
FW_ABI_SIZE(fw_flow, 192);
FW_ABI_SIZE(fw_nexthop, 64);
/* a hit reads them as one word */
_Static_assert(__builtin_offsetof(struct fw_nexthop, valid) % 8 == 0 &&
		       __builtin_offsetof(struct fw_nexthop, outer_len) ==
			       __builtin_offsetof(struct fw_nexthop, valid) + 6,
	       "fw_nexthop");
FW_ABI_SIZE(fw_olist, 2112);
FW_ABI_SIZE(fw_copy, 8);
FW_ABI_SIZE(fw_framing, 16);
FW_ABI_SIZE(fw_framed, 16);
FW_ABI_SIZE(fw_session, 24);
FW_ABI_SIZE(fw_stations, 20);
FW_ABI_SIZE(fw_group, 32);
FW_ABI_SIZE(fw_path, 88);
FW_ABI_SIZE(fw_own_mac, 8);
FW_ABI_SIZE(fw_crossing, 104);
FW_ABI_SIZE(fw_crossed, 96);
FW_ABI_SIZE(fw_seen, 64);
FW_ABI_SIZE(fw_control, 64);
FW_ABI_SIZE(fw_watch, 40);
FW_ABI_SIZE(fw_slot, 128);
FW_ABI_SIZE(fw_offer_set, 32);
FW_ABI_SIZE(fw_observation_set, 32);
FW_ABI_SIZE(fw_limit, 8);
FW_ABI_SIZE(fw_policer, 24);
FW_ABI_SIZE(fw_translated, 24);
FW_ABI_SIZE(fw_origin, 100);
FW_ABI_SIZE(fw_port_table, 66564);
FW_ABI_SIZE(fw_source_end, 20);
FW_ABI_SIZE(fw_choice_key, 36);
FW_ABI_SIZE(fw_precedents, 1312);
FW_ABI_SIZE(fw_scrub4, 64);
FW_ABI_SIZE(fw_scrub_side4, 8);
FW_ABI_SIZE(fw_scrub6, 32);
FW_ABI_SIZE(fw_scrub_net4, 8);
FW_ABI_SIZE(fw_scrub_net6, 20);
FW_ABI_SIZE(fw_scrub_net, 16);
FW_ABI_SIZE(fw_scrub_class, 32);
FW_ABI_SIZE(fw_scrub_rule, 40);
FW_ABI_SIZE(fw_scrub, 35344);
FW_ABI_SIZE(fw_scrub_here, 24);
FW_ABI_SIZE(fw_scrub_count, 24);
FW_ABI_SIZE(fw_scrub_config, 48);
FW_ABI_SIZE(fw_ratelimit_bucket, 32);
FW_ABI_SIZE(fw_ratelimit_rule, 48);
FW_ABI_SIZE(fw_ratelimit, 1536);
FW_ABI_SIZE(fw_ratelimit_here, 32);
FW_ABI_SIZE(fw_ratelimit_count, 24);
FW_ABI_SIZE(fw_ratelimit_config, 32);
FW_ABI_SIZE(fw_hop, 64);
FW_ABI_SIZE(fw_routes, 35336);
FW_ABI_SIZE(fw_route_here, 16);
FW_ABI_SIZE(fw_route_entrance, 32);
FW_ABI_SIZE(fw_route_count, 16);
FW_ABI_SIZE(fw_route_config, 8);
FW_ABI_SIZE(fw_route_hint, 8);
FW_ABI_SIZE(fw_strayed, 80);
FW_ABI_SIZE(fw_hooked_at, 16);
FW_ABI_SIZE(fw_hooked, 4104);
FW_ABI_SIZE(fw_source, 12);
FW_ABI_SIZE(fw_cpu, 3248);
FW_ABI_SIZE(fw_conn, 92);
FW_ABI_SIZE(fw_event, 16);
FW_ABI_SIZE(fw_candidate, 296);
FW_ABI_SIZE(fw_watch_event, 68);
FW_ABI_SIZE(fw_dropped, 112);
_Static_assert(__builtin_offsetof(struct fw_state, epoch) ==
		       __builtin_offsetof(struct fw_state, status) + 4,
	       "compared as one word");
_Static_assert(__builtin_offsetof(struct fw_hop, status) % 8 == 0 &&
		       __builtin_offsetof(struct fw_hop, epoch) ==
			       __builtin_offsetof(struct fw_hop, status) + 4,
	       "compared as one word");
_Static_assert(__builtin_offsetof(struct fw_state, seq_be) % 8 == 0 &&
		       __builtin_offsetof(struct fw_state, ack_be) ==
			       __builtin_offsetof(struct fw_state, seq_be) + 4,
	       "written as one word");
_Static_assert((int)FW_R_COUNT <= (int)FW_REASONS_MAX, "reasons");

#endif
