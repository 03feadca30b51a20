// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What was there before the trace, told by iterators that user space runs after it
 * has attached: processes of the target, their sockets, and connections that wait to
 * be accepted. Each program writes whole records to its iterator's output; running
 * it again tells only what is new. The last one tells what is open at any moment.
 */
#include "compat.h"
#include "connection.h"
#include "counted.h"
#include "filter.h"
#include "join.h"
#include "task.h"

/* Processes that the target names, by their pid in our own pid namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} target_pids SEC(".maps");

/* No room for a record: the write fails, and the kernel comes again with an empty buffer. */
static __always_inline bool has_room(struct seq_file *seq, void *record, __u32 size)
{
	if (seq->count + size <= seq->size)
		return true;
	bpf_seq_write(seq, record, size);
	return false;
}

/* ---- processes ---------------------------------------------------------- */

/* The pid as the reader of the iterator, the current task, counts. */
static __always_inline __u32 pid_for_reader(const struct task_struct *task)
{
	/* A number to the verifier, as in ns_pid_of. */
	const struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	__u32 level = bpf_get_current_task_btf()->thread_pid->level, number = 0;

	if (level > BPF_CORE_READ(pid, level))
		return 0;
	bpf_probe_read_kernel(&number, sizeof(number),
			      (const __u8 *)pid + bpf_core_field_offset(struct pid, numbers) +
				      level * bpf_core_type_size(struct upid) +
				      bpf_core_field_offset(struct upid, nr));
	return number;
}

static __always_inline bool is_wanted(const struct task_struct *task)
{
	__u32 pid = pid_for_reader(task);

	return bpf_map_lookup_elem(&target_pids, &pid) ||
	       mode_of(task->real_parent->tgid) >= TRACE_ON || is_in_target(task);
}

/*
 * Put the process into the set. False: it is there, or it has ended. One that ends
 * at this moment is either told by on_exit, which found it in the set, or not at all.
 */
static __always_inline bool begin_process(const struct task_struct *task)
{
	__u32 tgid = task->tgid, mode = mode_by_filters(task);
	long status;

	if (config_trace_all)
		return true;
	status = bpf_map_update_elem(&traced, &tgid, &mode, BPF_NOEXIST);
	if (status) {
		if (status != -EEXIST)
			count_loss(LOSS_TABLE_FULL, 1);
		return false;
	}
	if (!task->signal->live.counter && !bpf_map_delete_elem(&traced, &tgid))
		return false;
	return mode != TRACE_MUTED;
}

static void seed_process(struct seq_file *seq, struct task_struct *task)
{
	__u32 tgid = task->tgid;
	struct exec_record record;

	if (task->flags & PF_KTHREAD || !task->signal->live.counter ||
	    tgid == (__u32)(bpf_get_current_pid_tgid() >> 32))
		return;
	if (!config_trace_all && (bpf_map_lookup_elem(&traced, &tgid) || !is_wanted(task)))
		return;
	fill_preexisting(&record, task);
	if (has_room(seq, &record, sizeof(record)) && begin_process(task))
		bpf_seq_write(seq, &record, sizeof(record));
}

/* ---- sockets ------------------------------------------------------------ */

static __always_inline void fill_connection(struct connection_record *record,
					    const struct socket_state *state, __u8 event,
					    __u8 tcp_state)
{
	__builtin_memset(record, 0, sizeof(*record));
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CONNECTION, sizeof(*record),
		    state->owner, 0);
	record->header.ring_seq = RING_SEQ_NONE;
	record->cookie = state->cookie;
	record->parent_cookie = state->parent_cookie;
	record->started_ns = state->started_ns;
	record->established_ns = state->established_ns;
	record->first_read_ns = state->first_read_ns;
	record->first_write_ns = state->first_write_ns;
	record->last_read_start_ns = state->last_read_start_ns;
	record->send_calls = state->calls[DIRECTION_SEND];
	record->receive_calls = state->calls[DIRECTION_RECEIVE];
	record->base_sent = state->base[DIRECTION_SEND];
	record->base_received = state->base[DIRECTION_RECEIVE];
	record->attempt = state->attempt;
	record->network_namespace = state->network_namespace;
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
}

