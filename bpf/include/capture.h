/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A system call that moves bytes, while it is under way: where its payload lies in user
 * memory, and the room in which its records are made. Read after the call's work, when the
 * kernel has touched every page and the result is known.
 */
#ifndef TRACEHOUND_CAPTURE_H
#define TRACEHOUND_CAPTURE_H

#include "compat.h"
#include "data_ring.h"
#include "thread.h"
#include "wire.h"

enum {
	PIECE_SIZE = 16384, /* payload of one record at most */
	IOVECS_MAX = 128,
	SCRATCH_SIZE = 32768, /* no value of a per-CPU array may be larger */
};

struct user_iovec {
	__u64 base;
	__u64 size;
};

/* struct user_msghdr from msg_iov on */
struct user_vector {
	__u64 iovecs;
	__u64 count;
};

enum { USER_MSGHDR_IOV = 16 }; /* offset of msg_iov */

/* The payload of a call, consumed from first to last byte. */
struct cursor {
	__u64 iovecs;	   /* user address of those not begun */
	__u64 base;	   /* user address of the next byte */
	__u64 left;	   /* bytes from base on */
	__u32 iovec_count; /* of those not begun */
	__u32 skip;	   /* bytes to pass over */
	__u32 want;	   /* then bytes to copy */
	__u32 filled;	   /* bytes copied to record.data */
	__u32 flags;	   /* enum data_flag */
	__u32 reserved;
};

/* A call under way to its records. */
struct call {
	__u64 start; /* stream positions */
	__u64 end;
	__u64 time_ns;
	__u64 thread_ns; /* start of the thread */
	__u64 message;	 /* sendmmsg, recvmmsg: user address of the message, 0: not known */
	__u32 size;
	__u32 tgid;
	__u32 tid;
	__u32 skip;	     /* bytes of it that are not wanted */
	__u32 direction;     /* enum direction */
	__u32 capture_class; /* the connection's, or less by overload */
	__u32 flags;	     /* enum data_flag */
	__u32 is_exact;	     /* its place was taken under the socket's lock */
};

enum {
	DETECT_SIZE = 32, /* more than any detector reads */
};

enum {
	SCRATCH_LOCKED = 2, /* after those of enum direction */
	SCRATCH_COUNT = 3,
};

/* What a detector is shown. */
struct detection {
	__u8 head[DETECT_SIZE];
	__u32 size;
	__u32 direction;
	__u32 port; /* the server's */
	__u32 transport;
};

/*
 * A call at work, by enum direction: two programs may nest on a CPU, one with
 * itself may not (what is done under a lock has one of its own). In a map and not on the stack,
 * because the verifier follows every value on the stack and would not come to an end.
 */
struct scratch {
	struct call call;
	struct cursor cursor;
	struct detection detection;
	struct data_record record; /* its data: the rest of SCRATCH_SIZE */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_COUNT);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SCRATCH_SIZE);
} scratch_call SEC(".maps");

static __always_inline bool point_at_vector(struct cursor *cursor, __u64 iovecs, __u64 count)
{
	struct user_iovec iovec;

	if (count == 1) {
		if (bpf_probe_read_user(&iovec, sizeof(iovec), (void *)iovecs))
			return false;
		cursor->base = iovec.base;
		cursor->left = iovec.size;
		return true;
	}
	if (count > IOVECS_MAX) {
		count = IOVECS_MAX;
		cursor->flags |= DATA_IOV_CUT;
	}
	cursor->iovecs = iovecs;
	cursor->iovec_count = count;
	return true;
}

static __always_inline bool point_at_message(struct cursor *cursor, __u64 message)
{
	struct user_vector vector;

	if (bpf_probe_read_user(&vector, sizeof(vector), (void *)(message + USER_MSGHDR_IOV)))
		return false;
	return point_at_vector(cursor, vector.iovecs, vector.count);
}

struct sum_context {
	__u64 iovecs;
	__u64 size;
};

static long sum_step(__u32 step, struct sum_context *context)
{
	struct user_iovec iovec;

	if (bpf_probe_read_user(&iovec, sizeof(iovec),
				(void *)(context->iovecs + step * sizeof(iovec))))
		return 1;
	context->size += iovec.size;
	return 0;
}

/* How many bytes a message holds, as far as its first IOVECS_MAX iovecs say. */
static __always_inline __u64 message_size(__u64 message)
{
	struct sum_context context = {0, 0};
	struct user_vector vector;

	if (bpf_probe_read_user(&vector, sizeof(vector), (void *)(message + USER_MSGHDR_IOV)))
		return 0;
	context.iovecs = vector.iovecs;
	bpf_loop(vector.count < IOVECS_MAX ? vector.count : IOVECS_MAX, sum_step, &context, 0);
	return context.size;
}

/*
 * The registers of the system call under way; NULL if they are of another one: workers of
 * io_uring carry those of whatever made them.
 */
static __always_inline struct pt_regs *call_registers(struct task_struct *task)
{
	struct pt_regs *regs;

	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER) || is_compat_task(task))
		return NULL;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	return is_in_call(regs) ? regs : NULL;
}

/* A call that moves several messages, and has a hook for each. */
static __always_inline bool is_of_many(const struct pt_regs *regs)
{
	return SYSCALL_NUMBER(regs) == SYSCALL_SENDMMSG || SYSCALL_NUMBER(regs) == SYSCALL_RECVMMSG;
}

/*
 * Point the cursor at the payload of the current system call and say which call
 * and fd it was. False: it is not in our reach (sendfile, splice, io_uring).
 */
static __always_inline bool find_payload(struct scratch *scratch, const struct pt_regs *regs)
{
	struct data_record *record = &scratch->record;
	struct cursor *cursor = &scratch->cursor;
	struct call *call = &scratch->call;
	__u32 number;

	__builtin_memset(cursor, 0, sizeof(*cursor));
	record->fd = -1;
	record->syscall = SYSCALL_IO_URING_ENTER;
	if (!regs)
		return false;
	number = SYSCALL_NUMBER(regs);
	record->syscall = number;
	if (number == SYSCALL_IO_URING_ENTER)
		return false;
	record->fd = number == SYSCALL_SPLICE && record->direction == DIRECTION_SEND
			     ? SYSCALL_THIRD(regs)
			     : SYSCALL_FIRST(regs);
	if (call->flags & DATA_OPAQUE)
		return false;
	switch (number) {
	case SYSCALL_READ:
	case SYSCALL_WRITE:
	case SYSCALL_SENDTO:
	case SYSCALL_RECVFROM:
		cursor->base = SYSCALL_SECOND(regs);
		cursor->left = SYSCALL_THIRD(regs);
		return true;
	case SYSCALL_READV:
	case SYSCALL_WRITEV:
	case SYSCALL_PREADV2: /* of a socket only with offset -1 */
	case SYSCALL_PWRITEV2:
		return point_at_vector(cursor, SYSCALL_SECOND(regs), SYSCALL_THIRD(regs));
	case SYSCALL_SENDMSG:
	case SYSCALL_RECVMSG:
		return point_at_message(cursor, SYSCALL_SECOND(regs));
	case SYSCALL_SENDMMSG:
	case SYSCALL_RECVMMSG:
		return call->message && point_at_message(cursor, call->message);
	}
	return false;
}

#endif
