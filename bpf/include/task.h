/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What several programs read of a task. */
#ifndef TRACEHOUND_TASK_H
#define TRACEHOUND_TASK_H

#include "compat.h"
#include "ring.h"
#include "wire.h"

static __always_inline __u64 cgroup_id_of(const struct task_struct *task)
{
	return task->cgroups->dfl_cgrp->kn->id;
}

/* The pid in the task's own pid namespace. */
static __always_inline __u32 ns_pid_of(const struct task_struct *task)
{
	/* A number to the verifier: before 6.2 it refuses to add what it does not know to a
	 * pointer. */
	const struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	__u32 number = 0, level = BPF_CORE_READ(pid, level);

	bpf_probe_read_kernel(&number, sizeof(number),
			      (const __u8 *)pid + bpf_core_field_offset(struct pid, numbers) +
				      level * bpf_core_type_size(struct upid) +
				      bpf_core_field_offset(struct upid, nr));
	return number;
}

/* Fill a record of a process that was there before it was traced; its exe and argv are not read. */
static __always_inline void fill_preexisting(struct exec_record *record, struct task_struct *task)
{
	__builtin_memset(record, 0, sizeof(*record));
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_EXEC, sizeof(*record), task->tgid,
		    task->tgid);
	record->header.ring_seq = RING_SEQ_NONE;
	record->start_ns = task->group_leader->start_time;
	record->cgroup_id = cgroup_id_of(task);
	record->ppid = task->real_parent->tgid;
	record->ns_pid = ns_pid_of(task);
	record->uid = task->cred->uid.val;
	record->flags = EXEC_PREEXISTING;
	bpf_probe_read_kernel(record->comm, sizeof(record->comm), task->group_leader->comm);
}

#endif
