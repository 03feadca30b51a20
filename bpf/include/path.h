/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The absolute path of an open file or a directory: a walk from its dentry over the
 * mounts up to the root of its mount namespace, because bpf_d_path is refused in
 * tracing programs. Names are only collected on the way up, and copied on the way back.
 */
#ifndef TRACEHOUND_PATH_H
#define TRACEHOUND_PATH_H

#include "compat.h"

enum {
	PATH_PARTS_MAX = 32,
	PATH_STEPS_MAX = 2 * PATH_PARTS_MAX, /* a mount point is a step, not a part */
	PATH_SIZE_MAX = 4096,
	NAME_SIZE_MAX = 256,
};

/*
 * In a map and not on the stack: the verifier of 7.3 follows every value on the
 * stack through the loop and does not come to an end.
 */
struct path_walk {
	const unsigned char *names[PATH_PARTS_MAX]; /* the last one first */
	struct dentry *dentry;
	struct mount *mount;
	__u32 count; /* of names */
	__u32 size;  /* of text, without a NUL */
	__u32 is_complete;
	__u32 is_detached; /* of no file system: memfd, pipe */
	__u8 text[PATH_SIZE_MAX];
};

struct path_context {
	struct path_walk *walk;
};

/* One step from a file towards the root: keep a name, or cross a mount point. 1 ends the walk. */
LOOP_STEP long walk_step(__u32 step, struct path_context *context)
{
	struct path_walk *walk = context->walk;
	struct dentry *dentry = walk->dentry, *parent;
	struct mount *mount = walk->mount;
	__u32 count = walk->count;

	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
		walk->mount = BPF_CORE_READ(mount, mnt_parent);
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->is_complete = walk->mount == mount;
		return walk->is_complete;
	}
	if (count >= PATH_PARTS_MAX)
		return 1;
	walk->names[count] = BPF_CORE_READ(dentry, d_name.name);
	walk->count = count + 1;
	parent = BPF_CORE_READ(dentry, d_parent);
	walk->dentry = parent;
	walk->is_detached = parent == dentry;
	walk->is_complete = walk->is_detached;
	return walk->is_complete;
}

LOOP_STEP long append_part(__u32 index, struct path_context *context)
{
	struct path_walk *walk = context->walk;
	__u32 part = walk->count - 1 - index, size = walk->size;
	long length;

	if (part >= PATH_PARTS_MAX || size > PATH_SIZE_MAX - NAME_SIZE_MAX - 1) {
		walk->is_complete = 0;
		return 1;
	}
	walk->text[size] = '/';
	length = bpf_probe_read_kernel_str(walk->text + size + 1, NAME_SIZE_MAX, walk->names[part]);
	if (length < 1)
		length = 1;
	walk->size = size + length; /* the slash instead of the NUL */
	return 0;
}

/* Make walk->text of a path; nothing for the root. False: it has too many parts or bytes. */
static __always_inline bool read_path(struct path_walk *walk, const struct path *path)
{
	struct vfsmount *mount = BPF_CORE_READ(path, mnt);
	struct path_context context = {walk};

	walk->dentry = BPF_CORE_READ(path, dentry);
	walk->mount = (void *)mount - bpf_core_field_offset(struct mount, mnt);
	walk->count = walk->size = walk->is_complete = walk->is_detached = 0;
	REPEAT(PATH_STEPS_MAX, PATH_STEPS_MAX, walk_step, &context);
	if (walk->is_complete)
		REPEAT(PATH_PARTS_MAX, walk->count, append_part, &context);
	return walk->is_complete;
}

/* Copy walk->text, which must fit there; returns its size. */
static __always_inline __u32 copy_path(const struct path_walk *walk, __u8 *to)
{
	__u32 size = walk->size;

	if (size > PATH_SIZE_MAX || bpf_probe_read_kernel(to, size, walk->text))
		return 0;
	return size;
}

#endif
