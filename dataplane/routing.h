/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What becomes of a packet of no flow: see route.h. */
#ifndef FW_ROUTING_H
#define FW_ROUTING_H

enum fw_routing {
	FW_ROUTING_NOT,   /* the fast path has it next */
	FW_ROUTING_SENDS, /* it is rewritten, and leaves */
	FW_ROUTING_ASKS,  /* the kernel has it, and what it does with it is compared */
	FW_ROUTING_LOST,  /* for which there is no reason: there was room for what is around it */
};

#endif
