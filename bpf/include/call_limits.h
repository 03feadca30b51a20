/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which hits are let through: by rate, by caller; and what is counted here instead of being sent.
 */
#ifndef TRACEHOUND_CALL_LIMITS_H
#define TRACEHOUND_CALL_LIMITS_H

#include "call_pieces.h"

enum {
	WINDOW_NS = 1000000000,
	CALLER_TRIES = 4,
	CALLER_UNTOLD = 2,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, CALL_GROUPS_MAX);
	__type(key, struct call_group);
	__type(value, struct call_sum);
} call_groups SEC(".maps");

/* The window that now is in, NULL: the point has no limit. */
static __always_inline struct call_window *window_of(const struct call_point *point, __u32 number)
{
	struct call_window *window;
	__u64 now;

	if (!point->rate && !point->ceiling)
		return NULL;
	window = bpf_map_lookup_elem(&call_windows, &number);
	if (!window)
		return NULL;
	now = bpf_ktime_get_ns();
	if (now - window->start_ns >= WINDOW_NS) {
		window->start_ns = now;
		window->hits = 0;
		window->passed = 0;
	}
	return window;
}

/* False: it is reached too often, and is turned off. */
static __always_inline bool is_below_ceiling(struct call_point *point, struct call_window *window)
{
	if (!window || !point->ceiling || take_next(&window->hits) < point->ceiling)
		return true;
	point->flags |= POINT_OFF;
	return false;
}

/* Asked of hits that passed the filters. */
static __always_inline bool is_in_rate(const struct call_point *point, struct call_window *window)
{
	return !window || !point->rate || take_next(&window->passed) < point->rate;
}

/* How many bits a number has. */
static __always_inline __u32 bits_of(__u64 value)
{
	__u32 bits = 0;

	_Pragma("clang loop unroll(full)") for (__u32 step = 32; step; step /= 2)
	{
		if (value >> step) {
			value >>= step;
			bits += step;
		}
	}
	return bits + (value ? 1 : 0);
}

/* Count the hit under the key and the measure that its operations made. */
static __noinline int add_to_group(struct call_scratch *scratch, struct call_count *count,
				   __u32 number)
{
	struct call_group group = {.point = number};
	struct call_sum *sum, none = {};

	__builtin_memcpy(group.key, scratch->key, sizeof(group.key));
	group.slot = scratch->is_negative ? CALL_SLOT_NEGATIVE : bits_of(scratch->measured);
	sum = bpf_map_lookup_elem(&call_groups, &group);
	if (!sum) {
		bpf_map_update_elem(&call_groups, &group, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&call_groups, &group);
	}
	if (!sum) {
		count_loss(LOSS_TABLE_FULL, 1);
		add_one(&count->lost);
		return 0;
	}
	add_one(&sum->count);
	__sync_fetch_and_add(&sum->total, scratch->measured);
	return 0;
}

#ifdef CALL_MAY_SLEEP /* those kernels have bpf_find_vma, too */

struct caller_search {
	__u64 inode;
	__u32 size;
	__u32 is_found;
};

static long look_at_area(struct task_struct *task, struct vm_area_struct *area,
			 struct caller_search *search)
{
	struct inode *inode = BPF_CORE_READ(area, vm_file, f_inode);

	search->is_found = inode && BPF_CORE_READ(inode, i_ino) == search->inode &&
			   (__u32)BPF_CORE_READ(inode, i_size) == search->size;
	return 0;
}

/* Of an address of a process, by its memory's own address: which file it lies in does not change.
 */
struct caller_key {
	__u64 mm;
	__u64 ip;
	__u64 inode;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct caller_key);
	__type(value, __u32);
} callers SEC(".maps");

/* Whether an address lies in a file; CALLER_UNTOLD while the process's maps are being changed. */
static __noinline int is_called_from(__u64 caller_ip, __u64 inode, __u32 size)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct caller_key key = {(__u64)task->mm, caller_ip, inode};
	struct caller_search search = {inode, size, 0};
	__u32 *known = bpf_map_lookup_elem(&callers, &key);

	if (known)
		return *known;
	for (__u32 i = 0; i < CALLER_TRIES; i++) {
		if (bpf_find_vma(task, caller_ip - 1, look_at_area, &search, 0) == -EBUSY)
			continue;
		bpf_map_update_elem(&callers, &key, &search.is_found, BPF_ANY);
		return search.is_found;
	}
	return CALLER_UNTOLD;
}

#endif

#endif
