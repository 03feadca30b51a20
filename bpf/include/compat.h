/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What differs between kernels and architectures. */
#ifndef TRACEHOUND_COMPAT_H
#define TRACEHOUND_COMPAT_H

#include "kernel.h"
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* BPF_PROG gives every program a ctx, bpf_loop every step a number. */
#pragma clang diagnostic ignored "-Wunused-parameter"

/*
 * True at the exit of the last thread of a process. Since 6.16 the tracepoint
 * says so ("exit: add group_dead to sched_process_exit", which also added the
 * member that is asked for here); before, two threads that exit at the same time
 * may both see no thread alive, so callers need a guard of their own.
 */
static __always_inline bool is_group_dead(const __u64 *arguments, const struct task_struct *task)
{
	if (bpf_core_field_exists(struct trace_event_raw_sched_process_exit, group_dead))
		return arguments[1] & 1;
	return task->signal->live.counter == 0;
}

#ifdef TRACEHOUND_OLD_KERNEL /* before 5.17: objects *_fallback only */

/* Before 5.12 an atomic addition gives nothing back: an interrupt may take the same number. */
static __always_inline __u64 take_next(__u64 *next)
{
	__u64 taken = *next;

	*next = taken + 1;
	return taken;
}

/* Call step(0 .. count - 1, context) until it returns 1, unrolled: max times at most. */
#define REPEAT(max, count, step, context)                                                          \
	_Pragma("clang loop unroll(full)") for (__u32 index = 0; index < (max); index++)           \
	{                                                                                          \
		if (index >= (count) || step(index, context))                                      \
			break;                                                                     \
	}
#define LOOP_STEP static __noinline

#else

static __always_inline __u64 take_next(__u64 *next)
{
	return __sync_fetch_and_add(next, 1);
}

#define REPEAT(max, count, step, context) bpf_loop(count, step, context, 0)
#define LOOP_STEP static

#endif

#ifdef TRACEHOUND_DATA_FALLBACK /* before 6.3 */

static __always_inline const struct tcp_sock *tcp_of(struct sock *sk)
{
	return bpf_skc_to_tcp_sock(sk);
}

#else

extern __weak __ksym void *bpf_rdonly_cast(const void *, __u32);

/* Since 6.2 a cast that is no call; of a socket that is TCP's for certain. */
static __always_inline const struct tcp_sock *tcp_of(const struct sock *sk)
{
	return bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
}

#endif

/* Only kernels with MPTCP have the member. */
static __always_inline bool is_mptcp_subflow(const struct tcp_sock *tcp)
{
	return bpf_core_field_exists(struct tcp_sock, is_mptcp) && tcp->is_mptcp;
}

#if defined(__TARGET_ARCH_x86)

enum { TASK_STATUS_COMPAT = 2 };

enum syscall_number {
	SYSCALL_READ = 0,
	SYSCALL_WRITE = 1,
	SYSCALL_OPEN = 2,
	SYSCALL_CLOSE = 3,
	SYSCALL_PREAD64 = 17,
	SYSCALL_PWRITE64 = 18,
	SYSCALL_READV = 19,
	SYSCALL_WRITEV = 20,
	SYSCALL_DUP2 = 33,
	SYSCALL_SENDFILE = 40,
	SYSCALL_SENDTO = 44,
	SYSCALL_RECVFROM = 45,
	SYSCALL_SENDMSG = 46,
	SYSCALL_RECVMSG = 47,
	SYSCALL_GETSOCKOPT = 55,
	SYSCALL_CREAT = 85,
	SYSCALL_OPENAT = 257,
	SYSCALL_SPLICE = 275,
	SYSCALL_DUP3 = 292,
	SYSCALL_PREADV = 295,
	SYSCALL_PWRITEV = 296,
	SYSCALL_RECVMMSG = 299,
	SYSCALL_SENDMMSG = 307,
	SYSCALL_PREADV2 = 327,
	SYSCALL_PWRITEV2 = 328,
	SYSCALL_IO_URING_ENTER = 426,
	SYSCALL_CLOSE_RANGE = 436,
	SYSCALL_OPENAT2 = 437,
};

/* The call is one of the 32-bit table: numbers and structs differ. */
static __always_inline bool is_compat_task(const struct task_struct *task)
{
	return task->thread_info.status & TASK_STATUS_COMPAT;
}

#define SYSCALL_NUMBER(regs) ((__u32)(regs)->orig_ax)
#define SYSCALL_FIRST(regs) ((regs)->di)
#define SYSCALL_SECOND(regs) ((regs)->si)
#define SYSCALL_THIRD(regs) ((regs)->dx)
#define SYSCALL_FIFTH(regs) ((regs)->r8)
#define SYSCALL_SIXTH(regs) ((regs)->r9)

/* False in work that a thread does for io_uring on its way out of a call: the result is set. */
static __always_inline bool is_in_call(const struct pt_regs *regs)
{
	return (long)regs->ax == -ENOSYS;
}

#define SYSCALL_FOURTH(regs) ((regs)->r10)

