/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Joining a TCP connection that was there before it was traced: its bases from its
 * own sequence numbers, its role from its counters or from who listens.
 */
#ifndef TRACEHOUND_JOIN_H
#define TRACEHOUND_JOIN_H

#include "compat.h"
#include "connection.h"

enum {
	BASE_TRIES = 4,
};

/* Port 0 says that all listeners of the namespace are known. */
struct listener_key {
	__u32 network_namespace;
	__u32 port;
};

/* Listening ports at the start -> the traced thread group that holds one, or 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct listener_key);
	__type(value, __u32);
} listeners SEC(".maps");

/* A listening local port proves the server; where all listeners are known the rest are clients. */
static __always_inline __u8 role_by_port(__u32 network_namespace, __u32 port)
{
	struct listener_key key = {network_namespace, port};

	if (bpf_map_lookup_elem(&listeners, &key))
		return ROLE_SERVER;
	key.port = 0;
	return bpf_map_lookup_elem(&listeners, &key) ? ROLE_CLIENT : ROLE_UNKNOWN;
}

/*
 * How much more is acknowledged or under way than payload was sent: the one of a client's SYN,
 * or 0. Anything else: the counters do not tell, because this host dropped segments or a FIN
 * counts.
 */
static __always_inline __u64 extra_sent(const struct tcp_sock *tcp)
{
	return tcp->bytes_acked + (tcp->snd_nxt - tcp->snd_una) -
	       (tcp->bytes_sent - tcp->bytes_retrans);
}

/* Who opened a connection: its own counters say it, else who listens, which may have ended since.
 */
static __always_inline __u8 role_of(const struct socket_state *state, const struct tcp_sock *tcp)
{
	__u64 extra = extra_sent(tcp);

	if (!tcp->bytes_acked)
		return ROLE_SERVER;
	barrier(); /* nobody holds the lock: twice the same, or it does not count */
	if (!state->fin_sent && extra <= 1 && extra == extra_sent(tcp))
		return extra ? ROLE_CLIENT : ROLE_SERVER;
	return role_by_port(state->network_namespace, state->local_port);
}

/* Make the state of an established socket. Nobody holds the lock, so read until two agree. */
static __always_inline struct socket_state *join_established(struct sock *sk,
							     const struct tcp_sock *tcp, __u32 tgid)
{
	__u8 tcp_state = sk->__sk_common.skc_state;
	struct socket_state *state = make_state(sk, tgid);
	__u64 seen;

	if (!state)
		return NULL;
	reset_state(state, sk, tgid);
	state->flags = CONNECTION_PREEXISTING;
	state->fin_sent = tcp_state != TCP_ESTABLISHED && tcp_state != TCP_CLOSE_WAIT &&
			  tcp_state != TCP_CLOSE;
	read_local(state, sk, tcp);
	read_remote(state, sk);
	state->role = role_of(state, tcp);
	read_bases(state, tcp);
	for (int i = 0; i < BASE_TRIES; i++) {
		seen = (__u64)state->base[0] << 32 | state->base[1];
		barrier();
		read_bases(state, tcp);
		if (seen == ((__u64)state->base[0] << 32 | state->base[1]))
			break;
	}
	state->phase = PHASE_CONNECTED;
	barrier();
	/* It may have ended before the phase was there to tell. */
	if (sk->__sk_common.skc_state == TCP_CLOSE && state->phase == PHASE_CONNECTED) {
		state->phase = PHASE_ENDED;
		keep_counters(state, tcp);
	}
	return state;
}

static __always_inline struct socket_state *join_socket(struct sock *sk, const struct tcp_sock *tcp,
							__u32 tgid)
{
	if (!is_process_socket(sk) || is_mptcp_subflow(tcp))
		return NULL;
	return join_established(sk, tcp, tgid);
}

#endif
