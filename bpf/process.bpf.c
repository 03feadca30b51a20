// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Processes: fork, exec and exit of those traced; keeps the set of traced processes. */
#include "compat.h"
#include "filter.h"
#include "path.h"
#include "ring.h"
#include "task.h"

enum {
	ARGV_SIZE_MAX = 4096,
	PAGE_SIZE_MIN = 4096,
	EXEC_DATA_SIZE = PATH_SIZE_MAX + ARGV_SIZE_MAX,
};

struct exec_scratch {
	struct path_walk path;
	struct exec_record record; /* its data: EXEC_DATA_SIZE bytes */
};

/* One for one program: two programs may nest on a CPU, one with itself may not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct exec_scratch) + EXEC_DATA_SIZE);
} scratch_exec SEC(".maps");

static void emit_fork(struct task_struct *parent, struct task_struct *child)
{
	struct fork_record *record;

	record = reserve_record(RECORD_FORK, sizeof(*record), parent->tgid, parent->pid);
	if (!record)
		return;
	record->start_ns = child->start_time;
	record->cgroup_id = cgroup_id_of(child);
	record->child_pid = child->tgid;
	record->child_ns_pid = ns_pid_of(child);
	record->uid = child->cred->uid.val;
	record->reserved = 0;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), child->comm);
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

/* Write the path of the program's file at scratch->record.data; returns its size, without a NUL. */
static __u32 read_exe(struct exec_scratch *scratch, struct task_struct *task,
		      struct linux_binprm *program)
{
	long length;

	if (read_path(&scratch->path, &task->mm->exe_file->f_path))
		return copy_path(&scratch->path, scratch->record.data);
	scratch->record.flags |= EXEC_EXE_TRUNCATED;
	length = bpf_probe_read_kernel_str(scratch->record.data, PATH_SIZE_MAX, program->filename);
	return length > 0 ? length - 1 : 0;
}

/* Write the arguments at scratch->record.data + at; returns their size. */
static __u32 read_argv(struct exec_scratch *scratch, struct task_struct *task, __u32 at)
{
	__u64 start = task->mm->arg_start, size = task->mm->arg_end - start;

	if (size > ARGV_SIZE_MAX) {
		size = ARGV_SIZE_MAX;
		scratch->record.flags |= EXEC_ARGV_TRUNCATED;
	}
	if (at > PATH_SIZE_MAX ||
	    !bpf_probe_read_user(scratch->record.data + at, size, (void *)start))
		return at > PATH_SIZE_MAX ? 0 : size;
	/* One absent page fails the whole read. */
	scratch->record.flags |= EXEC_ARGV_TRUNCATED;
	size = PAGE_SIZE_MIN - start % PAGE_SIZE_MIN;
	if (bpf_probe_read_user(scratch->record.data + at, size, (void *)start))
		return 0;
	return size;
}

static void emit_exec(struct task_struct *task, int old_pid, struct linux_binprm *program)
{
	__u32 key = 0, size;
	struct exec_scratch *scratch = bpf_map_lookup_elem(&scratch_exec, &key);
	struct exec_record *record;

	if (!scratch)
		return;
	record = &scratch->record;
	record->start_ns = task->group_leader->start_time;
	record->cgroup_id = cgroup_id_of(task);
	record->old_pid = old_pid == task->pid ? 0 : old_pid;
	record->ppid = task->real_parent->tgid;
	record->ns_pid = ns_pid_of(task);
	record->uid = task->cred->uid.val;
	record->flags = 0;
	record->reserved = 0;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->comm);
	record->exe_size = read_exe(scratch, task, program);
	record->argv_size = read_argv(scratch, task, record->exe_size);
	size = sizeof(*record) + record->exe_size + record->argv_size;
	if (size > sizeof(*record) + EXEC_DATA_SIZE)
		return;
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_EXEC, size, task->tgid, task->pid);
	output_record(&lifecycle, RING_LIFECYCLE, &record->header, size);
}

static void emit_exit(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct signal_struct *signal = task->signal;
	struct exit_record *record;
	__u32 code;

	record = reserve_record(RECORD_EXIT, sizeof(*record), task->tgid, task->pid);
	if (!record)
		return;
	code = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : leader->exit_code;
	record->start_ns = leader->start_time;
	record->exit_code = code >> 8 & 0xff;
	record->signal = code & 0x7f;
	record->flags = code & 0x80 ? EXIT_CORE_DUMPED : 0;
	if (record->signal == SIGKILL && signal->oom_mm)
		record->flags |= EXIT_OOM_KILL;
	record->reserved = 0;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), leader->comm);
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

