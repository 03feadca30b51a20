// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * System calls: a record where one begins and one where it ends, made by the same operations as
 * those of functions. Programs on all calls cost every process of the machine, so this object is
 * loaded on demand. A call's number says first whether it is wanted.
 *
 * The state of a thread says which call it is in: at the end of rt_sigreturn the registers
 * are others, an exec changes the thread id, and a child returns from a clone that it did not
 * begin.
 */
#include "call_id.h"
#include "call_operations.h"
#include "call_output.h"
#include "compat.h"
#include "descriptor_name.h"
#include "filter.h"

enum {
	SYSCALLS_MAX = 512,
	SYSCALL_POINTS = CALL_POINTS_MAX - SYSCALLS_MAX, /* point of call number 0 */
	SYSCALL_NONE = -1,
};

enum syscall_flag {
	SYSCALL_WANTED = 1,
	SYSCALL_RETURNS = 2,
	SYSCALL_FORKS = 4,	/* a child returns 0 from it */
	SYSCALL_EXECS = 8,	/* what it points to is gone when it ends */
	SYSCALL_MAKES_FD = 16,	/* its result is a descriptor */
	SYSCALL_SHOWS_FDS = 32, /* what is behind descriptors is kept */
	SYSCALL_QUIET = 64,	/* counted only */
};

struct syscall_wish {
	__u8 flags;
	__u8 descriptors; /* 1 << argument: is one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYSCALLS_MAX);
	__type(key, __u32);
	__type(value, struct syscall_wish);
} syscall_wishes SEC(".maps");

struct syscall_total {
	__u64 calls;
	__u64 errors;
	__u64 total_ns;
	__u64 max_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS_MAX);
	__type(key, __u32);
	__type(value, struct syscall_total);
} syscall_totals SEC(".maps");

enum syscall_note {
	NOTE_COMPAT = 0,   /* calls of 32-bit programs: other numbers, not decoded */
	NOTE_NO_ENTRY = 1, /* ends of calls that were under way when tracing began */
	NOTE_COUNT = 2,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NOTE_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} syscall_notes SEC(".maps");

struct syscall_under_way {
	__u64 call;
	__u64 entry_ns;
	__u64 arguments[CALL_ARGUMENTS];
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u32 number;	/* + 1; 0: in none */
	__u16 is_first; /* an exec of what is not yet the command */
	__u16 is_late;	/* its entry record is made at its end: what it points to was not in memory
			 */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct syscall_under_way);
} syscalls_under_way SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *value = bpf_map_lookup_elem(&syscall_notes, &what);

	if (value)
		add_one(value);
}

static __always_inline void set_values(struct call_scratch *scratch,
				       const struct syscall_under_way *call,
				       const struct task_struct *task)
{
	__u64 *values = scratch->values;

	__builtin_memcpy(values, call->arguments, sizeof(call->arguments));
	values[OPERAND_SP] = call->sp;
	values[OPERAND_BP] = call->bp;
	values[OPERAND_IP] = call->ip;
	values[OPERAND_CALLER_IP] = 0;
	values[OPERAND_PID] = task->tgid;
	values[OPERAND_TID] = task->pid;
}

/* A piece that could not be read though it is no null pointer. */
static __always_inline bool has_fault(const struct call_scratch *scratch)
{
	const __u32 *sizes = (const __u32 *)scratch->data;

	for (__u32 i = 0; i < 8; i++) {
		if (i >= scratch->pieces)
			break;
		if (sizes[i] & PIECE_FAULT && !(sizes[i] & PIECE_NULL))
			return true;
	}
	return false;
}

/* The descriptors among the arguments are the last pieces. */
static __always_inline void add_descriptors(struct call_scratch *scratch,
					    const struct task_struct *task,
					    const struct syscall_wish *wish, __u32 phase)
{
	__u32 piece = scratch->pieces, mask = wish->descriptors;

	for (__u32 i = 0; i < CALL_ARGUMENTS; i++)
		piece -= mask >> i & 1;
	for (__u32 i = 0; i < CALL_ARGUMENTS; i++) {
		if (mask >> i & 1)
			add_descriptor(scratch, task, piece++, scratch->values[i], phase);
	}
}