static __always_inline void fill_counters(struct connection_record *record,
					  const struct socket_state *state,
					  const struct tcp_sock *tcp)
{
	record->bytes_sent = sent_position(state, tcp);
	record->bytes_received = tcp->bytes_received - is_fin_received(tcp);
	record->bytes_read = read_position(state, tcp);
	record->retransmits = tcp->total_retrans;
	record->srtt_us = tcp->srtt_us >> 3;
}

/* Tell of an open connection that was there before, once. */
static __always_inline void write_connection(struct seq_file *seq, struct socket_state *state,
					     const struct tcp_sock *tcp, __u8 tcp_state, __u32 slot)
{
	struct connection_record record;

	if (!is_port_wanted(state->local_port, state->remote_port))
		return;
	fill_connection(&record, state, CONNECTION_SNAPSHOT, tcp_state);
	fill_counters(&record, state, tcp);
	record.slot = slot;
	if (!bpf_seq_write(seq, &record, sizeof(record)))
		state->seeded = 1;
}

static __always_inline void keep_listener(__u32 network_namespace, __u32 port, __u32 tgid)
{
	struct listener_key key = {network_namespace, port};

	if (bpf_map_update_elem(&listeners, &key, &tgid, tgid ? BPF_ANY : BPF_NOEXIST) == -E2BIG)
		count_loss(LOSS_TABLE_FULL, 1);
}

static void seed_listener(struct seq_file *seq, struct sock *sk, const struct tcp_sock *tcp,
			  __u32 tgid)
{
	struct socket_state *state = make_state(sk, tgid);
	struct connection_record record;

	if (!state || state->seeded)
		return;
	if (state->phase != PHASE_LISTENING) {
		reset_state(state, sk, tgid);
		state->role = ROLE_SERVER;
		state->flags = CONNECTION_PREEXISTING;
		read_local(state, sk, tcp);
		state->phase = PHASE_LISTENING;
		keep_listener(state->network_namespace, state->local_port, tgid);
	}
	if (!(state->flags & CONNECTION_PREEXISTING) || !is_port_wanted(state->local_port, 0))
		return;
	fill_connection(&record, state, CONNECTION_LISTEN, TCP_LISTEN);
	record.backlog = sk->sk_max_ack_backlog;
	if (!bpf_seq_write(seq, &record, sizeof(record)))
		state->seeded = 1;
}

/* connect(2) is under way: its outcome makes the row. */
static void seed_connecting(struct sock *sk, __u32 tgid)
{
	struct socket_state *state = make_state(sk, tgid);

	if (!state || state->phase != PHASE_NEW)
		return;
	reset_state(state, sk, tgid);
	state->attempt = 1;
	state->role = ROLE_CLIENT;
	read_remote(state, sk);
	state->phase = PHASE_CONNECTING;
}

static void seed_socket(struct seq_file *seq, struct sock *sk, __u32 tgid, __u32 slot)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u8 tcp_state = sk->__sk_common.skc_state;
	struct socket_state *state;

	if (!tcp || is_mptcp_subflow(tcp))
		return;
	if (tcp_state == TCP_LISTEN) {
		seed_listener(seq, sk, tcp, tgid);
		return;
	}
	if (tcp_state == TCP_SYN_SENT) {
		seed_connecting(sk, tgid);
		return;
	}
	if (tcp_state == TCP_CLOSE) /* a new one, or one whose end was before the trace */
		return;
	state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!state || state->phase == PHASE_NEW || state->phase == PHASE_LISTENING)
		state = join_established(sk, tcp, tgid);
	if (state && state->flags & CONNECTION_PREEXISTING && !state->seeded)
		write_connection(seq, state, tcp, tcp_state, slot);
}

