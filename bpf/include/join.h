/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Joining a TCP connection that was there before it was traced. */
#ifndef TRACEHOUND_JOIN_H
#define TRACEHOUND_JOIN_H

#include "compat.h"
#include "connection.h"

enum {
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

#endif
