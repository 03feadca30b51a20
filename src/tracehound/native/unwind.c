/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "unwind.h"

/* System V x86-64: struct ucontext, gregs */
enum { UCONTEXT_RBP = 120, UCONTEXT_RSP = 160, UCONTEXT_RIP = 168 };
enum { RBP_LOST = -128 };

/* status: of the frame that failed; read() sets it */
struct walk {
	const uint8_t *stack;
	uint64_t base;
	uint64_t size;
	uint64_t ip, sp, bp;
	bool is_return;
	bool is_guessed; /* the next frame is */
	bool was_guessed;
	bool was_signalled; /* an interrupted frame may be on another stack */
	uint8_t status;
};

static bool read_word(struct walk *walk, uint64_t address, uint64_t *value)
{
	uint64_t at = address - walk->base;

	if (address < walk->base) {
		walk->status = walk->was_signalled ? STACK_TRUNCATED : STACK_BAD_CFI;
		return false;
	}
	if (at > walk->size || walk->size - at < sizeof(*value)) {
		walk->status = STACK_TRUNCATED;
		return false;
	}
	memcpy(value, walk->stack + at, sizeof(*value));
	return true;
}

static const struct unwind_range *find_range(const struct unwind_range *ranges, uint32_t count,
					     uint64_t address)
{
	uint32_t low = 0, high = count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (ranges[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || address >= ranges[low - 1].end)
		return NULL;
	return &ranges[low - 1];
}

static const struct unwind_row gap = {0, 0, UNWIND_GAP, 0};

static const struct unwind_row *find_row(const struct unwind_table *table, uint64_t pc)
{
	uint64_t low = 0, high = table->count, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (table->rows[middle].pc <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &table->rows[low - 1] : &gap;
}

/* The steps below go to the caller; false, with a status, where the walk ends. */

static bool finish(struct walk *walk, uint8_t status)
{
	walk->status = status;
	return false;
}

static bool return_to(struct walk *walk, uint64_t cfa, uint64_t bp)
{
	uint64_t ip;

	if (!read_word(walk, cfa - 8, &ip))
		return false;
	walk->ip = ip;
	walk->sp = cfa;
	walk->bp = bp;
	walk->is_return = true;
	return ip ? true : finish(walk, STACK_COMPLETE);
}

static bool step_signal(struct walk *walk)
{
	uint64_t ip, sp, bp;

	if (!read_word(walk, walk->sp + UCONTEXT_RIP, &ip) ||
	    !read_word(walk, walk->sp + UCONTEXT_RSP, &sp) ||
	    !read_word(walk, walk->sp + UCONTEXT_RBP, &bp))
		return false;
	walk->ip = ip;
	walk->sp = sp;
	walk->bp = bp;
	walk->is_return = false;
	walk->was_signalled = true;
	return ip ? true : finish(walk, STACK_COMPLETE);
}

static bool step_frame_pointer(struct walk *walk)
{
	uint64_t bp;

	walk->is_guessed = walk->was_guessed = true;
	if (!walk->bp)
		return finish(walk, STACK_COMPLETE);
	if (walk->bp % 8 || walk->bp < walk->sp || walk->bp > UINT64_MAX - 16)
		return finish(walk, STACK_BAD_CFI);
	return read_word(walk, walk->bp, &bp) && return_to(walk, walk->bp + 16, bp);
}

static bool step(struct walk *walk, const struct unwind_row *row)
{
	uint64_t cfa, bp = walk->bp;

	walk->is_guessed = false;
	switch (row->rule) {
	case UNWIND_GAP:
		return step_frame_pointer(walk);
	case UNWIND_SIGNAL:
		return step_signal(walk);
	case UNWIND_END:
		return finish(walk, STACK_COMPLETE);
	case UNWIND_RSP:
		cfa = walk->sp + (uint64_t)(int64_t)row->cfa_offset;
		break;
	case UNWIND_RBP:
		cfa = walk->bp + (uint64_t)(int64_t)row->cfa_offset;
		break;
	case UNWIND_PLT:
		cfa = walk->sp + 8 + ((walk->ip & 15) >= 11 ? 8 : 0);
		break;
	case UNWIND_DEREF_RBP:
		if (!read_word(walk, walk->bp + (uint64_t)(int64_t)row->cfa_offset, &cfa) ||
		    !read_word(walk, walk->bp, &bp))
			return false;
		break;
	default:
		return finish(walk, STACK_BAD_CFI);
	}
	if (cfa <= walk->sp)
		return finish(walk, STACK_BAD_CFI);
	if (row->rbp == RBP_LOST)
		bp = 0;
	else if (row->rbp && !read_word(walk, cfa + (uint64_t)((int64_t)row->rbp * 8), &bp))
		return false;
	return return_to(walk, cfa, bp);
}

static uint32_t walk_stack(struct walk *walk, const struct unwind_table *tables,
			   const struct unwind_range *ranges, uint32_t range_count,
			   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds)
{
	const struct unwind_range *range;
	uint64_t named;
	uint32_t depth = 0;

	for (;;) {
		if (depth == max_depth) {
			walk->status = STACK_MAX_DEPTH;
			return depth;
		}
		addresses[depth] = walk->ip;
		kinds[depth] = (walk->is_return ? FRAME_RETURN : 0) |
			       (walk->is_guessed ? FRAME_GUESSED : 0);
		depth++;
		named = walk->ip - walk->is_return;
		range = find_range(ranges, range_count, named);
		if (!range) {
			walk->status = STACK_NO_MAPPING;
			return depth;
		}
		if (!step(walk, range->table < 0
					? &gap
					: find_row(&tables[range->table], named - range->bias)))
			return depth;
	}
}

void unwind_stacks(const struct unwind_table *tables, const struct unwind_range *ranges,
		   const uint8_t *stacks, const struct unwind_sample *samples, uint32_t count,
		   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds, uint32_t *depths,
		   uint8_t *statuses)
{
	const struct unwind_sample *sample;
	uint64_t first;

	for (uint32_t i = 0; i < count; i++) {
		struct walk walk = {0};

		sample = &samples[i];
		if (sample->flags & SAMPLE_NO_REGISTERS) {
			depths[i] = 0;
			statuses[i] = STACK_NO_USER_REGS;
			continue;
		}
		walk.stack = stacks + sample->stack_at;
		walk.base = walk.sp = sample->sp;
		walk.size = sample->stack_size;
		walk.ip = sample->ip;
		walk.bp = sample->bp;
		first = (uint64_t)i * max_depth;
		depths[i] = walk_stack(&walk, tables, ranges + sample->first_range, sample->ranges,
				       max_depth, addresses + first, kinds + first);
		if (walk.status == STACK_COMPLETE && walk.was_guessed)
			walk.status = STACK_FP_USED;
		else if (walk.status == STACK_COMPLETE && sample->flags & SAMPLE_PATCHED)
			walk.status = STACK_PATCHED;
		statuses[i] = walk.status;
	}
}
