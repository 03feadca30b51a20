// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Processes on kernels that refuse process.bpf.c (before 5.17): the same programs
 * without bpf_loop, without atomic additions that give a result, without on_mark.
 */
#define TRACEHOUND_OLD_KERNEL
#define on_fork on_fork_old
#define on_exec on_exec_old
#define on_exit on_exit_old
#define on_move on_move_old
#include "process.bpf.c"
