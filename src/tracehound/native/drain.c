/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring layout: Documentation/bpf/ringbuf.rst and kernel/bpf/ringbuf.c. A page with the consumer's
 * position, a page with the producer's, then the data, mapped twice in a row so that no record
 * wraps. A record is a word (length and two flags), a word that is the kernel's own, and the bytes,
 * padded to 8.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#include "arena.h"
#include "perf.h"
#include "drain.h"

#include "_perf_ring.h"

#define RING_BUSY (1u << 31)
#define RING_DISCARD (1u << 30)
#define RING_HEADER 8u
#define PUBLISH_BYTES (64u << 10) /* the producer gets its room back in pieces of this */
#define MAX_RINGS 8
#define CPUS (1u << 16) /* all that header.cpu can say */
#define TICK_NS 20000000ull
#define RELAX_NS 1000000000ull
#define TRIM_NS 1000000000ull

/* What was thrown away of one CPU and is not told yet. */
struct drop {
	uint64_t count, first_seq, last_seq, first_ns, last_ns;
	uint32_t next; /* CPU + 1 of the next in the ring's list */
	bool listed;
};

struct ring {
	uint64_t *consumer, *producer;
	const uint8_t *data;
	uint64_t size;
	uint32_t id, stock;
	struct ring_counters *counters;
	struct queue queue;
	bool dropping;
	struct drop *drops; /* by CPU */
	uint32_t listed_drops, open_drops;
	int fd;				      /* -1: in ordinary memory */
	void *consumer_page, *producer_pages; /* what to unmap */
	bool is_group;			      /* of perf rings: all above but the queue is unused */
	struct perf_ring *perf;
	uint32_t perfs;
};

struct drain {
	pthread_mutex_t lock; /* of all below */
	struct pool *pool;
	struct ring ring[MAX_RINGS];
	uint32_t rings;
	struct queue facts;
	uint64_t fact_seq;
	uint64_t complete_ns; /* start of the last pass that read all rings to their ends */
	uint64_t tick_ns, take_ns, trim_ns;
	uint32_t *limits, limit;
	uint64_t limit_ns, low_ns;
	struct drain_counters counters;
	int wake_fd, stop_fd, epoll_fd, period_ms;
	bool signalled, running;
	pthread_t thread;
};

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* ---- facts -------------------------------------------------------------- */

/* A zeroed record of the fact stream with its header filled, or NULL if there is no memory. */
static void *add_fact(struct drain *drain, uint32_t kind, uint32_t cpu, uint32_t size,
		      uint64_t time_ns)
{
	struct record_header *header =
		(void *)queue_room(drain->pool, &drain->facts, STOCK_FACT, size);

	if (!header)
		return NULL;
	memset(header, 0, size);
	header->time_ns = time_ns;
	header->size = size;
	header->kind = kind;
	header->cpu = cpu;
	header->ring_seq = drain->fact_seq++;
	return header;
}

static void list_drop(struct ring *ring, uint32_t cpu)
{
	ring->drops[cpu].listed = true;
	ring->drops[cpu].next = ring->listed_drops;
	ring->listed_drops = cpu + 1;
}

static void tell_drop(struct drain *drain, struct ring *ring, uint32_t cpu)
{
	struct drop *drop = &ring->drops[cpu];
	struct fact_drop_record *fact =
		add_fact(drain, RECORD_FACT_DROP, cpu, sizeof(*fact), drop->last_ns);

	if (!fact)
		return;
	fact->first_seq = drop->first_seq;
	fact->last_seq = drop->last_seq;
	fact->count = drop->count;
	fact->first_ns = drop->first_ns;
	fact->last_ns = drop->last_ns;
	fact->ring = ring->id;
	fact->counter = LOSS_BACKLOG_FULL;
	drop->count = 0;
	ring->open_drops--;
}

