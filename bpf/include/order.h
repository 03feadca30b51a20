/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What to capture of a connection: its class, as detection, user space's orders
 * and the load decide. User space cannot write a socket's state, so it leaves an
 * order by cookie and changes an epoch that the next call looks at.
 */
#ifndef TRACEHOUND_ORDER_H
#define TRACEHOUND_ORDER_H

#include "compat.h"
#include "connection.h"
#include "wire.h"

enum {
	ORDER_EPOCHS = 1024,
	UNKNOWN_SIZE_MAX = 65536, /* of one direction, then we give up */
	UNKNOWN_CALLS_MAX = 256,
};

/* What user space wants of a connection; it writes this, then the connection's epoch. */
struct capture_order {
	__u64 skip_until[2]; /* by enum direction: positions below are not copied */
	__u32 capture_class; /* of both directions; unknown: detect again */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64); /* cookie */
	__type(value, struct capture_order);
} orders SEC(".maps");

/* One value of all epochs, so that they are dense when mapped: [cookie % ORDER_EPOCHS]. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32[ORDER_EPOCHS]);
} order_epoch SEC(".maps");

/* One value, mapped by user space: [0] is the most that may be captured while decode lags. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32[8]);
} limits SEC(".maps");

/* Copy a new order into the state: one load and compare when there is none. */
static __always_inline void apply_order(struct socket_state *state)
{
	__u32 *epochs, epoch, key = 0;
	struct capture_order *order;

	epochs = bpf_map_lookup_elem(&order_epoch, &key);
	if (!epochs)
		return;
	epoch = epochs[state->cookie % ORDER_EPOCHS];
	if (epoch == state->order_epoch)
		return;
	state->order_epoch = epoch;
	order = bpf_map_lookup_elem(&orders, &state->cookie);
	if (!order)
		return;
	state->skip_until[0] = order->skip_until[0];
	state->skip_until[1] = order->skip_until[1];
	/* The epoch is shared: an order that was carried out must not be again. */
	if (state->ordered_class == order->capture_class + 1)
		return;
	state->ordered_class = order->capture_class + 1;
	state->capture_class = order->capture_class;
	if (order->capture_class == CAPTURE_UNKNOWN) {
		__builtin_memset(state->unknown_bytes, 0, sizeof(state->unknown_bytes));
		__builtin_memset(state->unknown_calls, 0, sizeof(state->unknown_calls));
		state->verdict = 0;
		state->strength = 0;
	}
}

/* The lesser of what the connection asks for and what the load allows. */
static __always_inline __u8 allowed_class(__u8 wanted)
{
	__u32 *limit, key = 0;

	limit = bpf_map_lookup_elem(&limits, &key);
	if (!limit || !limit[0] || wanted >= limit[0])
		return wanted;
	if (wanted == CAPTURE_UNKNOWN && limit[0] == CAPTURE_HEAD_TAIL)
		return wanted; /* not more than that anyhow */
	return limit[0];
}

/* Give up on a connection whose protocol was not found in time. */
static __always_inline void limit_detection(struct socket_state *state, __u32 direction)
{
	if (state->capture_class != CAPTURE_UNKNOWN)
		return;
	if (state->unknown_bytes[direction] >= UNKNOWN_SIZE_MAX ||
	    state->unknown_calls[direction]++ >= UNKNOWN_CALLS_MAX)
		state->capture_class = CAPTURE_OFF;
}

#endif