/* The child's mode, after it was put into the set of traced processes; TRACE_NONE: not traced. */
static __always_inline __u32 follow_fork(const struct task_struct *parent,
					 const struct task_struct *child)
{
	__u32 mode, tgid = child->tgid;

	if (tgid == (__u32)parent->tgid || child->flags & PF_KTHREAD)
		return TRACE_NONE; /* a thread, or the kernel's own */
	mode = mode_of(parent->tgid);
	if (mode == TRACE_SPAWNER)
		mode = TRACE_PENDING;
	else if (mode >= TRACE_ON || is_in_target(child))
		mode = mode_by_filters(child);
	if (mode != TRACE_NONE && !config_trace_all &&
	    bpf_map_update_elem(&traced, &tgid, &mode, BPF_ANY))
		count_loss(LOSS_TABLE_FULL, 1);
	return mode;
}

/* Whether the process is traced from this exec on. */
static __always_inline bool follow_exec(const struct task_struct *task)
{
	__u32 mode, tgid = task->tgid;

	mode = mode_of(tgid);
	if (mode == TRACE_PENDING || (mode != TRACE_NONE && has_filters())) {
		mode = mode_by_filters(task);
		bpf_map_update_elem(&traced, &tgid, &mode, BPF_EXIST);
	}
	return mode == TRACE_ON;
}

/*
 * Whether a traced process has ended with this thread. Deleting it from the set
 * is the guard against a second record of its exit.
 */
static __always_inline bool follow_exit(void *ctx, struct task_struct *task)
{
	__u32 tgid = task->tgid, mode;

	if (!is_group_dead(ctx, task))
		return false;
	mode = mode_of(tgid);
	if (mode == TRACE_NONE || mode == TRACE_SPAWNER)
		return false;
	if (bpf_map_delete_elem(&traced, &tgid) && !config_trace_all)
		return false;
	return mode != TRACE_MUTED;
}

/* Whether a process that came into a cgroup of the target is traced from now on. */
static __always_inline bool follow_move(const struct task_struct *task)
{
	__u32 mode, tgid = task->tgid;

	if (task->pid != task->tgid || tgid == config_own_tgid || !is_in_target(task))
		return false;
	mode = mode_by_filters(task);
	return !bpf_map_update_elem(&traced, &tgid, &mode, BPF_NOEXIST) && mode != TRACE_MUTED;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 mode = follow_fork(parent, child);

	if (mode != TRACE_NONE && mode != TRACE_MUTED)
		emit_fork(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid, struct linux_binprm *program)
{
	if (follow_exec(task))
		emit_exec(task, old_pid, program);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	if (follow_exit(ctx, task))
		emit_exit(task);
	return 0;
}

/* A process that comes into a cgroup of the target is as one that was there before. */
static void emit_moved(struct task_struct *task)
{
	struct exec_record *record;
	__u64 sequence;

	record = reserve_record(RECORD_EXEC, sizeof(*record), task->tgid, task->tgid);
	if (!record)
		return;
	sequence = record->header.ring_seq;
	fill_preexisting(record, task);
	record->header.ring_seq = sequence;
	submit_record(record, sequence, sizeof(*record));
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_move, struct cgroup *destination, const char *path, struct task_struct *task)
{
	if (follow_move(task))
		emit_moved(task);
	return 0;
}

#ifndef TRACEHOUND_OLD_KERNEL /* without switches; programs that are run by a call came with 5.14  \
			       */

/* In the place of these while no records of processes are wanted: who is traced is still kept. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork_untold, struct task_struct *parent, struct task_struct *child)
{
	follow_fork(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec_untold, struct task_struct *task)
{
	follow_exec(task);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit_untold, struct task_struct *task)
{
	follow_exit(ctx, task);
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_move_untold, struct cgroup *destination, const char *path, struct task_struct *task)
{
	follow_move(task);
	return 0;
}

/*
 * Run by ourselves: marks the process that runs it and tells its pid, which user
 * space in a pid namespace of its own cannot know.
 */
SEC("syscall")
int on_mark(struct own_mark *mark)
{
	__u32 mode = mark->mode, tgid = bpf_get_current_pid_tgid() >> 32;

	mark->tgid = tgid;
	if (mode == TRACE_NONE) {
		bpf_map_delete_elem(&traced, &tgid);
		return 0;
	}
	return bpf_map_update_elem(&traced, &tgid, &mode, BPF_ANY);
}

#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