/* Before each tick, so that what it says holds: delivered, or told as lost. */
static void tell_drops(struct drain *drain, struct ring *ring)
{
	uint32_t cpu, next = ring->listed_drops;

	ring->listed_drops = 0;
	while (next) {
		cpu = next - 1;
		next = ring->drops[cpu].next;
		ring->drops[cpu].listed = false;
		if (ring->drops[cpu].count)
			tell_drop(drain, ring, cpu);
		if (ring->drops[cpu].count) /* no memory: next time */
			list_drop(ring, cpu);
	}
}

/* ---- overload ----------------------------------------------------------- */

static void set_limit(struct drain *drain, uint32_t limit, uint64_t now_ns)
{
	struct fact_loss_record *fact = add_fact(drain, RECORD_FACT_LOSS, 0, sizeof(*fact), now_ns);

	if (fact) {
		fact->count = 1;
		fact->first_ns = drain->limit ? drain->limit_ns
					      : now_ns; /* since when the step now left held */
		fact->last_ns = now_ns;
		fact->counter = LOSS_CAPTURE_LIMITED;
	}
	drain->limit = limit;
	drain->limit_ns = now_ns;
	drain->counters.capture_limit = limit;
	drain->counters.capture_limit_changes++;
	if (drain->limits)
		__atomic_store_n(drain->limits, limit, __ATOMIC_RELAXED);
}

/* Less is captured from half of the budget on; steps are taken back one at a time after a second
 * below a quarter. */
static void update_limit(struct drain *drain, uint64_t now_ns)
{
	struct held held = pool_held(drain->pool, STOCK_DATA);
	uint32_t wanted = 0;

	if (held.now >= held.budget / 4 * 3)
		wanted = CAPTURE_COUNT;
	else if (held.now >= held.budget / 2)
		wanted = CAPTURE_HEAD_TAIL;
	if (wanted > drain->limit)
		set_limit(drain, wanted, now_ns);
	if (!drain->limit || held.now >= held.budget / 4) {
		drain->low_ns = 0;
	} else if (!drain->low_ns) {
		drain->low_ns = now_ns;
	} else if (now_ns - drain->low_ns >= RELAX_NS) {
		set_limit(drain, drain->limit == CAPTURE_COUNT ? CAPTURE_HEAD_TAIL : 0, now_ns);
		drain->low_ns = now_ns;
	}
}

static void drop_record(struct ring *ring, const struct record_header *header, uint64_t size)
{
	struct drop *drop = &ring->drops[header->cpu];

	ring->counters->dropped_records++;
	ring->counters->dropped_bytes += size;
	if (!drop->count++) {
		ring->open_drops++;
		drop->first_seq = drop->last_seq = header->ring_seq;
		drop->first_ns = drop->last_ns = header->time_ns;
		if (!drop->listed)
			list_drop(ring, header->cpu);
		return;
	}
	/* records of one CPU may enter the ring out of order */
	if (header->ring_seq < drop->first_seq)
		drop->first_seq = header->ring_seq;
	if (header->ring_seq > drop->last_seq)
		drop->last_seq = header->ring_seq;
	if (header->time_ns < drop->first_ns)
		drop->first_ns = header->time_ns;
	if (header->time_ns > drop->last_ns)
		drop->last_ns = header->time_ns;
}

/* ---- reading ------------------------------------------------------------ */

static void count_kept(struct ring *ring, uint64_t size)
{
	ring->counters->records++;
	ring->counters->bytes += size;
}

/*
 * Where a record can be written, NULL if it is dropped.
 *
 * When the budget is used up the newest records are dropped, and all of them until a quarter of the
 * budget is free: one long gap instead of many short ones (a gap costs every connection in it). The
 * newest, because arenas that were taken cannot be dropped, because what waits then follows what
 * was delivered without a gap, and because a dropped record is not copied: the drain is cheapest
 * when there is most to do.
 */
static uint8_t *room_for(struct drain *drain, struct ring *ring, const struct record_header *header,
			 uint64_t padded)
{
	uint8_t *room = NULL;

	if (!ring->dropping)
		room = queue_room(drain->pool, &ring->queue, ring->stock, padded);
	if (!room) {
		ring->dropping = true;
		if (header->kind >> 8 == ring->id)
			drop_record(ring, header, padded);
		return NULL;
	}
	if (ring->open_drops && ring->drops[header->cpu].count)
		tell_drop(drain, ring, header->cpu);
	memset(room + padded - 8, 0,
	       8); /* a tape shall not keep what happened to stand behind the record */
	count_kept(ring, padded);
	return room;
}

