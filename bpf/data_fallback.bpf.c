// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of TCP connections on kernels without sock_send_length and
 * sock_recv_length (before 6.3): the same capture at the end of TCP's own functions,
 * in the caller's context too and with a socket that the verifier trusts. Not seen:
 * sockets whose calls go elsewhere (UDP, unix, kernel TLS, sockmap, MPTCP).
 */
#define TRACEHOUND_DATA_FALLBACK
#include "data.bpf.c"

struct msghdr;
struct page;

SEC("fexit/tcp_sendmsg")
int BPF_PROG(on_tcp_send, struct sock *sk, struct msghdr *message, __u64 size, int sent)
{
	capture(sk, sent, 0, DIRECTION_SEND);
	return 0;
}

/* sendfile and splice to a socket; since 6.5 they are tcp_sendmsg's. */
SEC("fexit/tcp_sendpage")
int BPF_PROG(on_tcp_send_page, struct sock *sk, struct page *page, int offset, __u64 size,
	     int flags, int sent)
{
	capture(sk, sent, 0, DIRECTION_SEND);
	return 0;
}

SEC("fexit/tcp_recvmsg")
int BPF_PROG(on_tcp_receive, struct sock *sk, struct msghdr *message, __u64 size, int flags,
	     int *address_size, int received)
{
	capture(sk, received, flags, DIRECTION_RECEIVE);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
