/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Runs the operations of a point on what is in a scratch's `values`. Knows nothing of where the
 * registers there come from: a function's or a system call's.
 */
#ifndef TRACEHOUND_CALL_OPERATIONS_H
#define TRACEHOUND_CALL_OPERATIONS_H

#include "call_limits.h"

enum {
	RUN_TRIES = 16, /* where the loop is unrolled */
};

/* Whether the text of a filter is in the last piece, at the operation's offset. */
static __noinline int is_text_there(const struct call_scratch *scratch,
				    const struct call_operation *operation)
{
	__u32 key = operation->constant, from = scratch->last_at + operation->offset, end;
	const struct call_text *text = bpf_map_lookup_elem(&call_texts, &key);

	if (!text)
		return 0;
	end = operation->offset + text->size;
	if (end > scratch->last_size)
		return 0;
	if (operation->flags & MATCH_WHOLE && end != scratch->last_size)
		return 0;
	if (from > CALL_DATA_MAX + CALL_PIECE_MAX - CALL_TEXT_SIZE)
		return 0;
	for (__u32 i = 0; i < CALL_TEXT_SIZE; i++) {
		if (i >= text->size)
			break;
		if (scratch->data[from + i] != text->bytes[i])
			return 0;
	}
	return 1;
}

static __always_inline bool is_number_so(const struct call_operation *operation, __u64 value)
{
	bool is_signed = operation->flags & OPERATION_SIGNED;
	__u64 given = narrowed(value, operation->size, is_signed);
	__u64 wanted = narrowed(operation->constant, operation->size, is_signed);

	if (given == wanted)
		return operation->flags & MATCH_EQUAL;
	if (is_signed ? (__s64)given < (__s64)wanted : given < wanted)
		return operation->flags & MATCH_LESS;
	return operation->flags & MATCH_GREATER;
}

/* Return 1 if it is known that the hit is filtered. */
static __always_inline long note_match(struct call_scratch *scratch,
				       const struct call_operation *operation, bool is_match)
{
	__u64 group = 1ull << (operation->group & 63);

	if (operation->flags & MATCH_BLACK) {
		if (is_match)
			scratch->is_filtered = 1;
		return is_match;
	}
	scratch->groups_wanted |= group;
	if (is_match)
		scratch->groups_matched |= group;
	return 0;
}

#ifdef CALL_MAY_SLEEP
static __always_inline long note_caller(struct call_scratch *scratch,
					const struct call_operation *operation)
{
	__u32 found = is_called_from(scratch->values[OPERAND_CALLER_IP], operation->constant,
				     operation->max);

	if (found == CALLER_UNTOLD)
		scratch->is_untold = 1;
	return note_match(scratch, operation, found == 1);
}
#endif

static __always_inline void add_key_number(struct call_scratch *scratch, __u64 value)
{
	__u32 at = scratch->key_size;

	if (at > CALL_KEY_SIZE - 8)
		return;
	__builtin_memcpy(scratch->key + at, &value, 8);
	scratch->key_size = at + 8;
}

/* As much of a text as there is room for. */
static __always_inline void add_key_text(struct call_scratch *scratch)
{
	for (__u32 i = 0; i < CALL_KEY_SIZE; i++) {
		__u32 to = scratch->key_size, from = scratch->last_at + i;

		asm volatile("" : "+r"(to), "+r"(from)); /* as they are checked, they are used */
		if (i >= scratch->last_size || to >= CALL_KEY_SIZE || from >= CALL_DATA_MAX)
			break;
		scratch->key[to] = scratch->data[from];
		scratch->key_size = to + 1;
	}
}

static __always_inline void add_key_comm(struct call_scratch *scratch)
{
	__u32 at = scratch->key_size;

	if (at > CALL_KEY_SIZE - 16)
		return;
	bpf_get_current_comm(scratch->key + at, 16);
	scratch->key_size = at + 16;
}

static __always_inline void measure(struct call_scratch *scratch,
				    const struct call_operation *operation, __u64 value)
{
	bool is_signed = operation->flags & OPERATION_SIGNED;

	scratch->measured = narrowed(value, operation->size, is_signed);
	scratch->is_negative = is_signed && (__s64)scratch->measured < 0;
}

static __noinline int add_to_aggregate(struct call_scratch *scratch,
				       const struct call_operation *operation, __u64 value)
{
	if (operation->kind == OPERATION_KEY_NUMBER)
		add_key_number(scratch, value);
	else if (operation->kind == OPERATION_KEY_PIECE)
		add_key_text(scratch);
	else if (operation->kind == OPERATION_KEY_COMM)
		add_key_comm(scratch);
	else
		measure(scratch, operation, value);
	return 0;
}

/* 1 ends the run. */
LOOP_STEP long run_operation(__u32 index, struct call_run *run)
{
	struct call_scratch *scratch = run->scratch;
	__u32 at = run->first + index;
	const struct call_operation *operation = bpf_map_lookup_elem(&call_operations, &at);
	__u64 value;
	__u8 kind;

	if (!operation)
		return 1;
	if (operation->phase != run->phase)
		return 0;
	kind = operation->kind;
	value = operand(scratch, operation->base) + (__s64)operation->offset;
	if ((kind >= OPERATION_VALUE && kind <= OPERATION_STRINGS) || kind == OPERATION_VECTOR) {
		read_piece(scratch, operation, value);
	} else if (kind == OPERATION_LOAD || kind == OPERATION_SET) {
		if (is_fault(scratch, operation->base))
			scratch->faults |= 1ull << (index & 63);
		else if (kind == OPERATION_LOAD)
			load_number(scratch, operation, value, index);
		else
			scratch->values[OPERAND_RESULT | (index & 63)] = narrowed(
				value, operation->size, operation->flags & OPERATION_SIGNED);
	} else if (kind == OPERATION_MATCH_NUMBER) {
		return note_match(scratch, operation,
				  !is_fault(scratch, operation->base) &&
					  is_number_so(operation, value));
	} else if (kind == OPERATION_MATCH_BYTES) {
		return note_match(scratch, operation, is_text_there(scratch, operation));
#ifdef CALL_MAY_SLEEP
	} else if (kind == OPERATION_MATCH_CALLER) {
		return note_caller(scratch, operation);
#endif
	} else {
		add_to_aggregate(scratch, operation, value);
	}
	return 0;
}

/*
 * Run the operations of one phase on `values`, which are there; return whether the hit passes the
 * filters. Then `at` bytes of `data` are `pieces` sizes and the pieces.
 */
static __always_inline bool run_operations(struct call_scratch *scratch,
					   const struct call_point *point, __u32 phase)
{
	struct call_run run = {scratch, point->first, phase};
	__u32 count = point->operations;

	scratch->pieces = point->pieces[phase] & (CALL_OPERATIONS_MAX - 1);
	scratch->at = scratch->pieces * sizeof(__u32);
	scratch->is_filtered = 0;
	scratch->is_untold = 0;
	scratch->is_negative = 0;
	scratch->measured = 0;
	if (!count)
		return true;
	scratch->faults = scratch->groups_wanted = scratch->groups_matched = 0;
	scratch->last_size = 0;
	if (phase == CALL_AT_ENTRY) { /* what is counted by may grow at the exit */
		scratch->key_size = 0;
		__builtin_memset(scratch->key, 0, sizeof(scratch->key));
	}
	if (count > CALL_OPERATIONS_MAX)
		count = CALL_OPERATIONS_MAX;
	REPEAT(RUN_TRIES, count, run_operation, &run);
	return !scratch->is_filtered && !(scratch->groups_wanted & ~scratch->groups_matched);
}

#endif
