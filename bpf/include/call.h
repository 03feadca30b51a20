/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A call on a socket to its record: the socket's state, the call's place in the stream,
 * what the connection counts, and the record without its payload.
 */
#ifndef TRACEHOUND_CALL_H
#define TRACEHOUND_CALL_H

#include "capture.h"
#include "connection.h"
#include "counted.h"
#include "filter.h"
#include "join.h"
#include "order.h"
#include "ring.h"
#include "thread.h"

enum {
	HEAD_SIZE = 4096,
	TAIL_SIZE = 256,
};

/* Begin a call of a thread. */
static __always_inline void set_caller(struct call *call, const struct task_struct *task)
{
	call->tgid = task->tgid;
	call->tid = task->pid;
	call->thread_ns = task->start_time;
	call->message = 0;
}

/* Whether a call on a socket is traced: without a look-up for the thread of the last one. */
static __always_inline bool is_caller_traced(const struct socket_state *state,
					     const struct task_struct *task, __u32 direction)
{
	/* Nothing but a filter, asked anew at an exec, ends the tracing of a thread that lives. */
	if (!config_trace_all && !has_filters() && state &&
	    state->tid[direction] == (__u32)task->pid &&
	    state->thread_ns[direction] == task->start_time)
		return true;
	return is_traced(task->tgid);
}

/* The state of a TCP socket, of which `state` is there or NULL: ready for a call. */
static __always_inline struct socket_state *ready_state(struct socket_state *state, struct sock *sk,
							const struct tcp_sock *tcp, __u32 tgid)
{
	/* A child that sends before it is established still has its listener's state. */
	if (unlikely(!state || state->phase == PHASE_NEW || state->phase == PHASE_LISTENING))
		return join_socket(sk, tcp, tgid);
	if (state->phase == PHASE_CONNECTING)
		read_bases(state, tcp); /* fast open: data before the SYN is answered */
	return state;
}

/* Keep the counters and times of the connection. */
static __always_inline void account_call(struct call *call, struct socket_state *state,
					 __u32 direction)
{
	__u32 unexpected = 0;

	if (state->role == ROLE_SERVER && !state->calls[0] && !state->calls[1])
		state->owner = call->tgid; /* who serves it, not who listens */
	if (!call->is_exact) {
		if (!note_shared(state, direction, call->tid))
			unexpected = DATA_UNWATCHED;
		else if (state->calls[direction])
			unexpected = DATA_DISPUTED;
		if (state->position[direction] != call->start)
			call->flags |= unexpected;
	}
	state->tid[direction] = call->tid;
	state->thread_ns[direction] = call->thread_ns;
	if (!call->is_exact || call->end > state->position[direction])
		state->position[direction] = call->end;
	__sync_fetch_and_add(&state->calls[direction], 1);
	if (direction == DIRECTION_SEND) {
		if (!state->first_write_ns)
			state->first_write_ns = call->time_ns;
		state->reading = 0;
		return;
	}
	if (!state->first_read_ns)
		state->first_read_ns = call->time_ns;
	if (!state->reading)
		state->last_read_start_ns = call->time_ns;
	state->reading = 1;
}

/* Take the position that the hooks under the socket's lock kept of this call; false: they did not.
 */
static __always_inline bool take_locked(struct call *call, const struct sock *sk,
					const struct socket_state *state, __u32 direction)
{
	struct thread_state *thread;
	__u32 low;

	if (!(state->flags & CONNECTION_SHARED))
		return false;
	thread = thread_of(bpf_get_current_task_btf(), 0);
	if (!thread || thread->locked_sk[direction] != (__u64)sk)
		return false;
	thread->locked_sk[direction] = 0;
	low = thread->locked[direction] - state->base[direction];
	if (direction == DIRECTION_SEND) {
		call->end = extend_position(low + call->size, call->end);
		if (thread->is_mixed)
			call->flags |= DATA_DISPUTED;
	} else {
		call->end = extend_position(low, call->end);
	}
	return true;
}

