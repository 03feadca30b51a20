/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sockets of which the kernel counts no bytes and tells no end: UDP and unix. We count,
 * and what was counted must outlive the socket, so it is kept by cookie.
 */
#ifndef TRACEHOUND_COUNTED_H
#define TRACEHOUND_COUNTED_H

#include "compat.h"
#include "connection.h"
#include "filter.h"
#include "ring.h"

enum {
	FRESH_SEED = 2, /* after those of enum direction */
	FRESH_COUNT = 3,
};

struct counted_socket {
	struct socket_state state; /* position: bytes moved */
	__u64 address;		   /* of the struct sock, to see whether it is alive */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64); /* cookie */
	__type(value, struct counted_socket);
} counted SEC(".maps");

/* Where a new one is made, by enum direction: two programs may nest on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FRESH_COUNT);
	__type(key, __u32);
	__type(value, struct counted_socket);
} counted_fresh SEC(".maps");

/* Not 0 while what was there before is being taken in: nothing tells when a socket was made. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} seeding SEC(".maps");

static __always_inline bool is_seeding(void)
{
	__u32 key = 0, *value = bpf_map_lookup_elem(&seeding, &key);

	return value && *value;
}

static __always_inline bool is_udp(const struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	return sk->sk_protocol == IPPROTO_UDP && (family == AF_INET || family == AF_INET6);
}

static __always_inline bool is_unix(const struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX;
}

/* All but the header. */
static __always_inline void fill_counted_record(struct connection_record *record,
						const struct socket_state *state, __u8 event)
{
	__builtin_memset((__u8 *)record + sizeof(record->header), 0,
			 sizeof(*record) - sizeof(record->header));
	record->cookie = state->cookie;
	record->established_ns = state->established_ns;
	record->ended_ns = state->ended_ns;
	record->first_read_ns = state->first_read_ns;
	record->first_write_ns = state->first_write_ns;
	record->last_read_start_ns = state->last_read_start_ns;
	record->bytes_sent = state->position[DIRECTION_SEND];
	record->bytes_received = state->position[DIRECTION_RECEIVE];
	record->bytes_read = state->position[DIRECTION_RECEIVE];
	record->send_calls = state->calls[DIRECTION_SEND];
	record->receive_calls = state->calls[DIRECTION_RECEIVE];
	record->network_namespace = state->network_namespace;
	__builtin_memcpy(record->local_address, state->local_address, 16);
	__builtin_memcpy(record->remote_address, state->remote_address, 16);
	record->local_port = state->local_port;
	record->remote_port = state->remote_port;
	record->family = state->family;
	record->transport = state->transport;
	record->event = event;
	record->role = state->role;
	record->flags = state->flags;
}

