/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records of calls on their way out: the fixed part and the scratch's pieces behind it. */
#ifndef TRACEHOUND_CALL_OUTPUT_H
#define TRACEHOUND_CALL_OUTPUT_H

#include "call_pieces.h"
#include "data_ring.h"

/* Output a record whose data are those of the scratch; return whether there was room. */
static __always_inline bool output_call(struct call_scratch *scratch, struct record_header *header,
					__u32 fixed)
{
	__u32 size = scratch->at;

	if (size > CALL_DATA_MAX + CALL_PIECE_MAX)
		size = CALL_DATA_MAX + CALL_PIECE_MAX;
	size += fixed;
	header->size = size;
	header->ring_seq = take_ring_sequence(RING_DATA);
	if (!bpf_ringbuf_output(&data, header, size, wake_flags(&data, header->ring_seq, size)))
		return true;
	count_loss(LOSS_RING_FULL, 1);
	return false;
}

#endif
