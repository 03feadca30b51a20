// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of TCP connections: every successful send and receive of a traced
 * process, in its own context when the call is over, with its exact place in the
 * stream. How much of it is copied is the connection's capture class.
 */
#include "compat.h"
#include "capture.h"
#include "connection.h"
#include "filter.h"
#include "order.h"
#include "ring.h"
#include "l7.h"

enum {
	HEAD_SIZE = 4096,
	TAIL_SIZE = 256,
	FRAMED_SIZE_MAX = 65536,
	FRAMED_PIECES_MAX = FRAMED_SIZE_MAX / PIECE_SIZE,
	BASE_TRIES = 4,
};

/* First seen after it was established: nobody holds the lock, so read until two agree. */
static __always_inline struct socket_state *join_socket(struct sock *sk, const struct tcp_sock *tcp,
							__u32 tgid)
{
	__u8 tcp_state = sk->__sk_common.skc_state;
	struct socket_state *state;
	__u64 seen;

	if (!is_process_socket(sk) || is_mptcp_subflow(tcp))
		return NULL;
	state = make_state(sk, tgid);
	if (!state)
		return NULL;
	reset_state(state, sk, tgid);
	state->flags = CONNECTION_PREEXISTING;
	state->phase = PHASE_CONNECTED;
	state->fin_sent = tcp_state != TCP_ESTABLISHED && tcp_state != TCP_CLOSE_WAIT &&
			  tcp_state != TCP_CLOSE;
	read_local(state, sk, tcp);
	read_remote(state, sk);
	read_bases(state, tcp);
	for (int i = 0; i < BASE_TRIES; i++) {
		seen = (__u64)state->base[0] << 32 | state->base[1];
		barrier();
		read_bases(state, tcp);
		if (seen == ((__u64)state->base[0] << 32 | state->base[1]))
			break;
	}
	if (tcp_state == TCP_CLOSE) {
		state->phase = PHASE_ENDED;
		keep_counters(state, tcp);
	}
	return state;
}

static __always_inline struct socket_state *state_of(struct sock *sk, const struct tcp_sock *tcp,
						     __u32 tgid)
{
	struct socket_state *state = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	/* A child that sends before it is established still has its listener's state. */
	if (!state || state->phase == PHASE_NEW || state->phase == PHASE_LISTENING)
		return join_socket(sk, tcp, tgid);
	if (state->phase == PHASE_CONNECTING)
		read_bases(state, tcp); /* fast open: data before the SYN is answered */
	return state;
}

