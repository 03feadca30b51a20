// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stacks of calls: at each point of call.bpf.c a second program, which does not sleep.
 * Hits that have no entry, by any filter, have no stack.
 */
#include "call_stack.h"
#include "compat.h"

SEC("uprobe")
int on_call_stack(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 point = bpf_get_attach_cookie(regs);
	struct call_turn *turn = take_turn(task->pid, USER_SP(regs), point);

	if (turn)
		output_stack(regs, task, turn->call, turn->time_ns, point);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
