/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* See steer.h. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <linux/bpf.h>
#include <sys/syscall.h>

#include "steer.h"

enum {
	/* Of one rule, at most, and of what is read for all. */
	FWE_STEER_RULE_LEN = 5,
	FWE_STEER_HEAD_LEN = 32,
	FWE_STEER_ETHERTYPE_AT = 12,
	FWE_STEER_TOS_AT = 15,
	FWE_STEER_CLASS6_AT = 14,
	FWE_STEER_IP4 = 0x0800,
	FWE_STEER_IP6 = 0x86dd,
	/* Where the program keeps what it goes by. */
	FWE_STEER_CTX = BPF_REG_6,
	FWE_STEER_PRIO = BPF_REG_7,
	FWE_STEER_MARKED = BPF_REG_8,
	FWE_STEER_CODE = BPF_REG_9,
};

struct fwe_steer_text {
	struct bpf_insn *insn;
	__u32 count;
};

static void fwe_steer_add(struct fwe_steer_text *text, __u8 code, __u8 dst, __u8 src, __s16 off,
			  __s32 imm)
{
	text->insn[text->count++] = (struct bpf_insn){
		.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm};
}

static void fwe_steer_leave(struct fwe_steer_text *text, __u32 queue)
{
	fwe_steer_add(text, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, queue);
	fwe_steer_add(text, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/* DSCP of an IPv4 or IPv6 packet, else one that there is not. What is read past the end of the
 * packet ends the program with queue 0. */
static void fwe_steer_read_dscp(struct fwe_steer_text *text)
{
	const __u8 load = BPF_LD | BPF_ABS;

	fwe_steer_add(text, BPF_ALU64 | BPF_MOV | BPF_K, FWE_STEER_CODE, 0, 0, 64);
	fwe_steer_add(text, load | BPF_H, 0, 0, 0, FWE_STEER_ETHERTYPE_AT);
	fwe_steer_add(text, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 4, FWE_STEER_IP4);
	fwe_steer_add(text, load | BPF_B, 0, 0, 0, FWE_STEER_TOS_AT);
	fwe_steer_add(text, BPF_ALU64 | BPF_RSH | BPF_K, BPF_REG_0, 0, 0, 2);
	fwe_steer_add(text, BPF_ALU64 | BPF_MOV | BPF_X, FWE_STEER_CODE, BPF_REG_0, 0, 0);
	fwe_steer_add(text, BPF_JMP | BPF_JA, 0, 0, 5, 0);
	fwe_steer_add(text, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 4, FWE_STEER_IP6);
	fwe_steer_add(text, load | BPF_H, 0, 0, 0, FWE_STEER_CLASS6_AT);
	fwe_steer_add(text, BPF_ALU64 | BPF_RSH | BPF_K, BPF_REG_0, 0, 0, 6);
	fwe_steer_add(text, BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_0, 0, 0, 63);
	fwe_steer_add(text, BPF_ALU64 | BPF_MOV | BPF_X, FWE_STEER_CODE, BPF_REG_0, 0, 0);
}

static void fwe_steer_rule_add(struct fwe_steer_text *text, const struct fwe_steer_rule *rule)
{
	const __u8 differs = BPF_JMP32 | BPF_JNE | BPF_K;

	switch (rule->kind) {
	case FWE_STEER_PRIORITY:
		fwe_steer_add(text, differs, FWE_STEER_PRIO, 0, 2, rule->value);
		break;
	case FWE_STEER_MARK:
		fwe_steer_add(text, BPF_ALU | BPF_MOV | BPF_X, BPF_REG_1, FWE_STEER_MARKED, 0, 0);
		fwe_steer_add(text, BPF_ALU | BPF_AND | BPF_K, BPF_REG_1, 0, 0, rule->mask);
		fwe_steer_add(text, differs, BPF_REG_1, 0, 2, rule->value);
		break;
	case FWE_STEER_DSCP:
		fwe_steer_add(text, differs, FWE_STEER_CODE, 0, 2, rule->value);
		break;
	default:
		/* what names a class is as if it were 0 */
		fwe_steer_add(text, BPF_ALU | BPF_MOV | BPF_X, BPF_REG_1, FWE_STEER_PRIO, 0, 0);
		fwe_steer_add(text, BPF_ALU | BPF_AND | BPF_K, BPF_REG_1, 0, 0, 15);
		fwe_steer_add(text, differs, BPF_REG_1, 0, 2, rule->value);
	}
	fwe_steer_leave(text, rule->queue);
}

int fwe_steer_open(const struct fwe_steer_rule *rules, __u32 count, __u32 other)
{
	struct fwe_steer_text text = {};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.license = (__u64)(unsigned long)"GPL",
		.prog_name = "freeway_class",
	};
	int program, mapped = 0, by_dscp = 0;

	if (count > FWE_STEER_RULES_MAX) {
		errno = E2BIG;
		return -1;
	}
	text.insn = calloc(FWE_STEER_HEAD_LEN + count * FWE_STEER_RULE_LEN, sizeof(*text.insn));
	if (!text.insn)
		return -1;
	fwe_steer_add(&text, BPF_ALU64 | BPF_MOV | BPF_X, FWE_STEER_CTX, BPF_REG_1, 0, 0);
	fwe_steer_add(&text, BPF_LDX | BPF_MEM | BPF_W, FWE_STEER_PRIO, BPF_REG_1,
		      offsetof(struct __sk_buff, priority), 0);
	fwe_steer_add(&text, BPF_LDX | BPF_MEM | BPF_W, FWE_STEER_MARKED, BPF_REG_1,
		      offsetof(struct __sk_buff, mark), 0);
	for (__u32 i = 0; i < count; i++)
		by_dscp |= rules[i].kind == FWE_STEER_DSCP;
	if (by_dscp)
		fwe_steer_read_dscp(&text);
	for (__u32 i = 0; i < count; i++) {
		if (rules[i].kind == FWE_STEER_PRIOMAP && !mapped++) {
			fwe_steer_add(&text, BPF_JMP32 | BPF_JLE | BPF_K, FWE_STEER_PRIO, 0, 1,
				      0xffff);
			fwe_steer_add(&text, BPF_ALU64 | BPF_MOV | BPF_K, FWE_STEER_PRIO, 0, 0, 0);
		}
		fwe_steer_rule_add(&text, &rules[i]);
	}
	fwe_steer_leave(&text, other);
	attr.insns = (__u64)(unsigned long)text.insn;
	attr.insn_cnt = text.count;
	program = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	free(text.insn);
	return program;
}
