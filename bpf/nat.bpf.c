// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where a client's connection goes after NAT: read from the connection tracking entry
 * of its SYN, which has both tuples when the packet is handed to the device. A program
 * on every packet, so it is loaded only where there is NAT. Not seen: NAT in another
 * network namespace than the client's, for the packet has lost its socket by then.
 */
#include <bpf/bpf_endian.h>
#include "compat.h"
#include "ring.h"

static __always_inline void read_ends(struct nat_record *record, const struct nf_conn *connection)
{
	const struct nf_conntrack_tuple_hash *original = &connection->tuplehash[0];
	const struct nf_conntrack_tuple_hash *reply = &connection->tuplehash[1];

	BPF_CORE_READ_INTO(&record->original_local_address, original, tuple.src.u3);
	BPF_CORE_READ_INTO(&record->original_remote_address, original, tuple.dst.u3);
	BPF_CORE_READ_INTO(&record->actual_local_address, reply, tuple.dst.u3);
	BPF_CORE_READ_INTO(&record->actual_remote_address, reply, tuple.src.u3);
	record->original_local_port = bpf_ntohs(BPF_CORE_READ(original, tuple.src.u.all));
	record->original_remote_port = bpf_ntohs(BPF_CORE_READ(original, tuple.dst.u.all));
	record->actual_local_port = bpf_ntohs(BPF_CORE_READ(reply, tuple.dst.u.all));
	record->actual_remote_port = bpf_ntohs(BPF_CORE_READ(reply, tuple.src.u.all));
	record->family = BPF_CORE_READ(original, tuple.src.l3num);
	record->reserved[0] = record->reserved[1] = record->reserved[2] = 0;
}

static void emit_nat(__u64 cookie, const struct nf_conn *connection)
{
	struct nat_record *record;

	record = reserve_record(RECORD_NAT, sizeof(*record), 0, 0);
	if (!record)
		return;
	record->cookie = cookie;
	read_ends(record, connection);
	submit_record(record, record->header.ring_seq, sizeof(*record));
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_transmit, struct sk_buff *skb)
{
	unsigned long tracking = skb->_nfct & ~(unsigned long)NF_CONNTRACK_MASK;
	struct nf_conn *connection = (void *)tracking;
	struct sock *sk = skb->sk;
	__u64 cookie;

	if (!sk || !tracking || sk->__sk_common.skc_state != TCP_SYN_SENT ||
	    sk->sk_protocol != IPPROTO_TCP)
		return 0;
	/* What is traced has storage and, with it, a cookie. */
	cookie = sk->__sk_common.skc_cookie.counter;
	if (!cookie || !sk->sk_bpf_storage)
		return 0;
	if (BPF_CORE_READ(connection, status) & NF_CONNTRACK_NAT)
		emit_nat(cookie, connection);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
