/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* tc on devices without a link layer. An object of its own, loaded when the first such port
 * appears. */
#include "target/raw.h"
#include "tc.bpf.c"
