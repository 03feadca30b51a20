/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The lifecycle ring (that of data is in data_ring.h), and of either: number a record,
 * reserve or output it, count it if there is no room. Nobody is woken (the drain comes
 * every few milliseconds) before a ring is half full.
 */
#ifndef TRACEHOUND_RING_H
#define TRACEHOUND_RING_H

#include "compat.h"
#include "wire.h"

enum {
	RING_WAKE_INTERVAL = 64,     /* records of one CPU between two looks at the fill */
	RING_WAKE_SIZE_BYTES = 4096, /* at records of this size every time */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} lifecycle SEC(".maps");

/* Of this CPU, by enum loss_counter. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

/* The next ring_seq of this CPU, by enum ring_id. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RING_STACK + 1);
	__type(key, __u32);
	__type(value, __u64);
} ring_sequence SEC(".maps");

static __always_inline void count_loss(__u32 counter, __u64 count)
{
	__u64 *value = bpf_map_lookup_elem(&losses, &counter);

	if (value)
		__sync_fetch_and_add(value, count);
}

/* Atomic: a program in softirq may interrupt one of this CPU. */
static __always_inline __u64 take_ring_sequence(__u32 ring)
{
	__u64 *next = bpf_map_lookup_elem(&ring_sequence, &ring);

	return next ? take_next(next) : 0;
}

/* Fill all but ring_seq, which take_ring_sequence gives just before the output. */
static __always_inline void fill_header(struct record_header *header, __u64 time_ns, __u16 kind,
					__u32 size, __u32 pid, __u32 tid)
{
	header->time_ns = time_ns;
	header->pid = pid;
	header->tid = tid;
	header->size = size;
	header->kind = kind;
	header->cpu = bpf_get_smp_processor_id();
}

static __always_inline __u64 wake_flags(void *ring, __u64 sequence, __u32 size)
{
	if (sequence % RING_WAKE_INTERVAL && size < RING_WAKE_SIZE_BYTES)
		return BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) * 2 <
	    bpf_ringbuf_query(ring, BPF_RB_RING_SIZE))
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

/* Reserve a record of fixed size in `lifecycle`, its header filled; NULL: counted as lost. */
static __always_inline void *reserve_record(__u16 kind, __u32 size, __u32 pid, __u32 tid)
{
	__u64 sequence = take_ring_sequence(RING_LIFECYCLE);
	struct record_header *header = bpf_ringbuf_reserve(&lifecycle, size, 0);

	if (!header) {
		count_loss(LOSS_RING_FULL, 1);
		return NULL;
	}
	fill_header(header, bpf_ktime_get_ns(), kind, size, pid, tid);
	header->ring_seq = sequence;
	return header;
}

static __always_inline void submit_record(void *record, __u64 sequence, __u32 size)
{
	bpf_ringbuf_submit(record, wake_flags(&lifecycle, sequence, size));
}

/* Copy a record whose header is filled into a ring; counted if there is no room. */
static __always_inline void output_record(void *ring, __u32 ring_id, struct record_header *header,
					  __u32 size)
{
	header->ring_seq = take_ring_sequence(ring_id);
	if (bpf_ringbuf_output(ring, header, size, wake_flags(ring, header->ring_seq, size)))
		count_loss(LOSS_RING_FULL, 1);
}

#endif
