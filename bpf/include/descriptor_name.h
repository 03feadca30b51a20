/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is behind a descriptor at this moment, as a piece of a record. */
#ifndef TRACEHOUND_DESCRIPTOR_NAME_H
#define TRACEHOUND_DESCRIPTOR_NAME_H

#include "call_pieces.h"
#include "path.h"
#include <linux/types.h>

enum {
	CURRENT_DIRECTORY = -100, /* AT_FDCWD */
	FILE_KIND = 0170000,
	FILE_SOCKET = 0140000,
};

/* A piece is a path that begins with /, else one of these and then, of the second, its name. */
enum descriptor_kind {
	DESCRIPTOR_SOCKET = 1,
	DESCRIPTOR_OTHER = 2, /* of no file system: pipe, epoll, memfd */
};

struct descriptor_socket {
	__u8 kind;
	__u8 protocol;
	__u16 family;
	__u16 local_port;
	__be16 remote_port;
	__u64 inode;
	__u8 local[16];
	__u8 remote[16];
};

struct descriptor_other {
	__u8 kind;
	__u8 reserved[7];
	__u64 inode;
};

/* One for each of two programs, by enum call_phase: neither nests with itself on a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct path_walk);
} descriptor_walk SEC(".maps");

static __always_inline struct file *file_behind(const struct task_struct *task, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL, **files;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

static __always_inline __u32 name_socket(const struct file *file, __u64 inode, __u8 *to)
{
	struct descriptor_socket name = {.kind = DESCRIPTOR_SOCKET, .inode = inode};
	const struct socket *socket = BPF_CORE_READ(file, private_data);
	const struct sock *sk = BPF_CORE_READ(socket, sk);
	__u32 address;

	name.family = BPF_CORE_READ(sk, __sk_common.skc_family);
	name.protocol = BPF_CORE_READ(sk, sk_protocol);
	name.local_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	name.remote_port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	if (name.family == AF_INET6) {
		BPF_CORE_READ_INTO(&name.local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&name.remote, sk, __sk_common.skc_v6_daddr);
	} else {
		address = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		__builtin_memcpy(name.local, &address, sizeof(address));
		address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		__builtin_memcpy(name.remote, &address, sizeof(address));
	}
	__builtin_memcpy(to, &name, sizeof(name));
	return sizeof(name);
}

/* Append what a path is; of no file system: its inode and the name that its dentry has. */
static __always_inline __u32 name_path(const struct path *path, __u64 inode, __u8 *to, __u32 phase)
{
	struct descriptor_other other = {.kind = DESCRIPTOR_OTHER, .inode = inode};
	struct path_walk *walk = bpf_map_lookup_elem(&descriptor_walk, &phase);
	__u32 size;

	if (!walk || !read_path(walk, path))
		return PIECE_FAULT;
	size = walk->size;
	if (size > PATH_SIZE_MAX)
		return PIECE_FAULT;
	if (walk->is_detached) {
		__builtin_memcpy(to, &other, sizeof(other));
		bpf_probe_read_kernel(to + sizeof(other), size, walk->text);
		return size + sizeof(other);
	}
	if (!size) {
		to[0] = '/';
		return 1;
	}
	bpf_probe_read_kernel(to, size, walk->text);
	return size;
}

static __always_inline __u32 name_descriptor(const struct task_struct *task, __s32 fd, __u8 *to,
					     __u32 phase)
{
	struct fs_struct *fs = BPF_CORE_READ(task, fs);
	struct file *file;
	__u64 inode;

	if (fd == CURRENT_DIRECTORY)
		return name_path(&fs->pwd, 0, to, phase);
	file = fd < 0 ? NULL : file_behind(task, fd);
	if (!file)
		return PIECE_FAULT;
	inode = BPF_CORE_READ(file, f_inode, i_ino);
	if ((BPF_CORE_READ(file, f_inode, i_mode) & FILE_KIND) == FILE_SOCKET)
		return name_socket(file, inode, to);
	return name_path(&file->f_path, inode, to, phase);
}

/* Fill a piece that was reserved. */
static __noinline int add_descriptor(struct call_scratch *scratch, const struct task_struct *task,
				     __u32 piece, __s32 fd, __u32 phase)
{
	__u32 at = scratch->at, named;

	piece &= CALL_OPERATIONS_MAX - 1;
	if (at > CALL_DATA_MAX)
		named = PIECE_FAULT;
	else
		named = name_descriptor(task, fd, scratch->data + at, phase);
	((__u32 *)scratch->data)[piece] = named;
	if (!(named & PIECE_FAULT))
		scratch->at = at + named;
	return 0;
}

#endif
