/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Output of a stack record through the perf ring of this CPU. The kernel adds what that ring asks
 * for: registers, call chain, a copy of the stack. We add the call it belongs to, and the return
 * addresses that uretprobes (other tools') have replaced in it.
 */
#ifndef TRACEHOUND_CALL_STACK_H
#define TRACEHOUND_CALL_STACK_H

#include "call_turn.h"
#include "ring.h"

enum {
	CALL_SLOTS = 16,
	STACK_POINTS_MAX = 16384,
	STACK_PIDS_MAX = 8192,
	STACK_WORDS = sizeof(struct call_stack_record) / 8, /* without its slots */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} call_stacks SEC(".maps");

/* Of each point: stacks for which there was no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STACK_POINTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} call_stacks_lost SEC(".maps");

/* Processes that had stacks, also when they are gone: their mappings are wanted. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STACK_PIDS_MAX);
	__type(key, __u32);
	__type(value, __u32);
} stack_pids SEC(".maps");

static __always_inline __u32 copy_slots(__u64 *slot, const struct task_struct *task)
{
	struct return_instance *instance;
	__u32 count = 0;

	if (!bpf_core_field_exists(task->utask) || !task->utask)
		return 0;
	instance = BPF_CORE_READ(task, utask, return_instances);
	for (; count < CALL_SLOTS && instance; count++) {
		slot[2 * count] = BPF_CORE_READ(instance, stack);
		slot[2 * count + 1] = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
	return count;
}

static __always_inline void know_stack_pid(__u32 tgid)
{
	__u32 one = 1;

	if (!bpf_map_lookup_elem(&stack_pids, &tgid))
		bpf_map_update_elem(&stack_pids, &tgid, &one, BPF_ANY);
}

static __always_inline void output_stack(void *context, const struct task_struct *task, __u64 call,
					 __u64 time_ns, __u32 point)
{
	__u64 out[STACK_WORDS + 2 * CALL_SLOTS] = {}, *lost, size;
	struct call_stack_record *record = (void *)out;

	fill_header(&record->header, time_ns, RECORD_CALL_STACK, sizeof(*record), task->tgid,
		    task->pid);
	record->call = call;
	record->slot_count = copy_slots(out + STACK_WORDS, task);
	record->header.ring_seq = take_ring_sequence(RING_STACK);
	know_stack_pid(task->tgid);
	size = sizeof(*record) + 16 * record->slot_count;
	if (size > sizeof(out))
		return;
	if (!bpf_perf_event_output(context, &call_stacks, BPF_F_CURRENT_CPU, out, size))
		return;
	count_loss(LOSS_RING_FULL, 1);
	lost = bpf_map_lookup_elem(&call_stacks_lost, &point);
	if (lost)
		__sync_fetch_and_add(lost, 1);
}

#endif