/* The iterator holds the socket's lock. */
static void seed_locked(struct seq_file *seq, struct sock *sk, struct tcp_sock *tcp)
{
	struct listener_key key = {sk->__sk_common.skc_net.net->ns.inum, sk->__sk_common.skc_num};
	__u8 tcp_state = sk->__sk_common.skc_state;
	struct socket_state *state;
	__u32 *owner;

	if (is_mptcp_subflow(tcp))
		return;
	if (tcp_state == TCP_LISTEN) {
		keep_listener(key.network_namespace, key.port, 0);
		return;
	}
	state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (state && state->phase != PHASE_NEW && state->phase != PHASE_LISTENING) {
		if (state->flags & CONNECTION_PREEXISTING && state->phase == PHASE_CONNECTED)
			read_bases(state, tcp);
	} else if ((tcp_state == TCP_ESTABLISHED || tcp_state == TCP_CLOSE_WAIT) &&
		   !sk->sk_socket) { /* nobody has accepted it yet */
		owner = bpf_map_lookup_elem(&listeners, &key);
		if (!owner || !*owner || !is_traced(*owner))
			return;
		state = join_established(sk, tcp, *owner);
	}
	if (state && state->flags & CONNECTION_PREEXISTING && !state->seeded && !sk->sk_socket)
		write_connection(seq, state, tcp, tcp_state, 0);
}

static void write_open(struct seq_file *seq, struct sock *sk, const struct tcp_sock *tcp)
{
	struct socket_state *state = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	struct connection_record record;

	if (!state || state->phase != PHASE_CONNECTED ||
	    state->cookie != bpf_get_socket_cookie(sk) ||
	    !is_port_wanted(state->local_port, state->remote_port))
		return;
	fill_connection(&record, state, CONNECTION_SNAPSHOT, sk->__sk_common.skc_state);
	fill_counters(&record, state, tcp);
	bpf_seq_write(seq, &record, sizeof(record));
}

/* ---- UDP and unix sockets ------------------------------------------------ */

/* One that is not bound and not connected was not used yet: it is as one that is still to come. */
static __always_inline bool was_used(const struct sock *sk, const struct unix_sock *self)
{
	__u8 state = sk->__sk_common.skc_state;

	if (!self)
		return sk->__sk_common.skc_num;
	if (sk->sk_type != SOCK_DGRAM)
		return state == TCP_ESTABLISHED || state == TCP_LISTEN;
	return self->addr || self->peer;
}

/* Who is asked and who asks: nobody sees its first call, so whether bind(2) named an address says.
 */
static __always_inline void fill_role(struct socket_state *state, struct sock *sk)
{
	bool is_bound = BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) & SOCK_BIND_LOCKS;

	state->role = !state->remote_port && is_bound ? ROLE_SERVER : ROLE_CLIENT;
}

static __always_inline struct socket_state *seed_state(struct sock *sk, __u32 tgid)
{
	__u32 key = FRESH_SEED;
	__u64 cookie = bpf_get_socket_cookie(sk);
	struct counted_socket *fresh = bpf_map_lookup_elem(&counted_fresh, &key), *found;

	found = bpf_map_lookup_elem(&counted, &cookie);
	if (found || !fresh)
		return found ? &found->state : NULL;
	fill_fresh(fresh, sk, tgid, DIRECTION_SEND);
	fresh->state.established_ns = 0; /* not known */
	fresh->state.flags = CONNECTION_PREEXISTING;
	if (!is_unix(sk))
		fill_role(&fresh->state, sk);
	else if (sk->__sk_common.skc_state == TCP_LISTEN)
		fresh->state.phase = PHASE_LISTENING;
	if (bpf_map_update_elem(&counted, &cookie, fresh, BPF_NOEXIST) == -E2BIG)
		count_loss(LOSS_TABLE_FULL, 1);
	found = bpf_map_lookup_elem(&counted, &cookie);
	return found ? &found->state : NULL;
}

