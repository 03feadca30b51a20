// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Watched addresses: run by hardware breakpoints of the target's threads, in the thread that
 * read, wrote or ran the place.
 */
#include "call_signal.h"
#include "call_stack.h"
#include "call_turn.h"
#include "data_ring.h"
#include "watch.h"

static __always_inline long read_value(__u64 *value, const struct watch_point *point, __u64 address)
{
	__u32 size = point->size_bytes;

	if (size > sizeof(*value))
		return -1;
	if (point->is_kernel)
		return bpf_probe_read_kernel(value, size, (void *)address);
	return bpf_probe_read_user(value, size, (void *)address);
}

/* Fill in the value before and now, keep it. False: the access is of no interest. */
static __always_inline bool compare_values(struct call_watch_record *record,
					   const struct watch_point *point)
{
	struct watch_place place = {.address = record->address, .tgid = record->header.pid};
	__u64 *before;

	if (!point->size_bytes)
		return true;
	if (point->is_kernel)
		place.tgid = 0;
	before = bpf_map_lookup_elem(&watch_values, &place);
	if (before) {
		record->old_value = *before;
		record->known |= WATCH_OLD_VALUE;
	}
	if (read_value(&record->new_value, point, record->address))
		return true;
	record->known |= WATCH_NEW_VALUE;
	bpf_map_update_elem(&watch_values, &place, &record->new_value, BPF_ANY);
	return !point->only_reads || !before || record->old_value == record->new_value;
}

/* False: there were too many in this second. */
static __always_inline bool is_within_rate(struct watch_state *state, __u64 now_ns)
{
	if (now_ns - state->second_ns >= WATCH_SECOND_NS) {
		state->second_ns = now_ns;
		state->in_second = 0;
	}
	if (!state->is_over && __sync_fetch_and_add(&state->in_second, 1) < config_watch_rate)
		return true;
	state->is_over = 1;
	__sync_fetch_and_add(&state->suppressed, 1);
	return false;
}

static __always_inline void emit_watch(void *context, struct call_watch_record *record,
				       const struct task_struct *task, struct watch_state *state)
{
	record->header.ring_seq = take_ring_sequence(RING_DATA);
	if (bpf_ringbuf_output(&data, record, sizeof(*record),
			       wake_flags(&data, record->header.ring_seq, sizeof(*record)))) {
		count_loss(LOSS_RING_FULL, 1);
		__sync_fetch_and_add(&state->lost, 1);
		return;
	}
	if (config_call_stacks)
		output_stack(context, task, record->call, record->header.time_ns, record->point);
}

SEC("perf_event")
int on_watch(struct watch_context *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call_watch_record record = {.address = context->address};
	struct watch_point *point = bpf_map_lookup_elem(&watch_points, &record.address);
	struct watch_state *state;

	if (!point)
		return 0;
	state = bpf_map_lookup_elem(&watch_states, &point->slot);
	if (!state)
		return 0;
	fill_header(&record.header, bpf_ktime_get_ns(), RECORD_CALL_WATCH, sizeof(record),
		    task->tgid, task->pid);
	if (!compare_values(&record, point))
		return 0;
	__sync_fetch_and_add(&state->hits, 1);
	if (!is_within_rate(state, record.header.time_ns))
		return 0;
	record.call = take_call();
	record.ip = WATCH_IP(context);
	record.sp = WATCH_SP(context);
	record.bp = WATCH_BP(context);
	record.point = point->point;
	record.size_bytes = point->size_bytes;
	emit_watch(context, &record, task, state);
	signal_target();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
