// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which UDP and unix sockets are gone: no hook tells their end, so user space asks now and then.
 * And what those that are there have moved so far.
 */
#include "compat.h"
#include "connection.h"
#include "counted.h"

/*
 * The memory of a socket that is gone may hold anything, but hardly the same cookie and a
 * file: the kernel takes the file off before it frees it, and never uses a cookie again.
 */
static __always_inline bool is_alive(const struct counted_socket *socket)
{
	const struct sock *sk = (const struct sock *)socket->address;
	const void *file_end = NULL;
	__u64 cookie = 0;

	bpf_probe_read_kernel(&cookie, sizeof(cookie), &sk->__sk_common.skc_cookie);
	bpf_probe_read_kernel(&file_end, sizeof(file_end), &sk->sk_socket);
	return cookie == socket->state.cookie && file_end;
}

static long end_if_gone(struct bpf_map *map, const __u64 *cookie, struct counted_socket *socket,
			void *unused)
{
	if (is_alive(socket))
		return 0;
	socket->state.ended_ns = bpf_ktime_get_ns();
	emit_counted(
		&socket->state,
		socket->state.phase == PHASE_LISTENING ? CONNECTION_UNLISTEN : CONNECTION_CLOSE, 0);
	bpf_map_delete_elem(map, cookie);
	return 0;
}

SEC("syscall")
int on_second(void *ctx)
{
	bpf_for_each_map_elem(&counted, end_if_gone, NULL, 0);
	return 0;
}

static long tell_open(struct bpf_map *map, const __u64 *cookie, struct counted_socket *socket,
		      void *unused)
{
	if (socket->state.phase == PHASE_CONNECTED && is_alive(socket))
		emit_counted(&socket->state, CONNECTION_SNAPSHOT, 0);
	return 0;
}

SEC("syscall")
int on_question(void *ctx)
{
	bpf_for_each_map_elem(&counted, tell_open, NULL, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