static void read_record(struct drain *drain, struct ring *ring, const uint8_t *record,
			uint32_t length)
{
	const struct record_header *header = (const void *)record;
	uint8_t *room;

	if (length < sizeof(*header) || header->size < sizeof(*header) || header->size > length) {
		drain->counters.damaged++;
		return;
	}
	room = room_for(drain, ring, header, ((uint64_t)header->size + 7) & ~7ull);
	if (room)
		memcpy(room, record, header->size);
}

static void read_perf(struct drain *drain, struct ring *group, struct perf_ring *perf)
{
	struct perf_found found;
	uint8_t *room;

	if (perf->counters.error)
		return;
	perf_begin(perf);
	if (perf->counters.peak_bytes > group->counters->ring_peak_bytes)
		group->counters->ring_peak_bytes = perf->counters.peak_bytes;
	while (perf_next(perf, &found)) {
		if (found.header.kind >> 8 == RING_FACT)
			found.header.ring_seq = drain->fact_seq++;
		room = room_for(drain, group, &found.header,
				((uint64_t)found.header.size + 7) & ~7ull);
		if (room)
			perf_write(&found, room);
		else if (found.header.kind >> 8 != group->id)
			perf->counters.dropped++;
	}
}

/* Reads a ring up to where its producer is now; false if a record on the way is still being
 * written. */
static bool read_ring(struct drain *drain, struct ring *ring)
{
	uint64_t at = __atomic_load_n(ring->consumer, __ATOMIC_RELAXED), published = at, step;
	uint64_t end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
	const uint8_t *record;
	uint32_t word;

	if (end - at > ring->size || (at | end) & 7) {
		drain->counters.damaged++;
		at = end;
	}
	if (end - at > ring->counters->ring_peak_bytes)
		ring->counters->ring_peak_bytes = end - at;
	while (at != end) {
		record = ring->data + (at & (ring->size - 1));
		word = __atomic_load_n((const uint32_t *)(const void *)record, __ATOMIC_ACQUIRE);
		if (word & RING_BUSY)
			break;
		step = ((uint64_t)(word & ~RING_DISCARD) + RING_HEADER + 7) & ~7ull;
		if (step > end - at) {
			drain->counters.damaged++;
			at = end;
			break;
		}
		if (word & RING_DISCARD)
			drain->counters.discarded++;
		else
			read_record(drain, ring, record + RING_HEADER, word);
		at += step;
		if (at - published >= PUBLISH_BYTES) {
			__atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
			published = at;
		}
	}
	__atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
	return at == end;
}

/* Wakes the taker when an arena is full, or when something waits and nobody took for a tick. */
static void wake(struct drain *drain, uint64_t now_ns)
{
	bool waiting = drain->facts.first, full = false;
	uint64_t one = 1;

	for (struct ring *ring = drain->ring; ring < drain->ring + drain->rings; ring++) {
		waiting |= ring->queue.first || ring->open_drops;
		full |= ring->queue.first != ring->queue.last;
	}
	if (!drain->signalled && waiting && (full || now_ns - drain->take_ns >= TICK_NS))
		drain->signalled = write(drain->wake_fd, &one, sizeof(one)) == sizeof(one);
}

void drain_pass(struct drain *drain, uint64_t now_ns)
{
	bool complete = true;
	struct held held;

	pthread_mutex_lock(&drain->lock);
	if (!now_ns)
		now_ns = clock_ns();
	for (struct ring *ring = drain->ring; ring < drain->ring + drain->rings; ring++) {
		if (ring->dropping) {
			held = pool_held(drain->pool, ring->stock);
			ring->dropping = held.now > held.budget / 4 * 3;
		}
		for (uint32_t i = 0; i < ring->perfs; i++)
			read_perf(drain, ring, &ring->perf[i]);
		if (!ring->is_group)
			complete &= read_ring(drain, ring);
	}
	drain->counters.passes++;
	if (complete)
		drain->complete_ns = now_ns;
	else
		drain->counters.busy_passes++;
	update_limit(drain, now_ns);
	if (now_ns - drain->trim_ns >= TRIM_NS) {
		pool_trim(drain->pool);
		drain->trim_ns = now_ns;
	}
	wake(drain, now_ns);
	pthread_mutex_unlock(&drain->lock);
}

