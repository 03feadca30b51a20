/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The payload of the current system call: where it lies in user memory, and
 * copying pieces of it into a record. Read after the call, when the kernel has
 * touched every page and the result is known.
 */
#ifndef TRACEHOUND_CAPTURE_H
#define TRACEHOUND_CAPTURE_H

#include "compat.h"
#include "wire.h"

enum {
	PIECE_SIZE = 16384, /* payload of one record at most */
	IOVECS_MAX = 128,
	COPY_STEPS_MAX = IOVECS_MAX + 8, /* skip, head and tail may each take a part of one */
	PAGE_SIZE_MIN = 4096,
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

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} data SEC(".maps");

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
	__u32 size;
	__u32 tgid;
	__u32 tid;
	__u32 skip;	     /* bytes of it that are not wanted */
	__u32 direction;     /* enum direction */
	__u32 capture_class; /* the connection's, or less by overload */
	__u32 flags;	     /* enum data_flag */
	__u32 reserved;
};

enum {
	DETECT_SIZE = 32, /* more than any detector reads */
};

/* What a detector is shown. */
struct detection {
	__u8 head[DETECT_SIZE];
	__u32 size;
	__u32 direction;
	__u32 port; /* the server's */
	__u32 reserved;
};

/*
 * A call at work, by enum direction: two programs may nest on a CPU, one with
 * itself may not. In a map and not on the stack, because the verifier follows
 * every value on the stack and would not come to an end.
 */
struct scratch {
	struct call call;
	struct cursor cursor;
	struct detection detection;
	struct data_record record; /* its data: the rest of SCRATCH_SIZE */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SCRATCH_SIZE);
} scratch_call SEC(".maps");

enum {
	/* The verifier adds the largest offset and the largest size. */
	COPY_SIZE_MAX = SCRATCH_SIZE - sizeof(struct scratch) - PIECE_SIZE,
};

struct copy_context {
	struct scratch *scratch;
};

/* Copy what base has of what is wanted; 1: nothing more to do. */
static __always_inline long copy_part(struct scratch *scratch)
{
	struct cursor *cursor = &scratch->cursor;
	__u64 size = cursor->left, base = cursor->base;
	__u32 filled = cursor->filled;

	if (size > cursor->want)
		size = cursor->want;
	if (size > COPY_SIZE_MAX)
		size = COPY_SIZE_MAX;
	if (filled > PIECE_SIZE)
		return 1;
	if (bpf_probe_read_user(scratch->record.data + filled, size, (void *)base)) {
		/* One absent page fails the whole read: try up to its end, then give up. */
		cursor->flags |= DATA_FAULT;
		cursor->want = 0;
		if (size > PAGE_SIZE_MIN - base % PAGE_SIZE_MIN)
			size = PAGE_SIZE_MIN - base % PAGE_SIZE_MIN;
		if (!bpf_probe_read_user(scratch->record.data + filled, size, (void *)base))
			cursor->filled = filled + size;
		return 1;
	}
	cursor->base = base + size;
	cursor->left -= size;
	cursor->filled = filled + size;
	cursor->want -= size;
	return !cursor->want;
}

static __always_inline void skip_part(struct cursor *cursor)
{
	__u64 size = cursor->skip;

	if (size > cursor->left)
		size = cursor->left;
	cursor->base += size;
	cursor->left -= size;
	cursor->skip -= size;
}

static long copy_step(__u32 step, struct copy_context *context)
{
	struct cursor *cursor = &context->scratch->cursor;
	struct user_iovec iovec;

	if (!cursor->left) {
		if (!cursor->iovec_count)
			return 1;
		if (bpf_probe_read_user(&iovec, sizeof(iovec), (void *)cursor->iovecs)) {
			cursor->flags |= DATA_FAULT;
			cursor->want = 0;
			return 1;
		}
		cursor->base = iovec.base;
		cursor->left = iovec.size;
		cursor->iovecs += sizeof(iovec);
		cursor->iovec_count--;
	}
	skip_part(cursor);
	return cursor->left ? copy_part(context->scratch) : 0;
}

/* Pass over cursor.skip bytes, then append cursor.want bytes to the record. */
static __noinline int copy_payload(struct scratch *scratch)
{
	struct copy_context context = {scratch};

	if (scratch->cursor.iovec_count) {
		bpf_loop(COPY_STEPS_MAX, copy_step, &context, 0);
		return 0;
	}
	skip_part(&scratch->cursor);
	if (!copy_part(scratch))
		copy_part(scratch);
	return 0;
}

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

/*
 * Point the cursor at the payload of the current system call and say which call
 * and fd it was. False: it is not in our reach (sendfile, splice, io_uring, whose
 * workers carry the registers of whatever made them).
 */
static __always_inline bool find_payload(struct scratch *scratch, struct task_struct *task)
{
	struct data_record *record = &scratch->record;
	struct cursor *cursor = &scratch->cursor;
	struct pt_regs *regs;
	__u32 number;

	__builtin_memset(cursor, 0, sizeof(*cursor));
	record->fd = -1;
	record->syscall = SYSCALL_IO_URING_ENTER;
	if (task->flags & (PF_IO_WORKER | PF_USER_WORKER) || is_compat_task(task))
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	number = SYSCALL_NUMBER(regs);
	record->syscall = number;
	if (number == SYSCALL_IO_URING_ENTER)
		return false;
	record->fd = number == SYSCALL_SPLICE ? SYSCALL_THIRD(regs) : SYSCALL_FIRST(regs);
	switch (number) {
	case SYSCALL_READ:
	case SYSCALL_WRITE:
	case SYSCALL_SENDTO:
	case SYSCALL_RECVFROM:
		cursor->base = SYSCALL_SECOND(regs);
		cursor->left = scratch->call.size;
		return true;
	case SYSCALL_READV:
	case SYSCALL_WRITEV:
	case SYSCALL_PREADV2: /* of a socket only with offset -1 */
	case SYSCALL_PWRITEV2:
		return point_at_vector(cursor, SYSCALL_SECOND(regs), SYSCALL_THIRD(regs));
	case SYSCALL_SENDMSG:
	case SYSCALL_RECVMSG:
		return point_at_message(cursor, SYSCALL_SECOND(regs));
	}
	return false;
}

#endif
