// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Calls of user functions: a uprobe where one begins and one at each of its RET
 * instructions, which changes nothing of the stack. A return belongs to the entry of the same
 * point, thread and stack address with the same return address, so recursion, longjmp and fork pair
 * no wrong ones. The programs may sleep: what is not in memory yet is read in.
 */
#define CALL_MAY_SLEEP
#include "call_operations.h"
#include "call_output.h"
#include "call_signal.h"
#include "call_turn.h"
#include "compat.h"
#include "filter.h"

struct call_key {
	__u64 sp;
	__u32 tid;
	__u32 point;
};

struct call_under_way {
	__u64 call;
	__u64 entry_ns;
	__u64 caller_ip;
	__u64 thread_start_ns; /* a thread id is used again */
	__u64 arguments[CALL_ARGUMENTS];
	__u8 key[CALL_KEY_SIZE];
	__u64 key_size;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct call_key);
	__type(value, struct call_under_way);
} calls_under_way SEC(".maps");

/* Cookies of links are the number of the point, and above it the generation of the link. */

static __always_inline void copy_registers(struct call_scratch *scratch, const struct pt_regs *regs,
					   const struct task_struct *task,
					   const struct call_point *point)
{
	__u64 *values = scratch->values;

	values[OPERAND_RETURN] = RETURN_VALUE(regs);
	values[OPERAND_SP] = USER_SP(regs);
	values[OPERAND_BP] = USER_BP(regs);
	values[OPERAND_IP] = USER_IP(regs);
	values[OPERAND_PID] = task->tgid;
	values[OPERAND_TID] = task->pid;
	if (point->flags & POINT_ALL_REGISTERS)
		copy_others(values + OPERAND_OTHERS, regs);
}

/* Keep the call until its return; return the id of one that began at the same place and has ended.
 */
static __always_inline __u64 begin_call(struct call_scratch *scratch, __u64 id, __u64 now_ns,
					const struct task_struct *task, __u32 number)
{
	const __u64 *values = scratch->values;
	struct call_key key = {values[OPERAND_SP], task->pid, number};
	struct call_under_way call = {id, now_ns, values[OPERAND_CALLER_IP], task->start_time,
				      {}, {},	  scratch->key_size};
	struct call_under_way *before = bpf_map_lookup_elem(&calls_under_way, &key);
	__u64 replaced = 0;

	if (before && before->thread_start_ns == call.thread_start_ns)
		replaced = before->call;
	__builtin_memcpy(call.arguments, values, sizeof(call.arguments));
	__builtin_memcpy(call.key, scratch->key, sizeof(call.key));
	bpf_map_update_elem(&calls_under_way, &key, &call, BPF_ANY);
	return replaced;
}

static __always_inline void emit_entry(struct call_scratch *scratch, const struct task_struct *task,
				       const struct call_point *point, struct call_count *count,
				       __u32 number)
{
	struct call_entry_record *record = RECORD_OF(call_entry_record, scratch);
	const __u64 *values = scratch->values;

	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CALL_ENTRY, 0, task->tgid,
		    task->pid);
	record->call = take_call();
	record->replaced = 0;
	if (point->flags & POINT_HAS_RETURN)
		record->replaced =
			begin_call(scratch, record->call, record->header.time_ns, task, number);
	record->ip = values[OPERAND_IP];
	record->sp = values[OPERAND_SP];
	record->bp = values[OPERAND_BP];
	record->caller_ip = values[OPERAND_CALLER_IP];
	__builtin_memcpy(record->arguments, values, sizeof(record->arguments));
	record->point = number;
	record->pieces = scratch->pieces;
	if (!output_call(scratch, &record->header, sizeof(*record)))
		add_one(&count->lost);
	else
		leave_turn(task->pid, record->call, record->header.time_ns, record->sp, number);
	signal_target();
}

/* Count a hit here, or keep it for its return. */
static __always_inline void count_entry(struct call_scratch *scratch,
					const struct task_struct *task,
					const struct call_point *point, struct call_count *count,
					__u32 number)
{
	if (point->flags & POINT_AT_EXIT)
		begin_call(scratch, take_call(), bpf_ktime_get_ns(), task, number);
	else
		add_to_group(scratch, count, number);
}

