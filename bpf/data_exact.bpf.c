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
static void note_send(const struct sock *sk, const struct tcp_sock *tcp, __u64 left)
{
	struct thread_state *thread =
		thread_of(bpf_get_current_task_btf(), BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 sequence = tcp->write_seq;

	if (!thread)
		return;
	if (thread->locked_sk[DIRECTION_SEND] != (__u64)sk || left >= thread->left) {
		thread->locked_sk[DIRECTION_SEND] = (__u64)sk; /* nothing taken over yet */
		thread->locked[DIRECTION_SEND] = sequence;
		thread->left = left;
		thread->is_mixed = 0;
	} else if (sequence != thread->locked[DIRECTION_SEND] + (__u32)(thread->left - left)) {
		thread->is_mixed = 1;
	}
}

static void note_receive(const struct sock *sk, const struct tcp_sock *tcp)
{
	struct thread_state *thread =
		thread_of(bpf_get_current_task_btf(), BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		return;
	thread->locked_sk[DIRECTION_RECEIVE] = (__u64)sk;
	thread->locked[DIRECTION_RECEIVE] = tcp->copied_seq;
}

/* The system call under way takes bytes from a socket and tells no other hook of it. */
static __always_inline bool is_silent_call(void)
{
	struct pt_regs *regs = call_registers(bpf_get_current_task_btf());

	return regs && (SYSCALL_NUMBER(regs) == SYSCALL_SPLICE ||
			SYSCALL_NUMBER(regs) == SYSCALL_GETSOCKOPT);
}

/* Record the bytes between the last call and here, without payload. */
static __always_inline void emit_silent(struct sock *sk, const struct tcp_sock *tcp)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid(), before;
	__u32 key = SCRATCH_LOCKED;
	struct scratch *scratch;
	struct socket_state *state;
	struct call *call;

	scratch = bpf_map_lookup_elem(&scratch_call, &key);
	state = state_of(sk, tcp, pid_tgid >> 32);
	if (!scratch || !state)
		return;
	call = &scratch->call;
	call->tgid = pid_tgid >> 32;
	call->tid = pid_tgid;
	call->message = 0;
	before = state->position[DIRECTION_RECEIVE];
	if (state->flags & CONNECTION_PREEXISTING && !state->calls[DIRECTION_RECEIVE])
		before = read_position(state, tcp); /* how many came is not known */
	call->size = read_position(state, tcp) - before;
	fill_call(call, sk, state, tcp, 0, DIRECTION_RECEIVE);
	if (!call->size || !choose_class(call, state, DIRECTION_RECEIVE))
		return;
	call->flags |= DATA_OPAQUE;
	count_loss(LOSS_OPAQUE_BYTES, call->size);
	fill_record(scratch, state, DIRECTION_RECEIVE);
	find_payload(scratch, bpf_get_current_task_btf());
	emit_piece(scratch, call->skip, 0, DATA_FIRST);
}

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(on_send_locked, struct sock *sk, struct msghdr *message)
{
	struct socket_state *state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (state && tcp && note_shared(state, DIRECTION_SEND, bpf_get_current_pid_tgid()))
		note_send(sk, tcp, message->msg_iter.count);
	return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(on_receive_locked, struct sock *sk)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct socket_state *state;
	struct tcp_sock *tcp;

	if (!is_traced(pid_tgid >> 32) || !is_tcp(sk))
		return 0;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (state && note_shared(state, DIRECTION_RECEIVE, pid_tgid))
		note_receive(sk, tcp);
	if (is_silent_call())
		emit_silent(sk, tcp);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