/* ---- taking ------------------------------------------------------------- */

struct arena *drain_take(struct drain *drain)
{
	struct ring *ring, *end = drain->ring + drain->rings;
	struct queue taken = {0};
	uint64_t signals;

	pthread_mutex_lock(&drain->lock);
	for (uint32_t stock = 0; stock < STOCKS; stock++)
		for (ring = drain->ring; ring < end; ring++)
			if (ring->stock == stock)
				queue_move(&ring->queue, &taken);
	for (ring = drain->ring; ring < end; ring++)
		tell_drops(drain, ring);
	if (drain->complete_ns > drain->tick_ns &&
	    (taken.first || drain->facts.first || drain->complete_ns - drain->tick_ns >= TICK_NS) &&
	    add_fact(drain, RECORD_FACT_TICK, 0, sizeof(struct fact_tick_record),
		     drain->complete_ns))
		drain->tick_ns = drain->complete_ns;
	queue_move(&drain->facts, &taken);
	drain->take_ns = clock_ns();
	if (drain->signalled)
		drain->signalled =
			read(drain->wake_fd, &signals, sizeof(signals)) != sizeof(signals);
	pthread_mutex_unlock(&drain->lock);
	return taken.first;
}

static void count_held(struct drain *drain, uint32_t stock, struct ring_counters *counters)
{
	struct held held = pool_held(drain->pool, stock);

	counters->held_bytes = held.now;
	counters->held_peak_bytes = held.peak;
}

void drain_read_counters(struct drain *drain, struct drain_counters *out)
{
	pthread_mutex_lock(&drain->lock);
	*out = drain->counters;
	pthread_mutex_unlock(&drain->lock);
	count_held(drain, STOCK_LIFECYCLE, &out->lifecycle);
	count_held(drain, STOCK_DATA, &out->data);
	count_held(drain, STOCK_STACK, &out->stack);
}

/* ---- set-up, thread, end ------------------------------------------------ */

struct drain *drain_new(uint64_t budget_bytes, uint64_t lifecycle_budget_bytes, int wake_fd)
{
	struct drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return NULL;
	drain->pool = pool_new(budget_bytes, lifecycle_budget_bytes);
	if (!drain->pool) {
		free(drain);
		return NULL;
	}
	pthread_mutex_init(&drain->lock, NULL);
	drain->wake_fd = wake_fd;
	drain->stop_fd = drain->epoll_fd = -1;
	return drain;
}

static int add_ring(struct drain *drain, const struct ring *given)
{
	struct ring *ring = &drain->ring[drain->rings];

	if (drain->rings == MAX_RINGS)
		return -EINVAL;
	if (!given->is_group && (given->size < 8 || given->size & (given->size - 1)))
		return -EINVAL;
	*ring = *given;
	ring->stock = given->is_group		   ? STOCK_STACK
		      : ring->id == RING_LIFECYCLE ? STOCK_LIFECYCLE
						   : STOCK_DATA;
	ring->counters = given->is_group	      ? &drain->counters.stack
			 : ring->id == RING_LIFECYCLE ? &drain->counters.lifecycle
						      : &drain->counters.data;
	ring->drops = calloc(
		CPUS, sizeof(*ring->drops)); /* pages of CPUs that lose nothing are never made */
	if (!ring->drops)
		return -ENOMEM;
	drain->rings++;
	return 0;
}

int drain_add_memory(struct drain *drain, uint64_t *consumer, uint64_t *producer,
		     const uint8_t *data, uint64_t size_bytes, uint32_t id)
{
	struct ring ring = {.data = data, .size = size_bytes, .id = id, .fd = -1};
	int error;

	ring.consumer = consumer;
	ring.producer = producer;
	pthread_mutex_lock(&drain->lock);
	error = add_ring(drain, &ring);
	pthread_mutex_unlock(&drain->lock);
	return error;
}

