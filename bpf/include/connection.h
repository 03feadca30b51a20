/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What we keep of a TCP socket: who it is, where its streams begin, what it has
 * done, what to capture. It lives and dies with the socket; an accepted socket
 * starts with a copy of its listener's and is made its own when established.
 */
#ifndef TRACEHOUND_CONNECTION_H
#define TRACEHOUND_CONNECTION_H

#include <bpf/bpf_endian.h>
#include "compat.h"
#include "ring.h"
#include "wire.h"

enum {
	PREFIX_SIZE = 32, /* more than any detector reads */
};

enum socket_phase {
	PHASE_NEW = 0,
	PHASE_CONNECTING = 1,
	PHASE_CONNECTED = 2,
	PHASE_LISTENING = 3,
	PHASE_ENDED = 4, /* in state CLOSE; what arrived may still be read */
};

/* Members with two elements are indexed by enum direction. */
struct socket_state {
	__u64 cookie;
	__u64 parent_cookie;
	__u64 started_ns;
	__u64 established_ns;
	__u64 ended_ns;
	__u64 first_read_ns;
	__u64 first_write_ns;
	__u64 last_read_start_ns;
	__u64 calls[2];
	__u64 position[2];   /* after the newest call */
	__u64 skip_until[2]; /* positions below are not copied */
	__u64 thread_ns[2];  /* start of the thread `tid`: with it, its identity */
	__u64 bytes_sent;    /* from here: as they were on the change to CLOSE */
	__u64 bytes_received;
	__u64 bytes_read;
	__u32 retransmits;
	__u32 srtt_us;
	__u32 base[2]; /* sequence number of the first payload byte: constants of a socket */
	__u32 owner;   /* thread group */
	__u32 attempt;
	__u32 network_namespace;
	__u32 order_epoch;
	__u32 tid[2];		/* whose call was captured last, 0: nobody's */
	__u32 unknown_bytes[2]; /* copied in class unknown */
	__u16 unknown_calls[2];
	__s32 error;
	__u16 verdict; /* enum l7_protocol */
	__u16 flags;   /* enum connection_flag */
	__u16 family;
	__u16 local_port;
	__u16 remote_port;
	__u8 strength;
	__u8 capture_class;
	__u8 ordered_class; /* the newest order's, plus 1 */
	__u8 role;
	__u8 phase;
	__u8 fin_sent;
	__u8 fin_received; /* on the change to CLOSE */
	__u8 unowned;	   /* on the change to CLOSE: no process had it yet */
	__u8 reading;	   /* the newest call was a receive */
	__u8 prefix_size[2];
	__u8 transport;		     /* as in a record */
	__u8 seeded;		     /* it was there before, and a record says so */
	__u8 asks_names;	     /* UDP without a peer: a datagram went to port 53 */
	__u8 prefix[2][PREFIX_SIZE]; /* of a stream whose first calls were short */
	__u8 local_address[16];
	__u8 remote_address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct socket_state);
} sockets SEC(".maps");

static __always_inline bool is_tcp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_TCP && (family == AF_INET || family == AF_INET6);
}

/* A process's own socket: not one that the kernel made for itself (NFS, an MPTCP subflow). */
static __always_inline bool is_process_socket(const struct sock *sk)
{
	const struct socket *socket = sk->sk_socket;

	return socket && socket->file;
}

static __always_inline void read_local_address(struct socket_state *state, const struct sock *sk)
{
	if (state->family == AF_INET)
		bpf_probe_read_kernel(state->local_address, 4, &sk->__sk_common.skc_rcv_saddr);
	else
		bpf_probe_read_kernel(state->local_address, 16, &sk->__sk_common.skc_v6_rcv_saddr);
}

static __always_inline void read_local(struct socket_state *state, const struct sock *sk,
				       const struct tcp_sock *tcp)
{
	/* inet_sport outlives the port's release, skc_num does not; but bind may set only that. */
	__u16 port = bpf_ntohs(tcp->inet_conn.icsk_inet.inet_sport);

	state->local_port = port ? port : sk->__sk_common.skc_num;
	read_local_address(state, sk);
}

static __always_inline void read_remote(struct socket_state *state, const struct sock *sk)
{
	state->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (state->family == AF_INET)
		bpf_probe_read_kernel(state->remote_address, 4, &sk->__sk_common.skc_daddr);
	else
		bpf_probe_read_kernel(state->remote_address, 16, &sk->__sk_common.skc_v6_daddr);
}

