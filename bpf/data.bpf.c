// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of TCP, UDP and unix sockets: every successful send and receive of a traced
 * process, in its own context when the call is over, with its exact place in the
 * stream. How much of it is copied is the connection's capture class.
 */
#include "compat.h"
#include "call.h"
#include "capture.h"
#include "connection.h"
#include "filter.h"
#include "names.h"
#include "payload.h"
#include "l7.h"

enum {
	FRAMED_SIZE_MAX = 65536,
	FRAMED_PIECES_MAX = FRAMED_SIZE_MAX / PIECE_SIZE,
};

/* Not static: the verifier goes through the detectors once, whoever calls. */
__noinline int detect_head(const struct detection *detection)
{
	if (!detection || detection->size > DETECT_SIZE)
		return 0;
	return detect_l7(detection->head, detection->size, detection->direction,
			 detection->transport, detection->port);
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
	detection->transport = state->transport;
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

/* Append the end of a call of which `left` bytes were not copied; all of it or nothing. */
static __noinline __u32 copy_tail(struct scratch *scratch, __u32 left)
{
	struct cursor *cursor = &scratch->cursor;
	__u32 head_size = cursor->filled;

	cursor->want = left < TAIL_SIZE ? left : TAIL_SIZE;
	cursor->skip = left - cursor->want;
	copy_payload(scratch);
	if (cursor->want || cursor->flags & DATA_FAULT)
		cursor->filled = head_size;
	return cursor->filled - head_size;
}

/*
 * The pieces of a framed call after the first one; of a call over FRAMED_SIZE_MAX then a
 * piece with its tail. A full piece is always followed by another one if bytes are left.
 */
static __noinline int emit_rest(struct scratch *scratch, __u32 rest)
{
	struct cursor *cursor = &scratch->cursor;
	__u32 done = PIECE_SIZE, tail_size;

	for (int i = 1; i < FRAMED_PIECES_MAX; i++) {
		if (done >= rest || cursor->want || cursor->flags & DATA_FAULT)
			return 0;
		cursor->filled = 0;
		cursor->want = rest - done < PIECE_SIZE ? rest - done : PIECE_SIZE;
		copy_payload(scratch);
		emit_piece(scratch, scratch->call.skip + done, 0, 0);
		done += PIECE_SIZE;
	}
	if (rest <= FRAMED_SIZE_MAX || cursor->want || cursor->flags & DATA_FAULT)
		return 0;
	cursor->filled = 0;
	tail_size = copy_tail(scratch, rest - FRAMED_SIZE_MAX);
	emit_piece(scratch, scratch->call.skip + FRAMED_SIZE_MAX, tail_size, 0);
	return 0;
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

/* Copy the head of a call of a class not known; a verdict makes it as long as a framed one's. */
static __noinline int copy_unknown(struct scratch *scratch, struct socket_state *state,
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
		return 0;
	cursor->want = head_size_of(CAPTURE_FRAMED, rest) - cursor->filled;
	if (cursor->want)
		copy_payload(scratch);
	return 0;
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
		copy_first(scratch);
	if (call->capture_class == CAPTURE_HEAD_TAIL && rest > cursor->filled && !cursor->want &&
	    !(cursor->flags & DATA_FAULT))
		tail_size = copy_tail(scratch, rest - cursor->filled);
	output_piece(scratch, call->skip, tail_size, DATA_FIRST);
	if (call->capture_class == CAPTURE_FRAMED && rest > PIECE_SIZE)
		emit_rest(scratch, rest);
	if (cursor->flags & DATA_FAULT)
		count_loss(LOSS_FAULT, 1);
	else if (cursor->flags & DATA_IOV_CUT && cursor->want)
		count_loss(LOSS_IOV_CUT, cursor->want);
}

static __always_inline void emit_call(struct scratch *scratch, struct socket_state *state,
				      const struct pt_regs *regs, __u32 direction)
{
	struct call *call = &scratch->call;

	fill_record(scratch, state, direction);
	if (!find_payload(scratch, regs)) {
		call->flags |= DATA_OPAQUE;
		count_loss(LOSS_OPAQUE_BYTES, call->size);
	} else if (call->capture_class < CAPTURE_COUNT && !(call->flags & DATA_PEEK)) {
		emit_payload(scratch, state, direction);
		return;
	}
	scratch->cursor.flags = 0;
	emit_piece(scratch, call->skip, 0, DATA_FIRST);
}

/* Keep the message that a call of many moved last; at every hook of it, failed ones too. */
static __noinline int follow_messages(struct call *call, struct task_struct *task,
				      const struct pt_regs *regs, int size)
{
	call->message = next_message(task, regs, size);
	if (SYSCALL_NUMBER(regs) == SYSCALL_SENDMMSG && call->message && size >= 0 &&
	    message_size(call->message) > (__u32)size)
		end_messages(task);
	return 0;
}

/* Say who calls and how much it moved; false: there is nothing to tell. */
static __always_inline bool begin_call(struct call *call, struct task_struct *task,
				       const struct pt_regs *regs, int size, __u32 direction)
{
	set_caller(call, task);
	if (regs && unlikely(is_of_many(regs)))
		follow_messages(call, task, regs, size);
	if (unlikely(size <= 0)) {
		forget_locked(task, direction);
		return false;
	}
	call->size = size;
	return true;
}

static __always_inline void capture_tcp(struct scratch *scratch, struct socket_state *state,
					struct sock *sk, const struct pt_regs *regs, int flags,
					__u32 direction)
{
	const struct tcp_sock *tcp = tcp_of(sk);
	struct call *call = &scratch->call;

	if (!tcp)
		return;
	state = ready_state(state, sk, tcp, call->tgid);
	if (!state || !is_port_wanted(state->local_port, state->remote_port))
		return;
	fill_call(call, sk, state, tcp, flags, direction);
	if (!choose_class(call, state, direction) && !choose_names(call, state, direction))
		return;
	if (tcp->inet_conn.icsk_ulp_ops) /* kernel TLS: positions are the ciphertext's */
		call->flags |= DATA_OPAQUE;
	emit_call(scratch, state, regs, direction);
}

static __noinline int capture_counted(struct scratch *scratch, struct sock *sk,
				      const struct pt_regs *regs, int flags, __u32 direction)
{
	struct call *call = &scratch->call;
	struct socket_state *state = counted_state_of(sk, call->tgid, direction);

	if (!state)
		return 0;
	fill_counted(call, state, flags, direction);
	note_names(call, state, regs, direction);
	if (choose_class(call, state, direction) || choose_names(call, state, direction))
		emit_call(scratch, state, regs, direction);
	return 0;
}

static __always_inline void capture(struct sock *sk, int size, int flags, __u32 direction)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct socket_state *state = find_state(sk); /* only TCP's have one */
	const struct pt_regs *regs;
	struct scratch *scratch;
	__u32 key = direction;

	if (!is_caller_traced(state, task, direction))
		return;
	regs = call_registers(task);
	scratch = bpf_map_lookup_elem(&scratch_call, &key);
	if (!scratch || !begin_call(&scratch->call, task, regs, size, direction))
		return;
	if (likely(is_tcp(sk)))
		capture_tcp(scratch, state, sk, regs, flags, direction);
	else if (is_udp(sk) || is_unix(sk))
		capture_counted(scratch, sk, regs, flags, direction);
}

#ifndef TRACEHOUND_DATA_FALLBACK /* which includes this file and has hooks of its own */

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int size, int flags)
{
	capture(sk, size, flags, DIRECTION_SEND);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int size, int flags)
{
	capture(sk, size, flags, DIRECTION_RECEIVE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