static int watch(struct drain *drain, int fd)
{
	/* edge: the kernel side submits without waking and forces a wake at half full; only those
	 * are to be seen */
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};

	if (!epoll_ctl(drain->epoll_fd, EPOLL_CTL_ADD, fd, &event) ||
	    errno == EPERM) /* a file: the period alone */
		return 0;
	return -errno;
}

int drain_add_ring(struct drain *drain, int fd, uint64_t size_bytes, uint32_t id)
{
	struct ring ring = {.size = size_bytes, .id = id, .fd = fd};
	size_t page = sysconf(_SC_PAGESIZE);
	int error;

	ring.consumer_page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ring.producer_pages = mmap(NULL, page + 2 * size_bytes, PROT_READ, MAP_SHARED, fd, page);
	error = -errno;
	if (ring.consumer_page != MAP_FAILED && ring.producer_pages != MAP_FAILED) {
		ring.consumer = ring.consumer_page;
		ring.producer = ring.producer_pages;
		ring.data = (const uint8_t *)ring.producer_pages + page;
		pthread_mutex_lock(&drain->lock);
		error = drain->running ? watch(drain, fd) : 0;
		if (!error)
			error = add_ring(drain, &ring);
		pthread_mutex_unlock(&drain->lock);
	}
	if (!error)
		return 0;
	if (ring.consumer_page != MAP_FAILED)
		munmap(ring.consumer_page, page);
	if (ring.producer_pages != MAP_FAILED)
		munmap(ring.producer_pages, page + 2 * size_bytes);
	return error;
}

/* ---- perf rings --------------------------------------------------------- */

int drain_add_group(struct drain *drain, uint64_t budget_bytes, uint32_t id)
{
	struct ring ring = {.id = id, .fd = -1, .is_group = true};
	int error;

	pthread_mutex_lock(&drain->lock);
	pool_allow(drain->pool, STOCK_STACK, budget_bytes);
	error = add_ring(drain, &ring);
	pthread_mutex_unlock(&drain->lock);
	return error ? error : (int)drain->rings - 1;
}

static int add_perf(struct drain *drain, uint32_t group_at, struct perf_ring *given)
{
	struct ring *group = &drain->ring[group_at];
	struct perf_ring *more;

	if (group_at >= drain->rings || !group->is_group)
		return -EINVAL;
	given->linear = malloc(1 << 16);
	more = realloc(group->perf, (group->perfs + 1) * sizeof(*more));
	if (more)
		group->perf = more;
	if (!more || !given->linear)
		return -ENOMEM;
	more[group->perfs++] = *given;
	return 0;
}

int drain_add_perf_memory(struct drain *drain, uint32_t group, uint64_t *head, uint64_t *tail,
			  const uint8_t *data, uint64_t size_bytes, const struct perf_shape *shape)
{
	struct perf_ring ring = {.data = data, .size = size_bytes, .shape = *shape, .fd = -1};
	int error;

	ring.head = head;
	ring.tail = tail;
	pthread_mutex_lock(&drain->lock);
	error = add_perf(drain, group, &ring);
	pthread_mutex_unlock(&drain->lock);
	if (error)
		free(ring.linear);
	return error;
}

int drain_add_perf(struct drain *drain, uint32_t group, int fd, uint32_t pages, uint32_t cpu,
		   const struct perf_shape *shape)
{
	struct perf_ring ring = {.shape = *shape, .counters.cpu = cpu, .fd = -1};
	int error = perf_map(&ring, fd, pages);

	if (error)
		return error;
	pthread_mutex_lock(&drain->lock);
	error = drain->running ? watch(drain, fd) : 0;
	if (!error)
		error = add_perf(drain, group, &ring);
	pthread_mutex_unlock(&drain->lock);
	if (error)
		perf_unmap(&ring);
	return error;
}