/* Where records are made: too large for the stack. */
struct counted_records {
	struct unix_record unix;
	struct connection_record connection;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counted_records);
} counted_records SEC(".maps");

static __always_inline bool write_unix(struct seq_file *seq, struct unix_record *record,
				       struct socket_state *state, const struct unix_sock *self)
{
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_UNIX, sizeof(*record), state->owner,
		    0);
	record->header.ring_seq = RING_SEQ_NONE;
	fill_unix(record, state, self);
	return !bpf_seq_write(seq, record, sizeof(*record));
}

static __always_inline bool write_counted(struct seq_file *seq, struct connection_record *record,
					  const struct socket_state *state, const struct sock *sk,
					  __u32 slot)
{
	bool is_listening = state->phase == PHASE_LISTENING;

	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_CONNECTION, sizeof(*record),
		    state->owner, 0);
	record->header.ring_seq = RING_SEQ_NONE;
	fill_counted_record(record, state, is_listening ? CONNECTION_LISTEN : CONNECTION_SNAPSHOT);
	record->backlog = is_listening ? sk->sk_max_ack_backlog : 0;
	record->slot = slot;
	return !bpf_seq_write(seq, record, sizeof(*record));
}

/* Tell of a socket that was there before, once; the kernel takes back what is half written. */
static void seed_counted(struct seq_file *seq, struct sock *sk, __u32 tgid, __u32 slot)
{
	__u32 key = 0;
	struct counted_records *records = bpf_map_lookup_elem(&counted_records, &key);
	const struct unix_sock *self = is_unix(sk) ? bpf_skc_to_unix_sock(sk) : NULL;
	struct socket_state *state;

	if (!records || !was_used(sk, self))
		return;
	state = seed_state(sk, tgid);
	if (!state || state->seeded || !(state->flags & CONNECTION_PREEXISTING) ||
	    !is_port_wanted(state->local_port, state->remote_port))
		return;
	if (self && !write_unix(seq, &records->unix, state, self))
		return;
	if (write_counted(seq, &records->connection, state, sk, slot))
		state->seeded = 1;
}

SEC("iter/task")
int on_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (task && task->pid == task->tgid)
		seed_process(ctx->meta->seq, task);
	return 0;
}

SEC("iter/task_file")
int on_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;

	if (!task || !file || !is_traced(task->tgid))
		return 0;
	socket = bpf_sock_from_file(file);
	if (socket && socket->sk && is_tcp(socket->sk))
		seed_socket(ctx->meta->seq, socket->sk, task->tgid, ctx->fd + 1);
	return 0;
}

/* Apart from on_file: with `requests` off nothing counts them. */
SEC("iter/task_file")
int on_counted_file(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;

	if (!task || !file || !is_traced(task->tgid))
		return 0;
	socket = bpf_sock_from_file(file);
	if (socket && socket->sk && (is_udp(socket->sk) || is_unix(socket->sk)))
		seed_counted(ctx->meta->seq, socket->sk, task->tgid, ctx->fd + 1);
	return 0;
}

/* Gives every unix socket its cookie, so that both ends of those seeded know each other's. */
SEC("iter/unix")
int on_unix(struct bpf_iter__unix *ctx)
{
	struct unix_sock *socket = ctx->unix_sk; /* read once: 6.1 forgets that it was looked at */

	if (socket)
		bpf_get_socket_cookie(socket);
	return 0;
}

SEC("iter/tcp")
int on_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tcp;

	if (!common)
		return 0;
	tcp = bpf_skc_to_tcp_sock(common);
	if (tcp)
		seed_locked(ctx->meta->seq, (struct sock *)tcp, tcp);
	return 0;
}

SEC("iter/tcp")
int on_open(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tcp;

	if (!common)
		return 0;
	tcp = bpf_skc_to_tcp_sock(common);
	if (tcp)
		write_open(ctx->meta->seq, (struct sock *)tcp, tcp);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