static __always_inline void emit_entry(struct call_scratch *scratch, const struct task_struct *task,
				       const struct syscall_under_way *call, __u32 number)
{
	struct call_entry_record *record = RECORD_OF(call_entry_record, scratch);
	struct call_count *count;

	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CALL_ENTRY, 0, task->tgid,
		    task->pid);
	record->call = call->call;
	record->replaced = call->is_first; /* of a command: those that fail are no one's */
	record->ip = call->ip;
	record->sp = call->sp;
	record->bp = call->bp;
	record->caller_ip = 0;
	__builtin_memcpy(record->arguments, call->arguments, sizeof(record->arguments));
	record->point = SYSCALL_POINTS + number;
	record->pieces = scratch->pieces;
	count = count_of(record->point);
	if (!output_call(scratch, &record->header, sizeof(*record)) && count)
		add_one(&count->lost);
}

/* Make the entry record, or leave it to the call's end; false: filtered. */
static __noinline int enter_with_record(struct syscall_under_way *call,
					const struct syscall_wish *wish, __u32 number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 at = SYSCALL_POINTS + number;
	struct call_point *point = bpf_map_lookup_elem(&call_points, &at);
	struct call_count *count = count_of(at);
	struct call_scratch *scratch;

	if (!point)
		return 0;
	scratch = take_scratch();
	if (!scratch) {
		count_loss(LOSS_TABLE_FULL, 1);
		return 0;
	}
	set_values(scratch, call, task);
	if (!run_operations(scratch, point, CALL_AT_ENTRY)) {
		give_scratch(scratch);
		return 0;
	}
	if (point->flags & POINT_QUIET) {
		if (!(point->flags & POINT_AT_EXIT) && count)
			add_to_group(scratch, count, at);
	} else if (has_fault(scratch) && wish->flags & SYSCALL_RETURNS &&
		   !(wish->flags & SYSCALL_EXECS)) {
		call->is_late = 1;
	} else {
		if (wish->flags & SYSCALL_SHOWS_FDS)
			add_descriptors(scratch, task, wish, CALL_AT_ENTRY);
		emit_entry(scratch, task, call, number);
	}
	give_scratch(scratch);
	return 1;
}

static __always_inline void enter_call(const struct pt_regs *regs, struct task_struct *task,
				       const struct syscall_wish *wish, __u32 number)
{
	struct syscall_under_way *call;
	__u32 at = SYSCALL_POINTS + number;
	struct call_count *count = count_of(at);

	if (count)
		add_one(&count->hits);
	call = bpf_task_storage_get(&syscalls_under_way, task, NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call) {
		count_loss(LOSS_STORAGE_FULL, 1);
		return;
	}
	call->number = number + 1;
	call->is_late = 0;
	call->is_first = mode_of(task->tgid) == TRACE_PENDING;
	call->entry_ns = bpf_ktime_get_ns();
	if (wish->flags & SYSCALL_QUIET)
		return;
	call->call = take_call();
	call->arguments[0] = SYSCALL_FIRST(regs);
	call->arguments[1] = SYSCALL_SECOND(regs);
	call->arguments[2] = SYSCALL_THIRD(regs);
	call->arguments[3] = SYSCALL_FOURTH(regs);
	call->arguments[4] = SYSCALL_FIFTH(regs);
	call->arguments[5] = SYSCALL_SIXTH(regs);
	call->ip = USER_IP(regs);
	call->sp = USER_SP(regs);
	call->bp = USER_BP(regs);
	if (!enter_with_record(call, wish, number)) {
		call->number = 0;
		if (count)
			add_one(&count->filtered);
	}
}

