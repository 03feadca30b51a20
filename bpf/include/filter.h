/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who is traced: the processes in `traced`, which grows and shrinks with their tree, or all. */
#ifndef TRACEHOUND_FILTER_H
#define TRACEHOUND_FILTER_H

#include "compat.h"

const volatile __u32 config_trace_all = 0; /* every process but our own */
const volatile __u32 config_own_tgid = 0;

enum trace_mode {
	TRACE_NONE = 0,
	TRACE_SPAWNER = 1, /* ourselves while we spawn: children become pending */
	TRACE_PENDING = 2, /* spawned, still running our code until exec */
	TRACE_ON = 3,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} traced SEC(".maps");

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

#endif