static __always_inline void emit_counted(const struct socket_state *state, __u8 event, __u32 tid)
{
	struct connection_record *record;

	if (!is_port_wanted(state->local_port, state->remote_port))
		return;
	record = reserve_record(RECORD_CONNECTION, sizeof(*record), state->owner, tid);
	if (!record)
		return;
	fill_counted_record(record, state, event);
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

static __always_inline __u32 read_path(char *path, const struct unix_address *address)
{
	__u32 size;

	if (!address)
		return 0;
	size = address->len - UNIX_PATH_OFFSET;
	if (size > UNIX_PATH_SIZE)
		return 0;
	bpf_probe_read_kernel(path, size,
			      (const __u8 *)address +
				      bpf_core_field_offset(struct unix_address, name) +
				      UNIX_PATH_OFFSET);
	return size;
}

static __always_inline void read_remote_path(struct unix_record *record,
					     const struct unix_address *address)
{
	__u32 length = 0;

	bpf_probe_read_kernel(&length, sizeof(length), &address->len);
	length -= UNIX_PATH_OFFSET;
	barrier_var(length); /* one compare: 6.1 forgets the bounds of a signed one */
	if (length > UNIX_PATH_SIZE)
		return;
	bpf_probe_read_kernel(record->remote_path, length,
			      (const __u8 *)address +
				      bpf_core_field_offset(struct unix_address, name) +
				      UNIX_PATH_OFFSET);
	record->remote_size = length;
}

/*
 * What only unix sockets have: paths, the peer, and by them the role; all but the header. A
 * server's path is that of its listener.
 */
static __always_inline void fill_unix(struct unix_record *record, struct socket_state *state,
				      const struct unix_sock *self)
{
	struct unix_sock *peer = (struct unix_sock *)self->peer;
	const struct unix_address *remote = NULL;

	__builtin_memset((__u8 *)record + sizeof(record->header), 0,
			 sizeof(*record) - sizeof(record->header));
	record->cookie = state->cookie;
	if (self->sk.sk_peer_pid && state->phase != PHASE_LISTENING)
		record->peer_pid = self->sk.sk_peer_pid->numbers[0].nr;
	if (peer) {
		bpf_probe_read_kernel(&record->peer_cookie, sizeof(record->peer_cookie),
				      &peer->sk.__sk_common.skc_cookie);
		bpf_probe_read_kernel(&remote, sizeof(remote), &peer->addr);
	}
	record->local_size = read_path(record->local_path, self->addr);
	if (remote)
		read_remote_path(record, remote);
	if (record->local_size && !record->remote_size)
		state->role = ROLE_SERVER;
	else if (record->remote_size && !record->local_size)
		state->role = ROLE_CLIENT;
}

static __always_inline void emit_unix(struct socket_state *state, struct sock *sk)
{
	const struct unix_sock *self = bpf_skc_to_unix_sock(sk);
	struct unix_record *record;

	if (!self)
		return;
	record = reserve_record(RECORD_UNIX, sizeof(*record), state->owner, 0);
	if (!record)
		return;
	fill_unix(record, state, self);
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

/* Who is asked and who asks: a connected socket asks, any other one as its first call says. */
static __always_inline void fill_udp(struct socket_state *state, const struct sock *sk,
				     __u32 direction)
{
	state->local_port = sk->__sk_common.skc_num;
	read_local_address(state, sk);
	read_remote(state, sk);
	state->role = state->remote_port || direction == DIRECTION_SEND ? ROLE_CLIENT : ROLE_SERVER;
}

static __always_inline void fill_fresh(struct counted_socket *fresh, struct sock *sk, __u32 owner,
				       __u32 direction)
{
	struct socket_state *state = &fresh->state;

	fresh->address = (__u64)sk;
	reset_state(state, sk, owner);
	state->phase = PHASE_CONNECTED;
	state->established_ns = bpf_ktime_get_ns();
	state->transport = IPPROTO_UDP;
	if (!is_unix(sk))
		fill_udp(state, sk, direction);
	else if (sk->sk_type == SOCK_STREAM)
		state->transport = IPPROTO_TCP;
}

/* Tell of a socket that is new to us: of one that may have been there before, that it was. */
static __always_inline void tell_counted(struct socket_state *state, struct sock *sk)
{
	__u8 event = CONNECTION_SNAPSHOT;

	if (is_unix(sk))
		emit_unix(state, sk);
	if (!(state->flags & CONNECTION_PREEXISTING))
		event = state->role == ROLE_SERVER ? CONNECTION_ACCEPT : CONNECTION_OPEN;
	emit_counted(state, event, bpf_get_current_pid_tgid());
}

static __always_inline struct socket_state *open_counted(struct sock *sk, __u64 cookie, __u32 owner,
							 __u32 direction)
{
	struct counted_socket *fresh = bpf_map_lookup_elem(&counted_fresh, &direction), *found;
	struct socket_state *state;
	long status;

	if (!fresh || !is_process_socket(sk))
		return NULL;
	fill_fresh(fresh, sk, owner, direction);
	fresh->state.seeded = 1;
	if (is_seeding())
		fresh->state.flags = CONNECTION_PREEXISTING;
	status = bpf_map_update_elem(&counted, &cookie, fresh, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&counted, &cookie);
	if (!found) {
		count_loss(LOSS_TABLE_FULL, 1);
		return NULL;
	}
	state = &found->state;
	if (status)
		return state; /* another thread was faster, and tells of it */
	tell_counted(state, sk);
	return state;
}

/* The state of a socket, made if it has none; NULL: it is left out. */
static __always_inline struct socket_state *counted_state_of(struct sock *sk, __u32 owner,
							     __u32 direction)
{
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct counted_socket *found = bpf_map_lookup_elem(&counted, &cookie);
	struct socket_state *state;

	state = found && found->state.cookie ? &found->state
					     : open_counted(sk, cookie, owner, direction);
	return state && is_port_wanted(state->local_port, state->remote_port) ? state : NULL;
}

#endif
