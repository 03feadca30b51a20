/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Answers of DNS, which name addresses: what comes from port 53 is copied, up to HEAD_SIZE,
 * also when nothing more of its socket is. Of a UDP socket without a peer the port is not
 * known, but whom it asked is, from its first sends.
 */
#ifndef TRACEHOUND_NAMES_H
#define TRACEHOUND_NAMES_H

#include "call.h"
#include "capture.h"
#include "compat.h"
#include "connection.h"

enum {
	NAMES_PORT = 53,
	SOCKADDR_PORT = 2, /* offset of sin_port and sin6_port */
};

/* User address of the sockaddr that a call sends to, 0: none. */
static __always_inline __u64 destination_of(const struct call *call, const struct pt_regs *regs)
{
	__u64 message = call->message, destination = 0, fifth = SYSCALL_FIFTH(regs);
	__u32 number = SYSCALL_NUMBER(regs);

	/* Else one load is made of two, from either of two pointers, which is refused. */
	barrier_var(message);
	barrier_var(fifth);
	if (number == SYSCALL_SENDTO)
		return fifth;
	if (number == SYSCALL_SENDMSG)
		message = SYSCALL_SECOND(regs);
	else if (number != SYSCALL_SENDMMSG)
		return 0;
	if (message) /* struct user_msghdr begins with msg_name */
		bpf_probe_read_user(&destination, sizeof(destination), (void *)message);
	return destination;
}

/* Look whom a UDP socket without a peer asks, as long as its protocol is not known. */
static __always_inline void note_names(struct call *call, struct socket_state *state,
				       const struct pt_regs *regs, __u32 direction)
{
	__be16 port = 0;
	__u64 destination;

	if (state->asks_names) {
		call->flags |= DATA_NAMES;
		return;
	}
	if (direction != DIRECTION_SEND || state->capture_class != CAPTURE_UNKNOWN ||
	    state->remote_port || state->family == AF_UNIX || !regs)
		return;
	destination = destination_of(call, regs);
	if (destination)
		bpf_probe_read_user(&port, sizeof(port), (void *)(destination + SOCKADDR_PORT));
	state->asks_names = port == bpf_htons(NAMES_PORT);
}

/* Capture a call of which else nothing would be, if it may be an answer. */
static __always_inline bool choose_names(struct call *call, const struct socket_state *state,
					 __u32 direction)
{
	if (direction != DIRECTION_RECEIVE || call->flags & DATA_PEEK)
		return false;
	if (state->remote_port != NAMES_PORT && !state->asks_names)
		return false;
	call->skip = 0;
	call->capture_class = allowed_class(CAPTURE_HEAD_TAIL);
	return true;
}

#endif
