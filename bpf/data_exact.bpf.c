// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What only hooks under the socket's lock can tell: where a call of one of several
 * threads lies in the stream, and bytes that leave a socket by ways that no other hook
 * sees: splice into a pipe, TCP_ZEROCOPY_RECEIVE.
 */
#include "compat.h"
#include "call.h"
#include "filter.h"

/* Called for every piece that a call takes over; the lock may have been let go in between. */
static __noinline int note_send(struct sock *sk, struct socket_state *state,
				struct task_struct *task, __u64 left)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct thread_state *thread;
	__u32 sequence;

	if (!tcp || !note_shared(state, DIRECTION_SEND, task->pid))
		return 0;
	thread = thread_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	sequence = tcp->write_seq;
	if (thread->locked_sk[DIRECTION_SEND] != (__u64)sk || left >= thread->left) {
		thread->locked_sk[DIRECTION_SEND] = (__u64)sk; /* nothing taken over yet */
		thread->locked[DIRECTION_SEND] = sequence;
		thread->left = left;
		thread->is_mixed = 0;
	} else if (sequence != thread->locked[DIRECTION_SEND] + (__u32)(thread->left - left)) {
		thread->is_mixed = 1;
	}
	return 0;
}

static __noinline int note_receive(struct sock *sk, struct socket_state *state,
				   struct task_struct *task)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct thread_state *thread;

	if (!tcp || !is_traced(task->tgid) || !note_shared(state, DIRECTION_RECEIVE, task->pid))
		return 0;
	thread = thread_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	thread->locked_sk[DIRECTION_RECEIVE] = (__u64)sk;
	thread->locked[DIRECTION_RECEIVE] = tcp->copied_seq;
	return 0;
}

/* The system call under way takes bytes from a socket and tells no other hook of it. */
static __always_inline bool is_silent_call(struct task_struct *task)
{
	__u32 number = SYSCALL_NUMBER((struct pt_regs *)bpf_task_pt_regs(task));

	return (number == SYSCALL_SPLICE || number == SYSCALL_GETSOCKOPT) && call_registers(task);
}

/* Record the bytes between the last call and here, without payload. */
static __noinline int emit_silent(struct sock *sk, struct task_struct *task)
{
	__u32 key = SCRATCH_LOCKED;
	struct tcp_sock *tcp;
	struct scratch *scratch;
	struct socket_state *state;
	struct call *call;
	__u64 before;

	if (!is_traced(task->tgid))
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	scratch = bpf_map_lookup_elem(&scratch_call, &key);
	if (!tcp || !scratch)
		return 0;
	state = ready_state(find_state(sk), sk, tcp, task->tgid);
	if (!state)
		return 0;
	call = &scratch->call;
	set_caller(call, task);
	before = state->position[DIRECTION_RECEIVE];
	if (state->flags & CONNECTION_PREEXISTING && !state->calls[DIRECTION_RECEIVE])
		before = read_position(state, tcp); /* how many came is not known */
	call->size = read_position(state, tcp) - before;
	fill_call(call, sk, state, tcp, 0, DIRECTION_RECEIVE);
	if (!call->size || !choose_class(call, state, DIRECTION_RECEIVE))
		return 0;
	call->flags |= DATA_OPAQUE;
	count_loss(LOSS_OPAQUE_BYTES, call->size);
	fill_record(scratch, state, DIRECTION_RECEIVE);
	find_payload(scratch, call_registers(task));
	emit_piece(scratch, call->skip, 0, DATA_FIRST);
	return 0;
}

/* These run at every send and receive on the machine, so what is common comes first. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_send_locked, struct sock *sk, struct msghdr *message)
{
	struct socket_state *state = find_state(sk);
	struct task_struct *task;

	if (!state)
		return 0;
	task = bpf_get_current_task_btf();
	if (is_shared(state, DIRECTION_SEND, task->pid))
		note_send(sk, state, task, message->msg_iter.count);
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_receive_locked, struct sock *sk)
{
	struct socket_state *state = find_state(sk);
	struct task_struct *task = bpf_get_current_task_btf();

	if (state && is_shared(state, DIRECTION_RECEIVE, task->pid))
		note_receive(sk, state, task);
	if (is_silent_call(task))
		emit_silent(sk, task);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