#define USER_IP(regs) ((regs)->ip)
#define USER_SP(regs) ((regs)->sp)
#define USER_BP(regs) ((regs)->bp)
#define RETURN_VALUE(regs) ((regs)->ax)

/* Integer arguments of a function, by the System V ABI. */
static __always_inline void copy_arguments(__u64 *arguments, const struct pt_regs *regs)
{
	arguments[0] = regs->di;
	arguments[1] = regs->si;
	arguments[2] = regs->dx;
	arguments[3] = regs->cx;
	arguments[4] = regs->r8;
	arguments[5] = regs->r9;
}

/* All others but those that have a name of their own. */
static __always_inline void copy_others(__u64 *others, const struct pt_regs *regs)
{
	others[0] = regs->bx;
	others[1] = regs->r10;
	others[2] = regs->r11;
	others[3] = regs->r12;
	others[4] = regs->r13;
	others[5] = regs->r14;
	others[6] = regs->r15;
}

/* At a function's first instruction, and at its last. */
static __always_inline __u64 return_address(const struct pt_regs *regs)
{
	__u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)regs->sp);
	return address;
}

/* Flags of open(2) as asm-generic has them. */
static __always_inline __u32 generic_open_flags(__u32 flags)
{
	return flags;
}

#elif defined(__TARGET_ARCH_arm64)

enum { THREAD_FLAG_32BIT = 1 << 22 };

enum syscall_number {
	SYSCALL_DUP3 = 24,
	SYSCALL_OPENAT = 56,
	SYSCALL_CLOSE = 57,
	SYSCALL_READ = 63,
	SYSCALL_WRITE = 64,
	SYSCALL_READV = 65,
	SYSCALL_WRITEV = 66,
	SYSCALL_PREAD64 = 67,
	SYSCALL_PWRITE64 = 68,
	SYSCALL_PREADV = 69,
	SYSCALL_PWRITEV = 70,
	SYSCALL_SENDFILE = 71,
	SYSCALL_SPLICE = 76,
	SYSCALL_SENDTO = 206,
	SYSCALL_RECVFROM = 207,
	SYSCALL_GETSOCKOPT = 209,
	SYSCALL_SENDMSG = 211,
	SYSCALL_RECVMSG = 212,
	SYSCALL_RECVMMSG = 243,
	SYSCALL_SENDMMSG = 269,
	SYSCALL_PREADV2 = 286,
	SYSCALL_PWRITEV2 = 287,
	SYSCALL_IO_URING_ENTER = 426,
	SYSCALL_CLOSE_RANGE = 436,
	SYSCALL_OPENAT2 = 437,
	SYSCALL_OPEN = 1 << 30, /* not there; the same of the next */
	SYSCALL_CREAT,
	SYSCALL_DUP2,
};

/* The call is one of the 32-bit table: numbers and structs differ. */
static __always_inline bool is_compat_task(const struct task_struct *task)
{
	return task->thread_info.flags & THREAD_FLAG_32BIT;
}

/* x0 holds the return value at the end of the call. */
#define SYSCALL_NUMBER(regs) ((__u32)(regs)->syscallno)
#define SYSCALL_FIRST(regs) ((regs)->orig_x0)
#define SYSCALL_SECOND(regs) ((regs)->regs[1])
#define SYSCALL_THIRD(regs) ((regs)->regs[2])
#define SYSCALL_FIFTH(regs) ((regs)->regs[4])
#define SYSCALL_SIXTH(regs) ((regs)->regs[5])

/* Not told by the registers here. */
static __always_inline bool is_in_call(const struct pt_regs *regs)
{
	return true;
}

#define SYSCALL_FOURTH(regs) ((regs)->regs[3])

#define USER_IP(regs) ((regs)->pc)
#define USER_SP(regs) ((regs)->sp)
#define USER_BP(regs) ((regs)->regs[29])
#define RETURN_VALUE(regs) ((regs)->regs[0])

/* Integer arguments of a function, by AAPCS64. */
static __always_inline void copy_arguments(__u64 *arguments, const struct pt_regs *regs)
{
	arguments[0] = regs->regs[0];
	arguments[1] = regs->regs[1];
	arguments[2] = regs->regs[2];
	arguments[3] = regs->regs[3];
	arguments[4] = regs->regs[4];
	arguments[5] = regs->regs[5];
}

/* All others, x6 to x30. */
static __always_inline void copy_others(__u64 *others, const struct pt_regs *regs)
{
	_Pragma("clang loop unroll(full)") for (__u32 i = 0; i < 25; i++)
	{
		others[i] = regs->regs[i + 6];
	}
}

/* At a function's first instruction, and at its last. */
static __always_inline __u64 return_address(const struct pt_regs *regs)
{
	return regs->regs[30];
}

/* Flags of open(2) as asm-generic has them: O_DIRECTORY and O_NOFOLLOW, O_DIRECT and O_LARGEFILE.
 */
static __always_inline __u32 generic_open_flags(__u32 flags)
{
	return (flags & ~0x3c000u) | (flags & 0xc000) << 2 | (flags & 0x30000) >> 2;
}

#endif

#endif
