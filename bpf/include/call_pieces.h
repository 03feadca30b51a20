/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The scratch that a record of a call is made in, and what is read of the thread's memory into it.
 * A program that may sleep defines CALL_MAY_SLEEP: it reads in what is not in memory yet.
 */
#ifndef TRACEHOUND_CALL_PIECES_H
#define TRACEHOUND_CALL_PIECES_H

#include "call_maps.h"
#include "ring.h"

enum {
	CALL_DATA_MAX = CALL_PIECE_MAX, /* a piece may begin before this */
	CALL_HEAD_ROOM = 256,
	CALL_VALUES = 128,
	CALL_SCRATCH_TRIES = 8,
	STRINGS_TRIES = 16, /* where the loop is unrolled */
	USER_PAGE = 4096,
	PIECE_SIZE = PIECE_CUT - 1,
};

struct call_scratch {
	__u64 users;
	__u64 values[CALL_VALUES]; /* by enum call_operand */
	__u64 faults;		   /* 1 << operation: without result */
	__u64 groups_wanted;
	__u64 groups_matched;
	__u64 measured;
	__u32 pieces;
	__u32 is_untold; /* whether it passes the filters */
	__u32 reserved;
	__u32 is_filtered;
	__u32 at;      /* bytes of data */
	__u32 last_at; /* of the last piece */
	__u32 last_size;
	__u32 key_size;
	__u64 strings; /* of an array that is being read */
	__u32 strings_flags;
	__u32 strings_max;
	__u32 string_size;
	__u32 is_negative; /* what was measured */
	__u8 key[CALL_KEY_SIZE];
	__u8 head[CALL_HEAD_ROOM]; /* ends with the fixed part of the record */
	__u8 data[];		   /* sizes of pieces, __u32 each, then the pieces */
};

/* max_entries: CALL_SCRATCHES * CPUs, set before the load. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct call_scratch) + CALL_DATA_MAX + CALL_PIECE_MAX);
} call_scratches SEC(".maps");

const volatile __u32 config_call_scratches = 64;

/* The fixed part of a record, directly before its data. */
#define RECORD_OF(type, scratch)                                                                   \
	((struct type *)((scratch)->head + CALL_HEAD_ROOM - sizeof(struct type)))

/* A scratch that is nobody's until `users` is 0 again; NULL: all near are in use. */
static __always_inline struct call_scratch *take_scratch(void)
{
	__u32 first = bpf_get_smp_processor_id() * CALL_SCRATCHES;
	struct call_scratch *scratch;

	for (__u32 i = 0; i < CALL_SCRATCH_TRIES; i++) {
		__u32 key = (first + i) % (config_call_scratches ? config_call_scratches : 1);

		scratch = bpf_map_lookup_elem(&call_scratches, &key);
		if (!scratch)
			return NULL;
		if (!take_next(&scratch->users))
			return scratch;
		__sync_fetch_and_add(&scratch->users, -1);
	}
	return NULL;
}

static __always_inline void give_scratch(struct call_scratch *scratch)
{
	__sync_fetch_and_add(&scratch->users, -1);
}

#ifdef CALL_MAY_SLEEP
#define read_user(to, size, from) bpf_copy_from_user(to, size, from)

/* Have a page in memory; its frame is its own, so that the caller's bounds are kept. */
static __noinline long touch_user(__u64 address)
{
	char byte;

	return bpf_copy_from_user(&byte, 1, (void *)address);
}

static __always_inline long read_user_text(void *to, __u64 max, const void *from)
{
	long size = bpf_probe_read_user_str(to, max, from);

	if (size >= 0)
		return size;
	if (touch_user((__u64)from))
		return size;
	touch_user(((__u64)from | (USER_PAGE - 1)) + 1); /* it may go on there */
	asm volatile("" : "+r"(max));			 /* the bound is asked anew */
	return bpf_probe_read_user_str(to, max > CALL_PIECE_MAX ? CALL_PIECE_MAX : max, from);
}
#else
#define read_user(to, size, from) bpf_probe_read_user(to, size, from)
#define read_user_text(to, max, from) bpf_probe_read_user_str(to, max, from)
#endif

struct call_run {
	struct call_scratch *scratch;
	__u32 first;
	__u32 phase;
};

static __always_inline __u64 operand(const struct call_scratch *scratch, __u8 number)
{
	return number == OPERAND_CONSTANT ? 0 : scratch->values[number & (CALL_VALUES - 1)];
}

static __always_inline bool is_fault(const struct call_scratch *scratch, __u8 number)
{
	return number != OPERAND_CONSTANT && number >= OPERAND_RESULT &&
	       scratch->faults >> (number & 63) & 1;
}

