/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tc target on a device without a link layer: tun, WireGuard, PPP, modems. Packets begin with
 * their IP header. */
#ifndef FW_TARGET_RAW_H
#define FW_TARGET_RAW_H

#define FW_TARGET_IS_RAW 1
#define FW_TC_LINK_LEN   0
#include "tc.h"

#endif
