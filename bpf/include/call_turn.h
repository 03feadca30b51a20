/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The number of a call, and handing it from the program that writes a hit's entry to the one that
 * outputs its stack. Two programs, because one that may sleep has no perf buffers. The last one
 * attached runs first: that is the entry's, and what it leaves out has no stack either.
 */
#ifndef TRACEHOUND_CALL_TURN_H
#define TRACEHOUND_CALL_TURN_H

#include "call_id.h"

const volatile __u32 config_call_stacks = 0; /* hits have stacks */

enum {
	CALL_TURNS_MAX = 16384, /* threads between the two programs */
};

struct call_turn {
	__u64 call;
	__u64 time_ns; /* of the entry's record: the stack's has the same, so they stay together */
	__u64 sp;
	__u32 point;
	__u32 is_open;
};

/* By thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CALL_TURNS_MAX);
	__type(key, __u32);
	__type(value, struct call_turn);
} call_turns SEC(".maps");

/* Of a hit whose entry is written: its stack is wanted. */
static __always_inline void leave_turn(__u32 tid, __u64 call, __u64 time_ns, __u64 sp, __u32 point)
{
	struct call_turn turn = {call, time_ns, sp, point, 1};

	if (config_call_stacks)
		bpf_map_update_elem(&call_turns, &tid, &turn, BPF_ANY);
}

/* NULL: this hit has no entry. A turn is taken once. */
static __always_inline struct call_turn *take_turn(__u32 tid, __u64 sp, __u32 point)
{
	struct call_turn *turn = bpf_map_lookup_elem(&call_turns, &tid);

	if (!turn || !turn->is_open || turn->sp != sp || turn->point != point)
		return NULL;
	turn->is_open = 0;
	return turn;
}

#endif