static __always_inline __u64 narrowed(__u64 value, __u32 size, bool is_signed)
{
	__u32 shift = size < 8 ? (8 - size) * 8 & 63 : 0;

	return is_signed ? (__u64)((__s64)(value << shift) >> shift) : value << shift >> shift;
}

static __always_inline void load_number(struct call_scratch *scratch,
					const struct call_operation *operation, __u64 address,
					__u32 index)
{
	__u64 value = 0;
	long status;

	if (operation->size == 8)
		status = read_user(&value, 8, (void *)address);
	else if (operation->size == 4)
		status = read_user(&value, 4, (void *)address);
	else if (operation->size == 2)
		status = read_user(&value, 2, (void *)address);
	else
		status = read_user(&value, 1, (void *)address);
	if (status)
		scratch->faults |= 1ull << (index & 63);
	value = narrowed(value, operation->size, operation->flags & OPERATION_SIGNED);
	scratch->values[OPERAND_RESULT | (index & 63)] = value;
}

/* Each reads to `at`, which is below CALL_DATA_MAX, and returns a size with flags. */

static __always_inline __u32 read_bytes(struct call_scratch *scratch, __u32 at, __u64 address,
					__u64 wanted, __u32 max)
{
	__u32 flags = 0, size, rest;

	if (max > CALL_PIECE_MAX)
		max = CALL_PIECE_MAX;
	if (wanted > max) {
		wanted = max;
		flags = PIECE_CUT;
	}
	size = wanted;
	barrier_var(size); /* else the compiler leaves out the compare that 6.1 needs */
	if (size > CALL_PIECE_MAX)
		return PIECE_FAULT;
	if (!size || !read_user(scratch->data + at, size, (void *)address))
		return size | flags;
	rest = USER_PAGE - (address & (USER_PAGE - 1)); /* a short one may lie before a hole */
	if (rest >= size || read_user(scratch->data + at, rest, (void *)address))
		return PIECE_FAULT | (address ? 0 : PIECE_NULL);
	return rest | PIECE_CUT;
}

static __always_inline __u32 read_text(struct call_scratch *scratch, __u32 at, __u64 address,
				       __u32 max)
{
	long size;

	if (max > CALL_PIECE_MAX - 2)
		max = CALL_PIECE_MAX - 2;
	size = read_user_text(scratch->data + at, max + 2, (void *)address);
	if (size <= 0)
		return PIECE_FAULT | (address ? 0 : PIECE_NULL);
	size--;
	return size > max ? max | PIECE_CUT : (__u32)size;
}

static __noinline __u32 read_length(struct call_scratch *scratch,
				    const struct call_operation *operation, __u64 address)
{
	__u64 wanted = operation->max;
	__u32 at = scratch->at;
	__s64 given;

	if (at > CALL_DATA_MAX)
		return PIECE_CUT;
	if (operation->length != OPERAND_CONSTANT) {
		if (is_fault(scratch, operation->length))
			return PIECE_FAULT;
		given = operand(scratch, operation->length);
		wanted = given > 0 ? given : 0;
		wanted = wanted > CALL_PIECE_MAX ? CALL_PIECE_MAX + 1 : wanted * operation->size;
	}
	return read_bytes(scratch, at, address, wanted, operation->max);
}

/* Both have a pointer and a size; libc++ keeps up to 22 bytes in the place of them. */
static __noinline __u32 read_std_string(struct call_scratch *scratch,
					const struct call_operation *operation, __u64 address)
{
	__u64 words[3] = {};
	__u32 at = scratch->at;

	if (at > CALL_DATA_MAX)
		return PIECE_CUT;
	if (operation->kind == OPERATION_STD_STRING) {
		if (read_user(words, 16, (void *)address))
			return PIECE_FAULT | (address ? 0 : PIECE_NULL);
		return read_bytes(scratch, at, words[0], words[1], operation->max);
	}
	if (read_user(words, 24, (void *)address))
		return PIECE_FAULT | (address ? 0 : PIECE_NULL);
	if (words[0] & 1)
		return read_bytes(scratch, at, words[2], words[1], operation->max);
	return read_bytes(scratch, at, address + 1, (__u8)words[0] >> 1, operation->max);
}