/* Keep the counters and times of the connection. */
static __always_inline void account_call(struct call *call, struct socket_state *state,
					 __u32 direction)
{
	if (state->role == ROLE_SERVER && !state->calls[0] && !state->calls[1])
		state->owner = call->tgid; /* who serves it, not who listens */
	if (state->calls[direction] && state->tid[direction] != call->tid)
		state->flags |= CONNECTION_SHARED;
	if (state->flags & CONNECTION_SHARED && state->calls[direction] &&
	    state->position[direction] != call->start)
		call->flags |= DATA_DISPUTED;
	state->tid[direction] = call->tid;
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

/* Not static: the verifier goes through the detectors once, whoever calls. */
__noinline int detect_head(const struct detection *detection)
{
	if (!detection || detection->size > DETECT_SIZE)
		return 0;
	return detect_l7(detection->head, detection->size, detection->direction, IPPROTO_TCP,
			 detection->port);
}

/*
 * Show the detectors the first bytes of a call, or of the stream while its first
 * calls are shorter than they need. A strong verdict makes the connection framed.
 */
static __always_inline void detect_protocol(struct scratch *scratch, struct socket_state *state,
					    __u32 direction)
{
	struct detection *detection = &scratch->detection;
	__u32 filled = state->prefix_size[direction], size = scratch->cursor.filled, verdict;

	__builtin_memcpy(detection->head, scratch->record.data, DETECT_SIZE);
	detection->size = size < DETECT_SIZE ? size : DETECT_SIZE;
	detection->direction = direction;
	detection->port = state->role == ROLE_CLIENT ? state->remote_port : state->local_port;
	if (scratch->call.start + scratch->call.skip == filled && filled < PREFIX_SIZE &&
	    (filled || size < PREFIX_SIZE)) {
		for (__u32 i = 0; i < PREFIX_SIZE; i++) {
			if (i >= size || filled >= PREFIX_SIZE)
				break;
			state->prefix[direction][filled++] = detection->head[i];
		}
		state->prefix_size[direction] = filled;
		__builtin_memcpy(detection->head, state->prefix[direction], PREFIX_SIZE);
		detection->size = filled;
	}
	verdict = detect_head(detection);
	if ((verdict & 0xff) <= state->strength)
		return;
	state->verdict = verdict >> 8;
	state->strength = verdict;
	if ((verdict & 0xff) == MATCH_STRONG)
		state->capture_class = CAPTURE_FRAMED;
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
	record->transport = IPPROTO_TCP;
	record->direction = direction;
	record->capture_class = call->capture_class;
	record->role = state->role;
	record->local_port = state->local_port;
	record->remote_port = state->remote_port;
}

static __noinline int emit_piece(struct scratch *scratch, __u32 offset, __u32 tail_size,
				 __u32 flags)
{
	struct data_record *record = &scratch->record;
	__u32 filled = scratch->cursor.filled, size = sizeof(*record) + filled;

	if (filled > PIECE_SIZE)
		return 0;
	record->header.size = size;
	record->offset = offset;
	record->head_size = filled - tail_size;
	record->tail_size = tail_size;
	record->flags = scratch->call.flags | scratch->cursor.flags | flags;
	output_record(&data, RING_DATA, &record->header, size);
	return 0;
}

/* The pieces of a framed call after the first one. */
static __always_inline void emit_rest(struct scratch *scratch, __u32 rest)
{
	struct cursor *cursor = &scratch->cursor;
	__u32 done = PIECE_SIZE;

	if (rest > FRAMED_SIZE_MAX)
		rest = FRAMED_SIZE_MAX;
	for (int i = 1; i < FRAMED_PIECES_MAX; i++) {
		if (done >= rest || cursor->want || cursor->flags & DATA_FAULT)
			break;
		cursor->filled = 0;
		cursor->want = rest - done < PIECE_SIZE ? rest - done : PIECE_SIZE;
		copy_payload(scratch);
		if (!cursor->filled)
			break;
		emit_piece(scratch, scratch->call.skip + done, 0, 0);
		done += PIECE_SIZE;
	}
}

/* How many bytes the first piece begins with. */
static __always_inline __u32 head_size_of(__u32 capture_class, __u32 rest)
{
	__u32 size = HEAD_SIZE;

	if (capture_class == CAPTURE_FRAMED)
		size = PIECE_SIZE;
	else if (capture_class == CAPTURE_HEAD_TAIL && rest <= HEAD_SIZE + TAIL_SIZE)
		size = rest;
	return rest < size ? rest : size;
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

/* Copy the head of a call of a class not known; a verdict makes it as long as a framed one's. */
static __always_inline void copy_unknown(struct scratch *scratch, struct socket_state *state,
					 __u32 direction, __u32 rest)
{
	struct cursor *cursor = &scratch->cursor;
	struct call *call = &scratch->call;

	copy_payload(scratch);
	state->unknown_bytes[direction] += cursor->filled;
	detect_protocol(scratch, state, direction);
	scratch->record.verdict = state->verdict;
	scratch->record.strength = state->strength;
	limit_class(call, state);
	scratch->record.capture_class = call->capture_class;
	if (call->capture_class != CAPTURE_FRAMED || cursor->want || cursor->flags & DATA_FAULT)
		return;
	cursor->want = head_size_of(CAPTURE_FRAMED, rest) - cursor->filled;
	if (cursor->want)
		copy_payload(scratch);
}

/* Append the end of a call. Returns its size. */
static __always_inline __u32 copy_tail(struct scratch *scratch, __u32 rest)
{
	struct cursor *cursor = &scratch->cursor;
	__u32 head_size = cursor->filled;

	if (rest <= head_size || cursor->want || cursor->flags & DATA_FAULT)
		return 0;
	cursor->want = rest - head_size < TAIL_SIZE ? rest - head_size : TAIL_SIZE;
	cursor->skip = rest - head_size - cursor->want;
	copy_payload(scratch);
	return cursor->filled - head_size;
}

/* Copy as much of the payload as the class asks for, detect on the way, output it. */
static __always_inline void emit_payload(struct scratch *scratch, struct socket_state *state,
					 __u32 direction)
{
	struct cursor *cursor = &scratch->cursor;
	struct call *call = &scratch->call;
	__u32 rest = call->size - call->skip, tail_size = 0;

	cursor->skip = call->skip;
	cursor->want = head_size_of(call->capture_class, rest);
	if (call->capture_class == CAPTURE_UNKNOWN)
		copy_unknown(scratch, state, direction, rest);
	else
		copy_payload(scratch);
	if (call->capture_class == CAPTURE_HEAD_TAIL)
		tail_size = copy_tail(scratch, rest);
	emit_piece(scratch, call->skip, tail_size, DATA_FIRST);
	if (call->capture_class == CAPTURE_FRAMED && rest > PIECE_SIZE)
		emit_rest(scratch, rest);
	if (cursor->flags & DATA_FAULT)
		count_loss(LOSS_FAULT, 1);
	else if (cursor->flags & DATA_IOV_CUT && cursor->want)
		count_loss(LOSS_IOV_CUT, cursor->want);
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

static __always_inline void emit_call(struct scratch *scratch, struct socket_state *state,
				      const struct tcp_sock *tcp, __u32 direction)
{
	struct call *call = &scratch->call;

	fill_record(scratch, state, direction);
	if (!find_payload(scratch, bpf_get_current_task_btf()) ||
	    tcp->inet_conn.icsk_ulp_ops) { /* kernel TLS: positions are the ciphertext's */
		call->flags |= DATA_OPAQUE;
		count_loss(LOSS_OPAQUE_BYTES, call->size);
	} else if (call->capture_class < CAPTURE_COUNT && !(call->flags & DATA_PEEK)) {
		emit_payload(scratch, state, direction);
		return;
	}
	scratch->cursor.flags = 0;
	emit_piece(scratch, call->skip, 0, DATA_FIRST);
}

static __always_inline void capture(struct sock *sk, __u32 size, int flags, __u32 direction)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	__u32 key = direction;
	struct scratch *scratch;
	const struct tcp_sock *tcp;
	struct socket_state *state;
	struct call *call;

	if (!is_traced(pid_tgid >> 32) || !is_tcp(sk))
		return;
	scratch = bpf_map_lookup_elem(&scratch_call, &key);
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!scratch || !tcp)
		return;
	state = state_of(sk, tcp, pid_tgid >> 32);
	if (!state)
		return;
	call = &scratch->call;
	call->tgid = pid_tgid >> 32;
	call->tid = pid_tgid;
	call->time_ns = bpf_ktime_get_ns();
	call->size = size;
	call->end =
		direction == DIRECTION_SEND ? sent_position(state, tcp) : read_position(state, tcp);
	call->start = call->end - size;
	call->flags = state->flags & CONNECTION_PREEXISTING ? DATA_PREEXISTING : 0;
	if (direction == DIRECTION_RECEIVE && flags & MSG_PEEK) {
		call->flags |= DATA_PEEK;
		call->start = call->end;
	} else {
		account_call(call, state, direction);
	}
	if (choose_class(call, state, direction))
		emit_call(scratch, state, tcp, direction);
}

#ifndef TRACEHOUND_DATA_FALLBACK /* which includes this file and has hooks of its own */

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int size, int flags)
{
	if (size > 0)
		capture(sk, size, flags, DIRECTION_SEND);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int size, int flags)
{
	if (size > 0)
		capture(sk, size, flags, DIRECTION_RECEIVE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