/* Make a state new: everything zero but who the socket and its owner are. */
static __always_inline void reset_state(struct socket_state *state, struct sock *sk, __u32 owner)
{
	__builtin_memset(state, 0, sizeof(*state));
	state->cookie = bpf_get_socket_cookie(sk);
	state->owner = owner;
	state->family = sk->__sk_common.skc_family;
	state->transport = IPPROTO_TCP;
	state->network_namespace = sk->__sk_common.skc_net.net->ns.inum;
}

/* The state of a socket, made if it has none; NULL: no memory, counted. */
static __always_inline struct socket_state *make_state(struct sock *sk, __u32 owner)
{
	struct socket_state *state;

	state = bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state) {
		count_loss(LOSS_STORAGE_FULL, 1);
		return NULL;
	}
	if (state->cookie != bpf_get_socket_cookie(sk))
		reset_state(state, sk, owner);
	return state;
}

/* The state of any socket, NULL if it has none: then without the look-up. */
static __always_inline struct socket_state *find_state(struct sock *sk)
{
	return sk->sk_bpf_storage ? bpf_sk_storage_get(&sockets, sk, NULL, 0) : NULL;
}

/* Whether several threads use a direction, or do once this one has. */
static __always_inline bool is_shared(const struct socket_state *state, __u32 direction, __u32 tid)
{
	return state->flags & CONNECTION_SHARED ||
	       (state->tid[direction] != tid && state->calls[direction]);
}

/* Say whether several threads use a direction, the current one among them. */
static __always_inline bool note_shared(struct socket_state *state, __u32 direction, __u32 tid)
{
	if (!is_shared(state, direction, tid))
		return false;
	state->flags |= CONNECTION_SHARED;
	return true;
}

/* A client's SYN counts as one byte acknowledged, the other counters have no such extra. */
static __always_inline __u64 syn_bias(const struct socket_state *state)
{
	return state->role == ROLE_CLIENT;
}

/*
 * Take the bases. Both are constants of a connection, but what they are computed
 * from is not: under the socket lock, or until two readings agree.
 */
static __always_inline void read_bases(struct socket_state *state, const struct tcp_sock *tcp)
{
	state->base[DIRECTION_SEND] = tcp->snd_una - (__u32)tcp->bytes_acked + syn_bias(state);
	state->base[DIRECTION_RECEIVE] = tcp->rcv_nxt - (__u32)tcp->bytes_received;
}

/* Extend a 32-bit stream position by a 64-bit one that is within 2 GiB of it. */
static __always_inline __u64 extend_position(__u32 low, __u64 near)
{
	return near + (__s64)(__s32)(low - (__u32)near);
}

static __always_inline bool is_fin_received(const struct tcp_sock *tcp)
{
	return tcp->inet_conn.icsk_inet.sk.__sk_common.skc_flags & 1 << SOCK_DONE;
}

/* Payload bytes that the program has queued; a FIN counts as one in write_seq. */
static __always_inline __u64 sent_position(const struct socket_state *state,
					   const struct tcp_sock *tcp)
{
	__u32 low = tcp->write_seq - state->base[DIRECTION_SEND] - state->fin_sent;

	return extend_position(low, tcp->bytes_acked - syn_bias(state));
}

/* Payload bytes that the program has read; a FIN counts as one when the last read takes it. */
static __always_inline __u64 read_position(const struct socket_state *state,
					   const struct tcp_sock *tcp)
{
	__u32 copied = tcp->copied_seq;

	if (copied == tcp->rcv_nxt && is_fin_received(tcp))
		copied--;
	return extend_position(copied - state->base[DIRECTION_RECEIVE], tcp->bytes_received);
}

/* The counters on the change to CLOSE: a disconnect (also by the kernel) clears them after it. */
static __always_inline void keep_counters(struct socket_state *state, const struct tcp_sock *tcp)
{
	state->bytes_sent = sent_position(state, tcp);
	state->fin_received = is_fin_received(tcp);
	state->bytes_received = tcp->bytes_received - state->fin_received;
	state->bytes_read = read_position(state, tcp);
	state->retransmits = tcp->total_retrans;
	state->srtt_us = tcp->srtt_us >> 3;
}

#endif