LOOP_STEP long read_one_string(__u32 index, struct call_run *run)
{
	struct call_scratch *scratch = run->scratch;
	__u32 at, read, size;
	__u64 pointer = 0;

	if (read_user(&pointer, 8, (void *)(scratch->strings + index * 8))) {
		scratch->strings_flags |= index ? PIECE_CUT : PIECE_FAULT;
		return 1;
	}
	if (!pointer)
		return 1;
	at = scratch->at; /* not before: 6.1 knows no bound of a copy on the stack */
	if (at > CALL_DATA_MAX || index >= scratch->strings_max) {
		scratch->strings_flags |= PIECE_CUT;
		return 1;
	}
	read = read_text(scratch, at, pointer, scratch->string_size);
	size = read & PIECE_FAULT ? 0 : read & PIECE_SIZE;
	scratch->strings_flags |= read & PIECE_CUT;
	if (size >= CALL_PIECE_MAX)
		return 1;
	scratch->data[at + size] = 0;
	scratch->at = at + size + 1;
	return 0;
}

static __noinline __u32 read_strings(struct call_scratch *scratch,
				     const struct call_operation *operation, __u64 address)
{
	struct call_run run = {.scratch = scratch};
	__u32 at = scratch->at, size;

	scratch->strings = address;
	scratch->strings_flags = 0;
	scratch->strings_max = operation->size;
	scratch->string_size = operation->max;
	REPEAT(STRINGS_TRIES, CALL_STRINGS_MAX + 1, read_one_string, &run);
	size = scratch->at - at;
	scratch->at = at;
	if (scratch->strings_flags & PIECE_FAULT)
		return PIECE_FAULT | (address ? 0 : PIECE_NULL);
	return (size & PIECE_SIZE) | scratch->strings_flags;
}

/* Nothing of what lies behind one that cannot be read: its place would not be known. */
LOOP_STEP long read_one_vector(__u32 index, struct call_run *run)
{
	struct call_scratch *scratch = run->scratch;
	__u32 at = scratch->at, read;
	__u64 vector[2];

	if (index >= scratch->strings_max)
		return 1;
	if (at > CALL_DATA_MAX ||
	    read_user(vector, sizeof(vector), (void *)(scratch->strings + index * 16))) {
		scratch->strings_flags |= PIECE_CUT;
		return 1;
	}
	read = read_bytes(scratch, at, vector[0], vector[1], scratch->string_size);
	if (read & PIECE_FAULT) {
		scratch->strings_flags |= PIECE_CUT;
		return 1;
	}
	scratch->at = at + (read & PIECE_SIZE);
	return 0;
}

static __noinline __u32 read_vector(struct call_scratch *scratch,
				    const struct call_operation *operation, __u64 address)
{
	struct call_run run = {.scratch = scratch};
	__u32 at = scratch->at, size;
	__u64 count = operand(scratch, operation->length);

	scratch->strings = address;
	scratch->strings_flags = 0;
	scratch->strings_max = count < operation->size ? count : operation->size;
	scratch->string_size = operation->max;
	REPEAT(STRINGS_TRIES, CALL_STRINGS_MAX, read_one_vector, &run);
	size = scratch->at - at;
	scratch->at = at;
	return (size & PIECE_SIZE) | scratch->strings_flags;
}

static __always_inline __u32 read_value(struct call_scratch *scratch, __u64 value)
{
	__u32 at = scratch->at;

	if (at > CALL_DATA_MAX)
		return PIECE_CUT;
	__builtin_memcpy(scratch->data + at, &value, 8);
	return 8;
}

static __always_inline void keep_piece(struct call_scratch *scratch,
				       const struct call_operation *operation, __u32 read)
{
	__u32 size = read & PIECE_FAULT ? 0 : read & PIECE_SIZE;
	__u32 piece = operation->piece & (CALL_OPERATIONS_MAX - 1);

	((__u32 *)scratch->data)[piece] = (read & ~PIECE_SIZE) | size;
	scratch->last_at = scratch->at;
	scratch->last_size = size;
	scratch->at += size;
}

static __noinline int read_piece(struct call_scratch *scratch,
				 const struct call_operation *operation, __u64 address)
{
	__u32 kind = operation->kind, at = scratch->at, read;

	if (is_fault(scratch, operation->base))
		read = PIECE_FAULT;
	else if (kind == OPERATION_VALUE)
		read = read_value(scratch, address);
	else if (kind == OPERATION_STRING)
		read = at > CALL_DATA_MAX ? PIECE_CUT
					  : read_text(scratch, at, address, operation->max);
	else if (kind == OPERATION_BUFFER)
		read = read_length(scratch, operation, address);
	else if (kind == OPERATION_STRINGS)
		read = read_strings(scratch, operation, address);
	else if (kind == OPERATION_VECTOR)
		read = read_vector(scratch, operation, address);
	else
		read = read_std_string(scratch, operation, address);
	keep_piece(scratch, operation, read);
	return 0;
}

#endif
