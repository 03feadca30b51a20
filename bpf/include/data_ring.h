/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The ring of data, apart from ring.h: an object that writes none of it makes no such ring. */
#ifndef TRACEHOUND_DATA_RING_H
#define TRACEHOUND_DATA_RING_H

#include "ring.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} data SEC(".maps");

#endif
