/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who is traced: the processes in `traced`, or all but ourselves. The set grows by
 * roots and cgroups when it is seeded, then with the tree of its processes and with
 * what starts in its cgroups.
 */
#ifndef TRACEHOUND_FILTER_H
#define TRACEHOUND_FILTER_H

#include "compat.h"

const volatile __u32 config_trace_all = 0;     /* every process but our own */
const volatile __u32 config_trace_cgroups = 0; /* those in `target_cgroups` and below them */
const volatile __u32 config_own_tgid = 0;
const volatile __u32 config_filters_only = 0; /* 1 << enum filter_kind: only what is in `filters` */
const volatile __u32 config_filters_no = 0;   /* not what is in `filters` */

enum {
	CGROUP_LEVELS_MAX = 32,
};

enum filter_kind {
	FILTER_UID = 0,
	FILTER_PID = 1,
	FILTER_COMM = 2,
	FILTER_PORT = 3,
};

enum trace_mode {
	TRACE_NONE = 0,
	TRACE_SPAWNER = 1, /* ourselves while we spawn: children become pending */
	TRACE_PENDING = 2, /* spawned, still running our code until exec */
	TRACE_ON = 3,
	TRACE_MUTED = 4, /* a filter leaves it out; its children are looked at */
};

struct filter_key {
	__u32 kind;
	__u32 is_only;
	__u32 number;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct filter_key);
	__type(value, __u32);
} filters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} traced SEC(".maps");

/* Ids of version-2 cgroups whose processes are traced. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} target_cgroups SEC(".maps");

/* Argument of on_mark. */
struct own_mark {
	__u32 mode; /* enum trace_mode */
	__u32 tgid; /* out: in the initial pid namespace */
};

static __always_inline __u32 mode_of(__u32 tgid)
{
	__u32 *mode;

	if (config_trace_all && tgid != config_own_tgid)
		return TRACE_ON;
	mode = bpf_map_lookup_elem(&traced, &tgid);
	return mode ? *mode : TRACE_NONE;
}

static __always_inline bool is_traced(__u32 tgid)
{
	return mode_of(tgid) == TRACE_ON;
}

static __always_inline bool passes_filter(struct filter_key *key)
{
	if (config_filters_only & 1 << key->kind) {
		key->is_only = 1;
		if (!bpf_map_lookup_elem(&filters, key))
			return false;
	}
	if (config_filters_no & 1 << key->kind) {
		key->is_only = 0;
		if (bpf_map_lookup_elem(&filters, key))
			return false;
	}
	return true;
}

static __always_inline __u32 has_filters(void)
{
	return config_filters_only | config_filters_no;
}

/* The mode of a process in the set. */
static __always_inline __u32 mode_by_filters(const struct task_struct *task)
{
	struct filter_key key = {.kind = FILTER_UID};

	if (!has_filters())
		return TRACE_ON;
	key.number = task->cred->uid.val;
	if (!passes_filter(&key))
		return TRACE_MUTED;
	key.kind = FILTER_PID;
	key.number = task->tgid;
	if (!passes_filter(&key))
		return TRACE_MUTED;
	key.kind = FILTER_COMM;
	key.number = 0;
	bpf_probe_read_kernel_str(key.comm, sizeof(key.comm), task->group_leader->comm);
	return passes_filter(&key) ? TRACE_ON : TRACE_MUTED;
}

static __always_inline bool passes_port_filter(__u32 local_port, __u32 remote_port)
{
	struct filter_key local = {.kind = FILTER_PORT, .is_only = 1, .number = local_port};
	struct filter_key remote = {.kind = FILTER_PORT, .is_only = 1, .number = remote_port};

	if (config_filters_only & 1 << FILTER_PORT && !bpf_map_lookup_elem(&filters, &local) &&
	    !bpf_map_lookup_elem(&filters, &remote))
		return false;
	if (!(config_filters_no & 1 << FILTER_PORT))
		return true;
	local.is_only = remote.is_only = 0;
	return !bpf_map_lookup_elem(&filters, &local) && !bpf_map_lookup_elem(&filters, &remote);
}

/* Either end's port counts. */
static __always_inline bool is_port_wanted(__u32 local_port, __u32 remote_port)
{
	return !(has_filters() & 1 << FILTER_PORT) || passes_port_filter(local_port, remote_port);
}

/* The task's cgroup or one above it is a target. */
static __always_inline bool is_in_target(const struct task_struct *task)
{
	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	struct cgroup_subsys_state *parent;
	__u64 id;

	if (!config_trace_cgroups)
		return false;
	for (int i = 0; i < CGROUP_LEVELS_MAX; i++) {
		id = BPF_CORE_READ(cgroup, kn, id);
		if (bpf_map_lookup_elem(&target_cgroups, &id))
			return true;
		parent = BPF_CORE_READ(cgroup, self.parent);
		if (!parent)
			break;
		cgroup = BPF_CORE_READ(parent, cgroup);
	}
	return false;
}

#endif