static __always_inline void add_total(__u32 number, long result, __u64 duration_ns)
{
	struct syscall_total *total = bpf_map_lookup_elem(&syscall_totals, &number);

	if (!total)
		return;
	add_one(&total->calls);
	__sync_fetch_and_add(&total->total_ns, duration_ns);
	if (result < 0 && result >= -4095)
		add_one(&total->errors);
	if (duration_ns > total->max_ns)
		total->max_ns = duration_ns;
}

static __noinline int leave_with_record(struct syscall_under_way *call,
					const struct syscall_wish *wish, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 number = call->number - 1, at = SYSCALL_POINTS + number;
	struct call_point *point = bpf_map_lookup_elem(&call_points, &at);
	struct call_scratch *scratch = point ? take_scratch() : NULL;
	struct call_return_record *record;

	if (!scratch) {
		count_loss(LOSS_TABLE_FULL, 1);
		return 0;
	}
	set_values(scratch, call, task);
	if (point->flags & POINT_QUIET) {
		give_scratch(scratch);
		return 0;
	}
	if (call->is_late) {
		run_operations(scratch, point, CALL_AT_ENTRY);
		if (wish->flags & SYSCALL_SHOWS_FDS)
			add_descriptors(scratch, task, wish, CALL_AT_EXIT);
		emit_entry(scratch, task, call, number);
	}
	scratch->values[OPERAND_RETURN] = result;
	run_operations(scratch, point, CALL_AT_EXIT);
	if (wish->flags & SYSCALL_SHOWS_FDS && wish->flags & SYSCALL_MAKES_FD)
		add_descriptor(scratch, task, scratch->pieces - 1, result < 0 ? -1 : result,
			       CALL_AT_EXIT);
	record = RECORD_OF(call_return_record, scratch);
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CALL_RETURN, 0, task->tgid,
		    task->pid);
	record->call = call->call;
	record->entry_ns = call->entry_ns;
	record->value = result;
	record->point = at;
	record->pieces = scratch->pieces;
	output_call(scratch, &record->header, sizeof(*record));
	give_scratch(scratch);
	return 0;
}

static __always_inline void leave_call(struct syscall_under_way *call, long result)
{
	__u32 number = call->number - 1;
	struct syscall_wish *wish = bpf_map_lookup_elem(&syscall_wishes, &number);

	if (!call->is_first || result >= 0)
		add_total(number, result, bpf_ktime_get_ns() - call->entry_ns);
	if (wish && !(wish->flags & SYSCALL_QUIET))
		leave_with_record(call, wish, result);
	call->number = 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_syscall_enter, struct pt_regs *regs, long number)
{
	__u32 key = number;
	struct syscall_wish *wish = bpf_map_lookup_elem(&syscall_wishes, &key);
	struct task_struct *task;
	__u32 mode;

	if (!wish || !wish->flags)
		return 0;
	task = bpf_get_current_task_btf();
	mode = mode_of(task->tgid);
	if (mode != TRACE_ON && !(mode == TRACE_PENDING && wish->flags & SYSCALL_EXECS))
		return 0;
	if (is_compat_task(task))
		note(NOTE_COMPAT);
	else
		enter_call(regs, task, wish, key);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_syscall_exit, struct pt_regs *regs, long result)
{
	__u32 key = SYSCALL_NUMBER(regs);
	struct syscall_wish *wish = NULL;
	struct syscall_under_way *call;
	struct task_struct *task;

	if (key !=
	    (__u32)SYSCALL_NONE) { /* not of rt_sigreturn, which has put back other registers */
		wish = bpf_map_lookup_elem(&syscall_wishes, &key);
		if (!wish || !wish->flags)
			return 0;
	}
	task = bpf_get_current_task_btf();
	call = bpf_task_storage_get(&syscalls_under_way, task, NULL, 0);
	if (call && call->number)
		leave_call(call, result);
	else if (wish && !call && !(wish->flags & SYSCALL_FORKS && !result) &&
		 is_traced(task->tgid) && !is_compat_task(task))
		note(NOTE_NO_ENTRY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
