/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way back to the kernel at ports that stay its own: a test run of an XDP program with live
 * frames (BPF_F_TEST_XDP_LIVE_FRAMES, Linux 5.18), which says XDP_PASS. So the frame is where the
 * port's own would be, ahead of tc ingress, and nothing is configured. It costs tens of
 * microseconds, and is for frames that were on their way when their flow left the table.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/bpf.h>
#include <sys/syscall.h>

#include "socket.h"

enum {
	/* A millisecond each. */
	FWE_INJECT_TRIES = 100,
};

static int fwe_bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

int fwe_inject_open(void)
{
	static const struct bpf_insn pass[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.insns = (__u64)(unsigned long)pass,
		.insn_cnt = sizeof(pass) / sizeof(pass[0]),
		.license = (__u64)(unsigned long)"GPL",
		.prog_name = "freeway_inject",
	};

	return fwe_bpf(BPF_PROG_LOAD, &attr);
}

/* Each live run has a page pool, of which the machine has 65,534 (MEM_ID_MAX), given back behind
 * RCU.
 */
static int fwe_inject_waits(int tries)
{
	return errno == ENOSPC && tries < FWE_INJECT_TRIES &&
	       !nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int fwe_inject(int program, __u32 ifindex, const void *frame, __u32 len)
{
	struct xdp_md at = {.data_end = len, .ingress_ifindex = ifindex};
	union bpf_attr attr = {};
	int rc;

	attr.test.prog_fd = program;
	attr.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
	attr.test.repeat = 1;
	attr.test.batch_size = 1;
	attr.test.data_in = (__u64)(unsigned long)frame;
	attr.test.data_size_in = len;
	attr.test.ctx_in = (__u64)(unsigned long)&at;
	attr.test.ctx_size_in = sizeof(at);
	for (int tries = 0; (rc = fwe_bpf(BPF_PROG_TEST_RUN, &attr)); tries++)
		if (!fwe_inject_waits(tries))
			break;
	return rc;
}