/* A hit that did not pass, or of which that could not be told. */
static __always_inline void count_left_out(const struct call_scratch *scratch,
					   struct call_count *count)
{
	if (scratch->is_untold && !scratch->is_filtered) {
		count_loss(LOSS_FAULT, 1);
		add_one(&count->lost);
	} else {
		add_one(&count->filtered);
	}
}

static void enter_point(struct pt_regs *regs, const struct task_struct *task, __u64 cookie)
{
	__u32 number = cookie;
	struct call_point *point = bpf_map_lookup_elem(&call_points, &number);
	struct call_count *count = count_of(number);
	struct call_window *window;
	struct call_scratch *scratch;

	if (!point || !count || point->flags & POINT_OFF || point->generation != cookie >> 32)
		return;
	add_one(&count->hits);
	window = window_of(point, number);
	if (!is_below_ceiling(point, window)) {
		add_one(&count->dropped);
		return;
	}
	if (point->flags & POINT_QUIET && !point->operations)
		return; /* that was all */
	scratch = take_scratch();
	if (!scratch) {
		count_loss(LOSS_TABLE_FULL, 1);
		add_one(&count->lost);
		return;
	}
	copy_arguments(scratch->values, regs);
	copy_registers(scratch, regs, task, point);
	scratch->values[OPERAND_CALLER_IP] =
		point->flags & POINT_HAS_CALLER ? return_address(regs) : 0;
	if (!run_operations(scratch, point, CALL_AT_ENTRY))
		count_left_out(scratch, count);
	else if (!is_in_rate(point, window))
		add_one(&count->dropped);
	else if (point->flags & POINT_QUIET)
		count_entry(scratch, task, point, count, number);
	else
		emit_entry(scratch, task, point, count, number);
	give_scratch(scratch);
}

static __always_inline void emit_return(struct pt_regs *regs, const struct task_struct *task,
					const struct call_under_way *call,
					const struct call_point *point, __u32 number)
{
	struct call_scratch *scratch = take_scratch();
	struct call_count *count = count_of(number);
	struct call_return_record *record;

	if (!scratch) {
		count_loss(LOSS_TABLE_FULL, 1);
		return;
	}
	record = RECORD_OF(call_return_record, scratch);
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CALL_RETURN, 0, task->tgid,
		    task->pid);
	__builtin_memcpy(scratch->values, call->arguments, sizeof(call->arguments));
	copy_registers(scratch, regs, task, point);
	scratch->values[OPERAND_CALLER_IP] = call->caller_ip;
	scratch->values[OPERAND_DURATION] = record->header.time_ns - call->entry_ns;
	__builtin_memcpy(scratch->key, call->key, sizeof(call->key));
	scratch->key_size = call->key_size;
	record->call = call->call;
	record->entry_ns = call->entry_ns;
	record->value = scratch->values[OPERAND_RETURN];
	record->point = number;
	run_operations(scratch, point, CALL_AT_EXIT);
	record->pieces = scratch->pieces;
	if (!(point->flags & POINT_QUIET))
		output_call(scratch, &record->header, sizeof(*record));
	else if (count)
		add_to_group(scratch, count, number);
	give_scratch(scratch);
}

static void leave_point(struct pt_regs *regs, const struct task_struct *task, __u64 cookie)
{
	__u32 number = cookie;
	struct call_key key = {USER_SP(regs), task->pid, number};
	struct call_under_way *found = bpf_map_lookup_elem(&calls_under_way, &key), call;
	struct call_point *point = bpf_map_lookup_elem(&call_points, &number);

	if (!found || !point || point->generation != cookie >> 32 ||
	    found->thread_start_ns != task->start_time || found->caller_ip != return_address(regs))
		return;
	call = *found;
	bpf_map_delete_elem(&calls_under_way, &key);
	emit_return(regs, task, &call, point, number);
}

SEC("uprobe.s")
int on_call_entry(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_traced(task->tgid))
		enter_point(regs, task, bpf_get_attach_cookie(regs));
	return 0;
}

SEC("uprobe.s")
int on_call_return(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_traced(task->tgid))
		leave_point(regs, task, bpf_get_attach_cookie(regs));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
