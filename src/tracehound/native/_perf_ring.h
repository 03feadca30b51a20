/* SPDX-License-Identifier: Apache-2.0 */
/* Reading one perf ring: what drain.c needs beside perf.h. */
#ifndef TRACEHOUND_PERF_RING_H
#define TRACEHOUND_PERF_RING_H

#include "wire.h"

enum {
	PERF_PIECES = 6,
};

struct perf_piece {
	const uint8_t *data;
	uint32_t size;
};

/* An event as the record that it becomes: pieces in a row. They hold until the next one is read. */
struct perf_found {
	union {
		struct record_header header;
		struct call_stack_record stack;
		struct fact_mapping_record mapping;
	};
	struct perf_piece piece[PERF_PIECES];
	uint32_t pieces;
};

struct perf_ring {
	uint64_t *head, *tail;
	const uint8_t *data;
	uint64_t size;
	struct perf_shape shape;
	struct perf_counters counters;
	uint64_t at, published, end; /* of this pass */
	uint8_t *linear;	     /* for an event that wraps */
	uint32_t damages;	     /* passes in a row that ended at one */
	int fd;			     /* -1: in ordinary memory */
	void *pages;
	uint64_t pages_bytes;
};

/* Maps the ring of an event that perf_open made. 0 or -errno. */
int perf_map(struct perf_ring *ring, int fd, uint32_t pages);
void perf_unmap(struct perf_ring *ring);
void perf_begin(struct perf_ring *ring);
/* The next event that becomes a record; false at the end of what was there at perf_begin. */
bool perf_next(struct perf_ring *ring, struct perf_found *found);
void perf_write(const struct perf_found *found, uint8_t *to);
/* Ends its reading for good. */
void perf_fail(struct perf_ring *ring, int error);

#endif