int drain_read_perf(struct drain *drain, uint32_t group, uint32_t number, struct perf_counters *out)
{
	int error = -ENOENT;

	pthread_mutex_lock(&drain->lock);
	if (group < drain->rings && number < drain->ring[group].perfs) {
		*out = drain->ring[group].perf[number].counters;
		error = 0;
	}
	pthread_mutex_unlock(&drain->lock);
	return error;
}

/* Ends the reading of a perf ring whose event is no more. */
static void fail_perf(struct drain *drain, int fd)
{
	pthread_mutex_lock(&drain->lock);
	for (uint32_t i = 0; i < drain->rings; i++)
		for (uint32_t j = 0; j < drain->ring[i].perfs; j++)
			if (drain->ring[i].perf[j].fd == fd)
				perf_fail(&drain->ring[i].perf[j], ENODEV);
	pthread_mutex_unlock(&drain->lock);
}

int drain_map_limits(struct drain *drain, int fd)
{
	uint32_t *limits =
		mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (limits == MAP_FAILED)
		return -errno;
	pthread_mutex_lock(&drain->lock);
	drain->limits = limits;
	__atomic_store_n(limits, drain->limit, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&drain->lock);
	return 0;
}

static void *run(void *argument)
{
	struct drain *drain = argument;
	struct epoll_event events[MAX_RINGS + 1];
	bool stop = false;
	int count;

	while (!stop) {
		drain_pass(drain, 0);
		count = epoll_wait(drain->epoll_fd, events, MAX_RINGS + 1, drain->period_ms);
		for (int i = 0; i < count; i++) {
			stop |= events[i].data.fd == drain->stop_fd;
			if (events[i].events & (EPOLLHUP | EPOLLERR)) {
				drain_pass(drain, 0);
				fail_perf(drain, events[i].data.fd);
			}
		}
	}
	return NULL;
}

int drain_start(struct drain *drain, uint32_t period_us)
{
	sigset_t all, before;
	int error;

	drain->period_ms = period_us < 1000 ? 1 : period_us / 1000;
	drain->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	drain->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (drain->epoll_fd < 0 || drain->stop_fd < 0)
		return -errno;
	error = watch(drain, drain->stop_fd);
	for (uint32_t i = 0; !error && i < drain->rings; i++) {
		if (drain->ring[i].fd >= 0)
			error = watch(drain, drain->ring[i].fd);
		for (uint32_t j = 0; !error && j < drain->ring[i].perfs; j++)
			if (drain->ring[i].perf[j].fd >= 0)
				error = watch(drain, drain->ring[i].perf[j].fd);
	}
	if (error)
		return error;
	sigfillset(&all); /* signals are for Python's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(&drain->thread, NULL, run, drain);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	drain->running = !error;
	if (!error)
		pthread_setname_np(drain->thread, "hound-drain");
	return error;
}

void drain_stop(struct drain *drain)
{
	uint64_t one = 1;

	if (drain->running) {
		while (write(drain->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
		pthread_join(drain->thread, NULL);
		drain->running = false;
		drain_pass(drain, 0);
	}
	if (drain->stop_fd >= 0)
		close(drain->stop_fd);
	if (drain->epoll_fd >= 0)
		close(drain->epoll_fd);
	drain->stop_fd = drain->epoll_fd = -1;
}

void drain_free(struct drain *drain)
{
	size_t page = sysconf(_SC_PAGESIZE);

	drain_stop(drain);
	for (struct ring *ring = drain->ring; ring < drain->ring + drain->rings; ring++) {
		queue_release(&ring->queue);
		free(ring->drops);
		for (uint32_t i = 0; i < ring->perfs; i++)
			perf_unmap(&ring->perf[i]);
		free(ring->perf);
		if (ring->fd >= 0) {
			munmap(ring->consumer_page, page);
			munmap(ring->producer_pages, page + 2 * ring->size);
		}
	}
	queue_release(&drain->facts);
	if (drain->limits)
		munmap(drain->limits, page);
	pool_close(drain->pool);
	pthread_mutex_destroy(&drain->lock);
	free(drain);
}
