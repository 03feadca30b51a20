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
	const struct unwind_row *row = table->rows;
	uint64_t left = table->count, half;

	if (!left || pc < row->pc)
		return &gap;
	while (left > 1) { /* no branch in it depends on the rows */
		half = left / 2;
		row += row[half].pc <= pc ? half : 0;
		left -= half;
	}
	return row;
}

/* What was found for an address of a process: stacks of one batch have most of them in common. */
struct found {
	const struct unwind_range *ranges;
	uint64_t named;
	const struct unwind_row *row;
	uint64_t range_count;
};

enum { MEMO = 1024 };

static struct found *memo_of(struct found *memo, uint64_t named)
{
	return &memo[(named * 0x9e3779b97f4a7c15ULL) >> 54];
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

/* The row of an address; NULL, with a status, where there is none. */
static const struct unwind_row *look_up(struct walk *walk, const struct unwind_table *tables,
					const struct unwind_range *ranges, uint32_t range_count,
					struct found *memo)
{
	uint64_t named = walk->ip - walk->is_return;
	struct found *found = memo_of(memo, named);
	const struct unwind_range *range;

	if (found->row && found->named == named && found->ranges == ranges &&
	    found->range_count == range_count)
		return found->row;
	range = find_range(ranges, range_count, named);
	if (!range || range->table == TABLE_WANTED) {
		walk->status = range ? STACK_NEEDS_TABLE : STACK_NO_MAPPING;
		return NULL;
	}
	found->ranges = ranges;
	found->range_count = range_count;
	found->named = named;
	found->row = range->table < 0 ? &gap : find_row(&tables[range->table], named - range->bias);
	return found->row;
}

static uint32_t walk_stack(struct walk *walk, const struct unwind_table *tables,
			   const struct unwind_range *ranges, uint32_t range_count,
			   struct found *memo, uint32_t max_depth, uint64_t *addresses,
			   uint8_t *kinds)
{
	const struct unwind_row *row;
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
		row = look_up(walk, tables, ranges, range_count, memo);
		if (!row || !step(walk, row))
			return depth;
	}
}

enum { LINE = 64, FETCHED = 16 * LINE };

/* Has the beginning of a stack on its way while the one before is walked: most of a walk is waiting
 * for memory that nobody has touched since the kernel's copy was taken. */
static void fetch_stack(const uint8_t *stacks, const struct unwind_sample *sample)
{
	uint32_t size = sample->stack_size < FETCHED ? sample->stack_size : FETCHED;

	for (uint32_t at = 0; at < size; at += LINE)
		__builtin_prefetch(stacks + sample->stack_at + at);
}

void unwind_stacks(const struct unwind_table *tables, const struct unwind_range *ranges,
		   const uint8_t *stacks, const struct unwind_sample *samples, uint32_t count,
		   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds, uint32_t *depths,
		   uint8_t *statuses)
{
	struct found memo[MEMO] = {0};
	const struct unwind_sample *sample;
	uint64_t first;

	for (uint32_t i = 0; i < count; i++) {
		struct walk walk = {0};

		sample = &samples[i];
		if (i + 1 < count)
			fetch_stack(stacks, sample + 1);
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
				       memo, max_depth, addresses + first, kinds + first);
		if (walk.status == STACK_COMPLETE && walk.was_guessed)
			walk.status = STACK_FP_USED;
		else if (walk.status == STACK_COMPLETE && sample->flags & SAMPLE_PATCHED)
			walk.status = STACK_PATCHED;
		statuses[i] = walk.status;
	}
}

static uint64_t chain_at(const uint8_t *chains, const struct unwind_chain *chain, uint64_t index)
{
	uint64_t value; /* records are not aligned */

	memcpy(&value, chains + chain->at + index * sizeof(value), sizeof(value));
	return value;
}

/* How many entries up to `at` are the frames up to the last one. */
static uint32_t equal_run(const uint8_t *chains, const struct unwind_chain *chain, uint64_t at,
			  const uint64_t *addresses, uint32_t depth)
{
	uint32_t run = 0;

	while (run < depth && run <= at &&
	       chain_at(chains, chain, at - run) == addresses[depth - 1 - run])
		run++;
	return run;
}

static uint32_t splice(const uint8_t *chains, const struct unwind_chain *chain, uint32_t max_depth,
		       uint64_t *addresses, uint8_t *kinds, uint32_t depth)
{
	uint64_t next = 0;
	uint32_t longest = 0, run;

	/* The chain may lack the last frames: frame pointers miss a leaf's caller. */
	for (uint32_t common = depth; common && !longest; common--)
		for (uint64_t at = 0; at < chain->count; at++) {
			run = equal_run(chains, chain, at, addresses, common);
			if (run <= longest)
				continue;
			longest = run;
			next = at + 1;
		}
	for (; longest && next < chain->count && depth < max_depth; next++, depth++) {
		addresses[depth] = chain_at(chains, chain, next);
		kinds[depth] = FRAME_RETURN | FRAME_GUESSED | FRAME_CHAIN;
	}
	return depth;
}

void unwind_splice(const uint8_t *chains, const struct unwind_chain *chain, uint32_t count,
		   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds, uint32_t *depths,
		   const uint8_t *statuses)
{
	uint64_t first;

	for (uint32_t i = 0; i < count; i++) {
		if (statuses[i] != STACK_TRUNCATED || !chain[i].count || !depths[i])
			continue;
		first = (uint64_t)i * max_depth;
		depths[i] = splice(chains, &chain[i], max_depth, addresses + first, kinds + first,
				   depths[i]);
	}
}
