// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * TCP connections: open, accept, error, close, listen, retransmissions. Sockets
 * are followed by their state, not by the current process: most of this happens in
 * softirq, on a loopback even in the peer's context.
 */
#include "compat.h"
#include "connection.h"
#include "filter.h"
#include "ring.h"

static void emit_connection(const struct socket_state *state, __u8 event, __u8 tcp_state, __u32 tid,
			    __u32 backlog)
{
	struct connection_record *record;

	if (!is_port_wanted(state->local_port, state->remote_port))
		return;
	record = reserve_record(RECORD_CONNECTION, sizeof(*record), state->owner, tid);
	if (!record)
		return;
	record->cookie = state->cookie;
	record->parent_cookie = state->parent_cookie;
	record->started_ns = state->started_ns;
	record->established_ns = state->established_ns;
	record->ended_ns = state->ended_ns;
	record->first_read_ns = state->first_read_ns;
	record->first_write_ns = state->first_write_ns;
	record->last_read_start_ns = state->last_read_start_ns;
	record->bytes_sent = state->bytes_sent;
	record->bytes_received = state->bytes_received;
	record->bytes_read = state->bytes_read;
	record->send_calls = state->calls[DIRECTION_SEND];
	record->receive_calls = state->calls[DIRECTION_RECEIVE];
	record->base_sent = state->base[DIRECTION_SEND];
	record->base_received = state->base[DIRECTION_RECEIVE];
	record->attempt = state->attempt;
	record->network_namespace = state->network_namespace;
	record->retransmits = state->retransmits;
	record->srtt_us = state->srtt_us;
	record->error = state->error;
	record->backlog = backlog;
	__builtin_memcpy(record->local_address, state->local_address, 16);
	__builtin_memcpy(record->remote_address, state->remote_address, 16);
	record->local_port = state->local_port;
	record->remote_port = state->remote_port;
	record->family = state->family;
	record->transport = IPPROTO_TCP;
	record->event = event;
	record->role = state->role;
	record->state = tcp_state;
	record->flags = state->flags;
	record->slot = 0;
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

/* connect(2): the first or another attempt of this socket. */
static void on_connecting(struct sock *sk, const struct tcp_sock *tcp)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, attempt, order_epoch;
	struct socket_state *state;

	state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!state) {
		if (!is_traced(tgid) || is_mptcp_subflow(tcp) || !is_process_socket(sk))
			return;
		state = make_state(sk, tgid);
		if (!state)
			return;
	}
	if (state->phase == PHASE_ENDED)
		emit_connection(state, CONNECTION_CLOSE, TCP_CLOSE, 0, 0);
	attempt = state->attempt;
	order_epoch = state->order_epoch; /* what was ordered was for the last attempt */
	reset_state(state, sk, tgid);
	state->order_epoch = order_epoch;
	state->attempt = attempt + 1;
	state->role = ROLE_CLIENT;
	state->phase = PHASE_CONNECTING;
	state->started_ns = bpf_ktime_get_ns();
	read_remote(state, sk);
}

static void on_established(struct socket_state *state, struct sock *sk, const struct tcp_sock *tcp)
{
	__u64 parent = state->cookie;
	bool own = parent == bpf_get_socket_cookie(sk);
	bool client = own && state->role == ROLE_CLIENT;

	if (is_mptcp_subflow(tcp))
		return;
	if (!own) {
		reset_state(state, sk, state->owner);
		state->parent_cookie = parent;
	}
	if (!client)
		state->role = ROLE_SERVER;
	state->phase = PHASE_CONNECTED;
	state->established_ns = bpf_ktime_get_ns();
	read_local(state, sk, tcp);
	read_remote(state, sk);
	read_bases(state, tcp);
	emit_connection(state, client ? CONNECTION_OPEN : CONNECTION_ACCEPT, TCP_ESTABLISHED, 0, 0);
}

static void on_listen(struct sock *sk, const struct tcp_sock *tcp)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct socket_state *state;

	if (!is_traced(pid_tgid >> 32))
		return;
	state = make_state(sk, pid_tgid >> 32);
	if (!state)
		return;
	reset_state(state, sk, pid_tgid >> 32);
	state->role = ROLE_SERVER;
	state->phase = PHASE_LISTENING;
	state->started_ns = bpf_ktime_get_ns();
	read_local(state, sk, tcp);
	emit_connection(state, CONNECTION_LISTEN, TCP_LISTEN, pid_tgid, sk->sk_max_ack_backlog);
}

