/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of a ring and of its events: perf_event_open(2) and linux/perf_event.h. A page with the
 * producer's and the consumer's position, then the data; an event that does not fit before its end
 * goes on at its beginning.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <linux/perf_event.h>

#include "perf.h"

#include "_perf_ring.h"

#define PUBLISH_BYTES (64u << 10)
#define EVENT_BYTES_MAX (1u << 16)
#define DAMAGES_MAX 3
#define TRACE_PENDING 2u /* enum trace_mode: from here on a process is one of ours */
#define FORMAT_LOST (1u << 4)
#define SIDEBAND_FIELDS (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU)
#define MISC_MMAP_BUILD_ID (1u << 14)

/* What stands behind side-band. */
struct sample_id {
	uint32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, reserved;
};

struct mmap2 {
	uint32_t pid, tid;
	uint64_t start, length, offset;
	uint32_t device_major, device_minor;
	uint64_t inode, inode_generation;
	uint32_t protection, flags;
};

/* ---- opening ------------------------------------------------------------ */

static void describe(struct perf_event_attr *attr, const struct perf_shape *shape, uint64_t ring)
{
	*attr = (struct perf_event_attr){
		.size = sizeof(*attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_BPF_OUTPUT,
		.sample_period = 1,
		.disabled = 1,
		.watermark = 1,
		.wakeup_watermark = ring / 4,
		.use_clockid = 1, /* as bpf_ktime_get_ns: the default is another clock */
		.clockid = CLOCK_MONOTONIC,
		.read_format = FORMAT_LOST,
	};
	if (shape->is_sideband) {
		attr->config = PERF_COUNT_SW_DUMMY;
		attr->sample_type = SIDEBAND_FIELDS;
		attr->sample_id_all = attr->mmap = attr->mmap2 = 1;
		attr->comm = attr->comm_exec = 1;
		return;
	}
	attr->sample_type = PERF_SAMPLE_RAW;
	if (shape->has_chain) {
		attr->sample_type |= PERF_SAMPLE_CALLCHAIN;
		attr->exclude_callchain_kernel = 1;
	}
	if (shape->registers) {
		attr->sample_type |= PERF_SAMPLE_REGS_USER;
		attr->sample_regs_user = shape->registers;
	}
	if (shape->stack_bytes) {
		attr->sample_type |= PERF_SAMPLE_STACK_USER;
		attr->sample_stack_user = shape->stack_bytes;
	}
}

static int open_event(const struct perf_event_attr *attr, uint32_t cpu)
{
	int fd = syscall(SYS_perf_event_open, attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int perf_open(struct perf_shape *shape, uint32_t cpu, uint32_t pages)
{
	struct perf_event_attr attr;
	int fd;

	describe(&attr, shape, (uint64_t)pages * sysconf(_SC_PAGESIZE));
	fd = open_event(&attr, cpu);
	if (fd == -EINVAL) { /* before 6.0 */
		attr.read_format = 0;
		fd = open_event(&attr, cpu);
	}
	shape->counts_lost = attr.read_format != 0;
	return fd;
}

int perf_enable(int fd)
{
	return ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) ? -errno : 0;
}

int64_t perf_read_lost(int fd)
{
	uint64_t values[2]; /* count, lost */

	return read(fd, values, sizeof(values)) == sizeof(values) ? (int64_t)values[1] : -1;
}

int perf_map(struct perf_ring *ring, int fd, uint32_t pages)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *control;

	ring->pages_bytes = (pages + 1ull) * page;
	ring->pages = mmap(NULL, ring->pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring->pages == MAP_FAILED)
		return -errno;
	control = ring->pages;
	ring->fd = fd;
	ring->head = (uint64_t *)&control->data_head;
	ring->tail = (uint64_t *)&control->data_tail;
	ring->data = (const uint8_t *)ring->pages + page;
	ring->size = (uint64_t)pages * page;
	return 0;
}

void perf_unmap(struct perf_ring *ring)
{
	if (ring->fd >= 0)
		munmap(ring->pages, ring->pages_bytes);
	free(ring->linear);
}

/* ---- events ------------------------------------------------------------- */

/* What is left of an event. */
struct rest {
	const uint8_t *at;
	uint64_t size;
};

/* The next `size` bytes, NULL if there are not so many. */
static const uint8_t *take(struct rest *rest, uint64_t size)
{
	const uint8_t *taken = rest->at;

	if (size > rest->size)
		return NULL;
	rest->at += size;
	rest->size -= size;
	return taken;
}

static bool take_word(struct rest *rest, uint64_t *word)
{
	const uint8_t *at = take(rest, sizeof(*word));

	if (at)
		memcpy(word, at, sizeof(*word));
	return at;
}

static void add_piece(struct perf_found *found, const void *data, uint64_t size)
{
	found->piece[found->pieces++] = (struct perf_piece){data, size};
	found->header.size += size;
}

/* The raw part: what BPF wrote, call_stack_record with its slots, and up to 7 bytes to round up. */
static const uint8_t *take_raw(struct rest *rest, struct call_stack_record *stack)
{
	const uint8_t *at = take(rest, sizeof(uint32_t)), *raw;
	uint64_t own;
	uint32_t size;

	if (!at)
		return NULL;
	memcpy(&size, at, sizeof(size));
	raw = take(rest, size);
	if (!raw || size < sizeof(*stack))
		return NULL;
	memcpy(stack, raw, sizeof(*stack));
	own = sizeof(*stack) + 16ull * stack->slot_count;
	if (own > size || size - own > 7 || stack->header.kind != RECORD_CALL_STACK)
		return NULL;
	return raw + sizeof(*stack);
}

static const uint8_t *take_registers(struct rest *rest, uint64_t mask,
				     struct call_stack_record *stack)
{
	uint64_t abi;

	if (!take_word(rest, &abi) || abi > PERF_SAMPLE_REGS_ABI_64)
		return NULL;
	stack->abi = abi;
	if (abi == PERF_SAMPLE_REGS_ABI_NONE)
		return rest->at;
	stack->register_count = __builtin_popcountll(mask);
	return take(rest, 8ull * stack->register_count);
}

/* Of the copy only what could be read counts: behind it stands what was in the ring before. */
static const uint8_t *take_stack(struct rest *rest, struct call_stack_record *stack)
{
	const uint8_t *copy;
	uint64_t size, readable;

	if (!take_word(rest, &size))
		return NULL;
	if (!size)
		return rest->at;
	copy = take(rest, size);
	if (!copy || !take_word(rest, &readable) || readable > size)
		return NULL;
	stack->stack_size = readable;
	stack->stack_asked = size; /* less than was asked for, if the event had grown too large */
	return copy;
}

static bool read_sample(const struct perf_shape *shape, struct rest rest, struct perf_found *found)
{
	const uint8_t *chain = NULL, *raw, *registers = NULL, *copy = NULL;
	struct call_stack_record *stack = &found->stack;
	uint64_t links = 0;

	if (shape->has_chain) {
		if (!take_word(&rest, &links) || links > EVENT_BYTES_MAX / 8)
			return false;
		chain = take(&rest, 8 * links);
		if (!chain)
			return false;
	}
	raw = take_raw(&rest, stack);
	if (!raw)
		return false;
	stack->abi_registers = shape->registers;
	stack->chain_count = links;
	stack->abi = stack->register_count = stack->stack_size = stack->stack_asked = 0;
	if (shape->registers && !(registers = take_registers(&rest, shape->registers, stack)))
		return false;
	if (shape->stack_bytes && !(copy = take_stack(&rest, stack)))
		return false;
	if (rest.size)
		return false;
	found->pieces = stack->header.size = 0;
	add_piece(found, stack, sizeof(*stack));
	add_piece(found, registers, 8ull * stack->register_count);
	add_piece(found, chain, 8 * links);
	add_piece(found, raw, 16ull * stack->slot_count);
	add_piece(found, copy, stack->stack_size);
	return true;
}

/* Takes what stands at the end of side-band. */
static bool read_identity(struct rest *rest, struct perf_found *found)
{
	struct sample_id id;

	if (rest->size < sizeof(id))
		return false;
	rest->size -= sizeof(id);
	memcpy(&id, rest->at + rest->size, sizeof(id));
	memset(&found->mapping, 0, sizeof(found->mapping));
	found->header.time_ns = id.time_ns;
	found->header.pid = id.pid;
	found->header.tid = id.tid;
	found->header.cpu = id.cpu;
	found->header.kind = RECORD_FACT_MAPPING;
	found->pieces = 0;
	add_piece(found, &found->mapping, sizeof(found->mapping));
	return true;
}

static bool read_mapping(const struct perf_event_header *header, struct rest rest,
			 struct perf_found *found)
{
	struct fact_mapping_record *mapping = &found->mapping;
	struct mmap2 map;
	const uint8_t *at;

	if (!read_identity(&rest, found) || !(at = take(&rest, sizeof(map))))
		return false;
	memcpy(&map, at, sizeof(map));
	mapping->start = map.start;
	mapping->end = map.start + map.length;
	mapping->offset = map.offset;
	mapping->protection = map.protection;
	if (!(header->misc & MISC_MMAP_BUILD_ID)) {
		mapping->inode = map.inode;
		mapping->inode_generation = map.inode_generation;
		mapping->device_major = map.device_major;
		mapping->device_minor = map.device_minor;
		mapping->flags = MAPPING_GENERATION;
	}
	mapping->path_size = strnlen((const char *)rest.at, rest.size);
	if (mapping->path_size == rest.size)
		return false;
	add_piece(found, rest.at, mapping->path_size);
	return mapping->end >= mapping->start;
}

/* An exec: its new mappings come next. */
static bool read_exec(struct rest rest, struct perf_found *found)
{
	if (!read_identity(&rest, found))
		return false;
	found->mapping.flags = MAPPING_FIRST;
	return true;
}

static bool is_ours(const struct perf_shape *shape, uint32_t pid)
{
	uint32_t value = 0;

	if (shape->traced_fd < 0)
		return true;
	if (!bpf_map_lookup_elem(shape->traced_fd, &pid, &value) && value >= TRACE_PENDING)
		return true;
	return shape->seen_fd >= 0 && !bpf_map_lookup_elem(shape->seen_fd, &pid, &value);
}

/* Keeps what a record says was lost; false if it is none that says so. */
static bool note_lost(struct perf_ring *ring, const struct perf_event_header *header,
		      struct rest rest)
{
	uint64_t id, lost;

	if (header->type != PERF_RECORD_LOST && header->type != PERF_RECORD_LOST_SAMPLES)
		return false;
	if ((header->type == PERF_RECORD_LOST && !take_word(&rest, &id)) ||
	    !take_word(&rest, &lost))
		ring->counters.malformed++;
	else
		ring->counters.lost += lost;
	return true;
}

/* Makes a record of an event; false: it becomes none, which is counted. */
static bool read_event(struct perf_ring *ring, const uint8_t *event, struct perf_found *found)
{
	const struct perf_event_header *header = (const void *)event;
	struct rest rest = {event + sizeof(*header), header->size - sizeof(*header)};
	bool is_exec =
		header->type == PERF_RECORD_COMM && header->misc & PERF_RECORD_MISC_COMM_EXEC;
	bool is_well;

	if (note_lost(ring, header, rest))
		return false;
	if (!ring->shape.is_sideband && header->type == PERF_RECORD_SAMPLE) {
		is_well = read_sample(&ring->shape, rest, found);
	} else if (ring->shape.is_sideband && (header->type == PERF_RECORD_MMAP2 || is_exec)) {
		is_well = is_exec ? read_exec(rest, found) : read_mapping(header, rest, found);
		if (is_well && !is_ours(&ring->shape, found->header.pid)) {
			ring->counters.passed_over++;
			return false;
		}
	} else {
		ring->counters.passed_over++;
		return false;
	}
	if (is_well)
		ring->counters.records++;
	else
		ring->counters.malformed++;
	return is_well;
}

void perf_write(const struct perf_found *found, uint8_t *to)
{
	for (uint32_t i = 0; i < found->pieces; i++) {
		if (found->piece[i].size)
			memcpy(to, found->piece[i].data, found->piece[i].size);
		to += found->piece[i].size;
	}
}

/* ---- the ring ----------------------------------------------------------- */

void perf_fail(struct perf_ring *ring, int error)
{
	ring->counters.error = error;
}

/* The rest of the ring cannot be told apart: it is left out. When that lasts, so is the ring. */
static void skip_to_end(struct perf_ring *ring)
{
	ring->counters.malformed++;
	ring->at = ring->end;
	if (++ring->damages >= DAMAGES_MAX)
		perf_fail(ring, EBADMSG);
}

void perf_begin(struct perf_ring *ring)
{
	ring->at = ring->published = __atomic_load_n(ring->tail, __ATOMIC_RELAXED);
	ring->end = __atomic_load_n(ring->head, __ATOMIC_ACQUIRE);
	if (ring->end - ring->at > ring->size || (ring->at | ring->end) & 7)
		skip_to_end(ring);
	if (ring->end - ring->at > ring->counters.peak_bytes)
		ring->counters.peak_bytes = ring->end - ring->at;
}

/* The event at `at` in one piece, NULL if its size cannot be. */
static const uint8_t *stand(struct perf_ring *ring)
{
	uint64_t offset = ring->at % ring->size, whole = ring->size - offset;
	struct perf_event_header header;

	/* events are multiples of 8, and so is where they begin: a header never wraps */
	memcpy(&header, ring->data + offset, sizeof(header));
	if (header.size < sizeof(header) || header.size & 7 || header.size > ring->end - ring->at)
		return NULL;
	ring->at += header.size;
	if (header.size <= whole)
		return ring->data + offset;
	memcpy(ring->linear, ring->data + offset, whole);
	memcpy(ring->linear + whole, ring->data, header.size - whole);
	return ring->linear;
}

static void publish(struct perf_ring *ring)
{
	__atomic_store_n(ring->tail, ring->at, __ATOMIC_RELEASE);
	ring->published = ring->at;
}

bool perf_next(struct perf_ring *ring, struct perf_found *found)
{
	const uint8_t *event;

	while (ring->at != ring->end) {
		if (ring->at - ring->published >= PUBLISH_BYTES)
			publish(ring);
		event = stand(ring);
		if (!event) {
			skip_to_end(ring);
			break;
		}
		ring->damages = 0;
		if (read_event(ring, event, found))
			return true;
	}
	publish(ring);
	return false;
}
