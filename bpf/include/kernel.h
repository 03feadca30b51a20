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
	struct signal_struct *signal;
	struct css_set *cgroups;
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

struct file {
	struct path f_path;
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
	__u8 sk_shutdown;
	int sk_err;
	__u32 sk_max_ack_backlog;
	struct socket *sk_socket;
};

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
	__u32 write_seq;
	__u32 srtt_us;
	__u32 total_retrans;
	__u64 bytes_acked;
	__u64 bytes_received;
	bool is_mptcp;
};

struct sk_buff {
	unsigned int len;
	char cb[48];
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

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long r8;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
};
#endif

#pragma clang diagnostic pop
#pragma clang attribute pop

/* ---- constants (of the kernel's own headers) ------------------------------ */

enum {
	AF_INET = 2,
	AF_INET6 = 10,
};

enum {
	IPPROTO_TCP = 6,
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
	SOCK_DONE = 1, /* bit of skc_flags: a FIN was received */
	SHUTDOWN_MASK = 3,
	MSG_PEEK = 2,
	E2BIG = 7,
	EEXIST = 17,
	EPIPE = 32,
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
