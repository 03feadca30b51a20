/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Ids of calls, never used twice in a trace: of functions, system calls and watched addresses
 * alike. */
#ifndef TRACEHOUND_CALL_ID_H
#define TRACEHOUND_CALL_ID_H

#include "ring.h"

/* The number of this CPU's next call. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} call_sequence SEC(".maps");

static __always_inline __u64 take_call(void)
{
	__u32 key = 0, cpu = bpf_get_smp_processor_id();
	__u64 *next = bpf_map_lookup_elem(&call_sequence, &key);

	return next ? (take_next(next) + 1) << 16 | cpu : 0;
}

#endif
