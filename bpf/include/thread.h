/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What we keep of a thread between the hooks of one of its system calls: which message
 * of sendmmsg or recvmmsg comes next, and where a call began under the socket's lock.
 */
#ifndef TRACEHOUND_THREAD_H
#define TRACEHOUND_THREAD_H

#include "compat.h"
#include "wire.h"

enum {
	MESSAGES_MAX = 1024, /* the kernel sends no more by one sendmmsg */
	MESSAGE_SIZE = 64,   /* struct mmsghdr */
};

/* Members with two elements are indexed by enum direction. */
struct thread_state {
	__u64 messages;	    /* user address of the vector under way, 0: none */
	__u64 locked_sk[2]; /* socket of the call that the members below are of, 0: none */
	__u64 left;	 /* send: bytes of the call that were to be taken over at its first hook */
	__u32 locked[2]; /* sequence number; send: of its first byte, receive: after its last */
	__u32 message;	 /* index of the next one */
	__u32 is_mixed;	 /* send: bytes of others lie among its bytes */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads SEC(".maps");

static __always_inline struct thread_state *thread_of(struct task_struct *task, __u64 flags)
{
	return bpf_task_storage_get(&threads, task, NULL, flags);
}

/*
 * Return the user address of the message that a sendmmsg or recvmmsg has just moved, or
 * failed to, 0 if that is not certain: a recvmmsg that a timeout may end. There is one
 * hook a message; the vector is done at its end or at an error.
 */
static __always_inline __u64 next_message(struct task_struct *task, const struct pt_regs *regs,
					  int size)
{
	__u64 messages = SYSCALL_SECOND(regs);
	struct thread_state *thread;
	__u32 count = SYSCALL_THIRD(regs), at;

	if (count == 1)
		return messages;
	if (SYSCALL_NUMBER(regs) == SYSCALL_RECVMMSG && SYSCALL_FIFTH(regs))
		return 0;
	if (SYSCALL_NUMBER(regs) == SYSCALL_SENDMMSG && count > MESSAGES_MAX)
		count = MESSAGES_MAX;
	thread = thread_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	at = thread->messages == messages ? thread->message : 0;
	thread->messages = size < 0 || at + 1 >= count ? 0 : messages;
	thread->message = at + 1;
	return messages + at * MESSAGE_SIZE;
}

/* The kernel goes on to no other message after one that it sent in part. */
static __always_inline void end_messages(struct task_struct *task)
{
	struct thread_state *thread = thread_of(task, 0);

	if (thread)
		thread->messages = 0;
}

/* The call under way ends without a result: what was kept of it is of no use. */
static __always_inline void forget_locked(struct task_struct *task, __u32 direction)
{
	struct thread_state *thread = thread_of(task, 0);

	if (thread)
		thread->locked_sk[direction] = 0;
}

#endif