/* Say what kind of call on a UDP or unix socket it was, and count it. */
static __always_inline void fill_counted(struct call *call, struct socket_state *state, int flags,
					 __u32 direction)
{
	call->time_ns = bpf_ktime_get_ns();
	call->flags = 0;
	if (direction == DIRECTION_RECEIVE && flags & MSG_PEEK) {
		call->flags |= DATA_PEEK;
		call->start = call->end = state->position[direction];
		return;
	}
	call->start = __sync_fetch_and_add(&state->position[direction], call->size);
	call->end = call->start + call->size;
	call->is_exact = 1;
	if (note_shared(state, direction, call->tid))
		call->flags |=
			DATA_DISPUTED; /* counted in the order of returns, not of the stream */
	account_call(call, state, direction);
}

/* Say what kind of call it was, keep its position and the connection's counters. */
static __always_inline void fill_call(struct call *call, const struct sock *sk,
				      struct socket_state *state, const struct tcp_sock *tcp,
				      int flags, __u32 direction)
{
	call->time_ns = bpf_ktime_get_ns();
	call->flags = state->flags & CONNECTION_PREEXISTING ? DATA_PREEXISTING : 0;
	call->end =
		direction == DIRECTION_SEND ? sent_position(state, tcp) : read_position(state, tcp);
	call->is_exact = take_locked(call, sk, state, direction);
	call->start = call->end - call->size;
	if (direction == DIRECTION_RECEIVE && flags & MSG_PEEK) {
		call->flags |= DATA_PEEK;
		call->start = call->end;
		return;
	}
	if (direction == DIRECTION_RECEIVE && flags & MSG_TRUNC)
		call->flags |= DATA_OPAQUE; /* thrown away, not copied to the program */
	if (call->is_exact && flags & MSG_WAITALL)
		call->flags |= DATA_DISPUTED; /* it lets go of the lock between its parts */
	account_call(call, state, direction);
}

/* Fill what all records of a call have in common. */
static __always_inline void fill_record(struct scratch *scratch, const struct socket_state *state,
					__u32 direction)
{
	struct data_record *record = &scratch->record;
	const struct call *call = &scratch->call;

	fill_header(&record->header, call->time_ns, RECORD_DATA, 0, call->tgid, call->tid);
	record->cookie = state->cookie;
	record->position_end = call->end;
	record->call_size = call->size;
	record->sequence = state->base[direction] + (__u32)call->start;
	record->verdict = state->verdict;
	record->strength = state->strength;
	record->family = state->family;
	record->transport = state->transport;
	record->direction = direction;
	record->capture_class = call->capture_class;
	record->role = state->role;
	record->local_port = state->local_port;
	record->remote_port = state->remote_port;
}

static __always_inline void output_piece(struct scratch *scratch, __u32 offset, __u32 tail_size,
					 __u32 flags)
{
	struct data_record *record = &scratch->record;
	__u32 filled = scratch->cursor.filled, size = sizeof(*record) + filled;

	if (filled > PIECE_SIZE)
		return;
	record->header.size = size;
	record->offset = offset;
	record->head_size = filled - tail_size;
	record->tail_size = tail_size;
	record->flags = scratch->call.flags | scratch->cursor.flags | flags;
	output_record(&data, RING_DATA, &record->header, size);
}

/* The same where it is not the common case. */
static __noinline int emit_piece(struct scratch *scratch, __u32 offset, __u32 tail_size,
				 __u32 flags)
{
	output_piece(scratch, offset, tail_size, flags);
	return 0;
}

/* Take the connection's class or what the load allows; marked and counted where that cuts. */
static __always_inline void limit_class(struct call *call, const struct socket_state *state)
{
	call->capture_class = allowed_class(state->capture_class);
	if (call->capture_class == state->capture_class || call->flags & DATA_PEEK)
		return;
	if (call->capture_class == CAPTURE_HEAD_TAIL &&
	    call->size - call->skip <= HEAD_SIZE + TAIL_SIZE)
		return;
	call->flags |= DATA_LIMITED;
	count_loss(LOSS_CAPTURE_LIMITED, 1);
}

/* Decide whether and how much of the call is captured. False: nothing. */
static __always_inline bool choose_class(struct call *call, struct socket_state *state,
					 __u32 direction)
{
	__u64 skip_until;

	apply_order(state);
	if (!(call->flags & DATA_PEEK))
		limit_detection(state, direction);
	if (state->capture_class == CAPTURE_OFF)
		return false;
	skip_until = state->skip_until[direction];
	if (call->end <= skip_until)
		return false;
	call->skip = call->start < skip_until ? skip_until - call->start : 0;
	limit_class(call, state);
	return true;
}

#endif
