/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's types, and of each only the members that we read. CO-RE finds
 * where they are in the running kernel, so order and sizes here mean nothing.
 */
#ifndef TRACEHOUND_KERNEL_H
#define TRACEHOUND_KERNEL_H

#include <linux/types.h>

typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"

/* ---- tasks -------------------------------------------------------------- */

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	__s64 counter;
} atomic64_t;

typedef struct {
	unsigned int val;
} kuid_t;

struct thread_info {
	unsigned long flags;
	unsigned int status;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct cred {
	kuid_t uid;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
	struct mm_struct *oom_mm;
};

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
	struct file *exe_file;
};

struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int pid;
	int tgid;
	int exit_code;
	__u64 start_time;
	char comm[16];
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	const struct cred *cred;
	struct fs_struct *fs;
	struct files_struct *files;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct uprobe_task *utask;
};

struct linux_binprm {
	const char *filename;
};

struct trace_event_raw_sched_process_exit {
	bool group_dead;
};

/* ---- paths -------------------------------------------------------------- */

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	__s64 i_size;
};

struct file {
	struct path f_path;
	void *private_data;
	struct inode *f_inode;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct fs_struct {
	struct path pwd;
};

/* ---- sockets ------------------------------------------------------------ */

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	atomic64_t skc_cookie;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	__u16 sk_type;
	__u8 sk_shutdown;
	__u8 sk_userlocks : 4;
	int sk_err;
	__u32 sk_max_ack_backlog;
	struct socket *sk_socket;
	struct pid *sk_peer_pid;
	struct bpf_local_storage *sk_bpf_storage;
};

struct sockaddr_un {
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[0];
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

struct bpf_map;

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_ulp_ops *icsk_ulp_ops;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 copied_seq;
	__u32 rcv_nxt;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u32 srtt_us;
	__u32 total_retrans;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u64 bytes_sent; /* every time that a byte was sent */
	__u64 bytes_retrans;
	bool is_mptcp;
};

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	unsigned long _nfct;
	char cb[48];
};

struct iov_iter {
	unsigned long count;
};

struct msghdr {
	struct iov_iter msg_iter;
};

union nf_inet_addr {
	__u32 all[4];
};

/* The port of TCP is what all members of the kernel's unions begin with. */
struct nf_conntrack_man {
	union nf_inet_addr u3;
	union {
		__be16 all;
	} u;
	__u16 l3num;
};

struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
		} u;
		__u8 protonum;
	} dst;
};

struct nf_conntrack_tuple_hash {
	struct nf_conntrack_tuple tuple;
};

struct nf_conn {
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
};

struct tcp_skb_cb {
	__u32 seq;
};

/* ---- iterators ---------------------------------------------------------- */

struct seq_file {
	unsigned long size;
	unsigned long count;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

struct bpf_iter__unix {
	struct bpf_iter_meta *meta;
	struct unix_sock *unix_sk;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bx;
	unsigned long r11;
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long cx;
	unsigned long r10;
	unsigned long r8;
	unsigned long r9;
	unsigned long ax;
	unsigned long orig_ax;
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 orig_x0;
	__s32 syscallno;
};
#endif

#pragma clang diagnostic pop
#pragma clang attribute pop

/* ---- constants (of the kernel's own headers) ------------------------------ */

enum {
	AF_UNIX = 1,
	AF_INET = 2,
	AF_INET6 = 10,
};

enum {
	IPPROTO_TCP = 6,
	IPPROTO_UDP = 17,
};

enum {
	SOCK_STREAM = 1,
	SOCK_DGRAM = 2,
	SOCK_BIND_LOCKS = 12, /* bits of sk_userlocks: bind(2) named an address, a port */
	UNIX_PATH_OFFSET = 2, /* of sun_path */
	UNIX_PATH_SIZE = 108,
};

enum tcp_state {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_CLOSE = 7,
	TCP_CLOSE_WAIT = 8,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
};

enum {
	NF_CONNTRACK_MASK = 7,	 /* bits of _nfct that are no address */
	NF_CONNTRACK_NAT = 0x30, /* status: source or destination was changed */
};

enum {
	SOCK_DONE = 1, /* bit of skc_flags: a FIN was received */
	SHUTDOWN_MASK = 3,
	MSG_PEEK = 2,
	MSG_TRUNC = 0x20,
	MSG_WAITALL = 0x100,
	E2BIG = 7,
	EEXIST = 17,
	EPIPE = 32,
	EBUSY = 16,
	ENOSYS = 38,
	ECONNRESET = 104,
};

enum {
	PF_IO_WORKER = 0x10,
	PF_USER_WORKER = 0x4000,
	PF_KTHREAD = 0x200000,
	SIGNAL_GROUP_EXIT = 4,
	SIGKILL = 9,
};

#endif
