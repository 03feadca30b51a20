/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Copying pieces of a call's payload from user memory into a record. */
#ifndef TRACEHOUND_PAYLOAD_H
#define TRACEHOUND_PAYLOAD_H

#include "capture.h"

enum {
	COPY_STEPS_MAX = IOVECS_MAX + 8, /* skip, head and tail may each take a part of one */
	PAGE_SIZE_MIN = 4096,
};

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

/* The same for the first bytes of a call: commonly what is wanted lies in one buffer. */
static __always_inline void copy_first(struct scratch *scratch)
{
	struct cursor *cursor = &scratch->cursor;
	__u64 size = cursor->want;

	barrier_var(size); /* else the compiler leaves out the compare that 6.1 needs */
	if (unlikely(cursor->skip || cursor->left < size || size > PIECE_SIZE) ||
	    bpf_probe_read_user(scratch->record.data, size, (void *)cursor->base)) {
		copy_payload(scratch); /* once more, as far as there are pages */
		return;
	}
	cursor->base += size;
	cursor->left -= size;
	cursor->filled = size;
	cursor->want = 0;
}

#endif
