/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The points, what they do, and what is counted of each. */
#ifndef TRACEHOUND_CALL_MAPS_H
#define TRACEHOUND_CALL_MAPS_H

#include "call_point.h"
#include "compat.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALL_POINTS_MAX);
	__type(key, __u32);
	__type(value, struct call_point);
} call_points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALL_TABLE_MAX);
	__type(key, __u32);
	__type(value, struct call_operation);
} call_operations SEC(".maps");

/* What filters compare with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALL_TEXTS_MAX);
	__type(key, __u32);
	__type(value, struct call_text);
} call_texts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CALL_POINTS_MAX);
	__type(key, __u32);
	__type(value, struct call_count);
} call_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALL_POINTS_MAX);
	__type(key, __u32);
	__type(value, struct call_window);
} call_windows SEC(".maps");

/* Counts of a point that could not be found go nowhere: user space numbers the points. */
static __always_inline struct call_count *count_of(__u32 point)
{
	return bpf_map_lookup_elem(&call_counts, &point);
}

static __always_inline void add_one(__u64 *count)
{
	__sync_fetch_and_add(count, 1);
}

#endif