/* A connection ends: by the owner (first FIN), a reset of either side, or a time-out. */
static void on_ending(struct socket_state *state, const struct sock *sk, int new_state)
{
	bool orphan = sk->sk_shutdown == SHUTDOWN_MASK;
	int error = sk->sk_err;

	if (new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK)
		state->fin_sent = 1;
	if (!state->ended_ns)
		state->ended_ns = bpf_ktime_get_ns();
	if (new_state != TCP_CLOSE)
		return;
	if (error == EPIPE) /* how the kernel calls a reset after the peer's FIN */
		error = ECONNRESET;
	if (error == ECONNRESET || (!error && !state->fin_sent))
		state->flags |= CONNECTION_RESET;
	if (!orphan)
		state->error = error;
	state->unowned = !orphan && !sk->sk_socket;
}

static void on_closed(struct socket_state *state, struct sock *sk, const struct tcp_sock *tcp)
{
	__u8 phase = state->phase;

	state->phase = PHASE_ENDED;
	if (phase == PHASE_CONNECTED) {
		on_ending(state, sk, TCP_CLOSE);
		keep_counters(state, tcp);
		return;
	}
	state->phase = PHASE_NEW;
	state->ended_ns = bpf_ktime_get_ns();
	if (phase == PHASE_LISTENING) {
		emit_connection(state, CONNECTION_UNLISTEN, TCP_CLOSE, 0, 0);
	} else if (phase == PHASE_CONNECTING) {
		state->error = sk->sk_err;
		state->retransmits = tcp->total_retrans; /* SYNs */
		read_local(state, sk, tcp);
		emit_connection(state, CONNECTION_ERROR, TCP_CLOSE, 0, 0);
	}
}

static void change_state(struct sock *sk, int new_state)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct socket_state *state;

	if (!tcp)
		return;
	if (new_state == TCP_SYN_SENT) {
		on_connecting(sk, tcp);
		return;
	}
	if (new_state == TCP_LISTEN) {
		on_listen(sk, tcp);
		return;
	}
	state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!state)
		return;
	if (new_state == TCP_ESTABLISHED) {
		on_established(state, sk, tcp);
		return;
	}
	if (state->cookie != bpf_get_socket_cookie(sk))
		return; /* a child that was not established: still its listener's */
	if (new_state == TCP_CLOSE)
		on_closed(state, sk, tcp);
	else if ((new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK) &&
		 state->phase == PHASE_CONNECTED)
		on_ending(state, sk, new_state);
}

/* The last event of a socket, and once; what was read after CLOSE is in its counters. */
static void destroy(struct sock *sk)
{
	struct socket_state *state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

	if (!state || !tcp || state->phase != PHASE_ENDED ||
	    state->cookie != bpf_get_socket_cookie(sk))
		return;
	if (tcp->bytes_received == state->bytes_received + state->fin_received)
		state->bytes_read = read_position(state, tcp);
	if (!state->ended_ns)
		state->ended_ns = bpf_ktime_get_ns();
	/* A process's close shuts both sides; the listener's end disconnects a waiting child. */
	if (state->role == ROLE_SERVER && state->unowned && !sk->sk_shutdown)
		state->flags |= CONNECTION_NEVER_ACCEPTED;
	emit_connection(state, CONNECTION_CLOSE, sk->__sk_common.skc_state, 0, 0);
	state->phase = PHASE_NEW;
}

static void emit_retransmit(const struct socket_state *state, const struct sock *sk,
			    const struct sk_buff *skb)
{
	struct retransmit_record *record;
	const struct tcp_skb_cb *control = (const void *)&skb->cb;

	record = reserve_record(RECORD_RETRANSMIT, sizeof(*record), state->owner, 0);
	if (!record)
		return;
	record->cookie = state->cookie;
	record->sequence = BPF_CORE_READ(control, seq);
	record->size_bytes = skb->len;
	record->state = sk->__sk_common.skc_state;
	record->attempt = state->attempt;
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, struct sock *sk, int old_state, int new_state)
{
	if (is_tcp(sk))
		change_state(sk, new_state);
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(on_destroy, struct sock *sk)
{
	if (is_tcp(sk))
		destroy(sk);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, struct sock *sk, struct sk_buff *skb)
{
	struct socket_state *state = bpf_sk_storage_get(&sockets, sk, NULL, 0);

	if (state && state->phase != PHASE_LISTENING &&
	    is_port_wanted(state->local_port, state->remote_port))
		emit_retransmit(state, sk, skb);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
