/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "arena.h"

enum {
	PAGE_BYTES = 4096,
	ARENA_BYTES = 1 << 20,
	FACT_ARENA_BYTES = 4 * PAGE_BYTES,
	ARENAS_PER_BUDGET = 16, /* at least: a budget is used in steps of an arena */
};

struct stock {
	struct held held;
	uint64_t arena_bytes;
	struct arena
		*spare; /* released, still mapped: new pages cost more than the copy into them */
	uint32_t spares;
	uint32_t idle_spares; /* fewest since the last trim */
};

struct pool {
	pthread_mutex_t lock;
	uint64_t users; /* the maker and every arena */
	struct stock stock[STOCKS];
};

static void init_stock(struct stock *stock, uint64_t budget, uint64_t arena_bytes)
{
	uint64_t most = budget / ARENAS_PER_BUDGET & ~(PAGE_BYTES - 1ull);

	stock->held.budget = budget;
	stock->arena_bytes = arena_bytes < most ? arena_bytes : most;
	if (stock->arena_bytes < PAGE_BYTES)
		stock->arena_bytes = PAGE_BYTES;
}

struct pool *pool_new(uint64_t data_budget_bytes, uint64_t lifecycle_budget_bytes)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pool->users = 1;
	init_stock(&pool->stock[STOCK_LIFECYCLE], lifecycle_budget_bytes, ARENA_BYTES);
	init_stock(&pool->stock[STOCK_DATA], data_budget_bytes, ARENA_BYTES);
	init_stock(&pool->stock[STOCK_FACT], UINT64_MAX / 2, FACT_ARENA_BYTES);
	return pool;
}

void pool_allow(struct pool *pool, uint32_t stock, uint64_t budget_bytes)
{
	pthread_mutex_lock(&pool->lock);
	if (!pool->stock[stock].held.budget)
		init_stock(&pool->stock[stock], budget_bytes, ARENA_BYTES);
	else if (pool->stock[stock].held.budget < budget_bytes)
		pool->stock[stock].held.budget = budget_bytes;
	pthread_mutex_unlock(&pool->lock);
}

struct held pool_held(struct pool *pool, uint32_t stock)
{
	struct held held;

	pthread_mutex_lock(&pool->lock);
	held = pool->stock[stock].held;
	pthread_mutex_unlock(&pool->lock);
	return held;
}

/* Unlocks; frees the pool with its last user. */
static void leave(struct pool *pool)
{
	bool last = !--pool->users;
	struct arena *arena;

	pthread_mutex_unlock(&pool->lock);
	if (!last)
		return;
	for (struct stock *stock = pool->stock; stock < pool->stock + STOCKS; stock++)
		while ((arena = stock->spare)) {
			stock->spare = arena->next;
			munmap(arena, arena->mapped_bytes);
		}
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

void pool_trim(struct pool *pool)
{
	struct arena *arena;

	pthread_mutex_lock(&pool->lock);
	for (struct stock *stock = pool->stock; stock < pool->stock + STOCKS; stock++) {
		for (; stock->idle_spares; stock->idle_spares--) {
			arena = stock->spare;
			stock->spare = arena->next;
			stock->spares--;
			munmap(arena, arena->mapped_bytes);
		}
		stock->idle_spares = stock->spares;
	}
	pthread_mutex_unlock(&pool->lock);
}

void pool_close(struct pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	leave(pool);
}

static struct arena *map_arena(struct stock *stock, uint64_t bytes)
{
	struct arena *arena = stock->spare;

	if (bytes == stock->arena_bytes && arena) {
		stock->spare = arena->next;
		stock->spares--;
		if (stock->spares < stock->idle_spares)
			stock->idle_spares = stock->spares;
		return arena;
	}
	arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return arena == MAP_FAILED ? NULL : arena;
}

static struct arena *new_arena(struct pool *pool, uint32_t stock_id, uint64_t size)
{
	struct stock *stock = &pool->stock[stock_id];
	uint64_t bytes = (size + sizeof(struct arena) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1ull);
	struct arena *arena = NULL;

	if (bytes < stock->arena_bytes)
		bytes = stock->arena_bytes;
	pthread_mutex_lock(&pool->lock);
	if (stock->held.now + bytes <= stock->held.budget)
		arena = map_arena(stock, bytes);
	if (arena) {
		*arena = (struct arena){.pool = pool, .mapped_bytes = bytes, .stock = stock_id};
		pool->users++;
		stock->held.now += bytes;
		if (stock->held.now > stock->held.peak)
			stock->held.peak = stock->held.now;
	}
	pthread_mutex_unlock(&pool->lock);
	return arena;
}

uint8_t *queue_room(struct pool *pool, struct queue *queue, uint32_t stock, uint64_t size)
{
	struct arena *arena = queue->last;
	uint8_t *room;

	if (!arena || arena->mapped_bytes - sizeof(*arena) - arena->size < size) {
		arena = new_arena(pool, stock, size);
		if (!arena)
			return NULL;
		if (queue->last)
			queue->last->next = arena;
		else
			queue->first = arena;
		queue->last = arena;
	}
	room = arena_data(arena) + arena->size;
	arena->size += size;
	return room;
}

void queue_move(struct queue *from, struct queue *to)
{
	if (!from->first)
		return;
	if (to->last)
		to->last->next = from->first;
	else
		to->first = from->first;
	to->last = from->last;
	*from = (struct queue){0};
}

void queue_release(struct queue *queue)
{
	for (struct arena *next, *arena = queue->first; arena; arena = next) {
		next = arena->next;
		arena_release(arena_data(arena));
	}
	*queue = (struct queue){0};
}

uint8_t *arena_data(struct arena *arena)
{
	return (uint8_t *)(arena + 1);
}

void arena_release(uint8_t *data)
{
	struct arena *arena = (struct arena *)(void *)data - 1;
	struct pool *pool = arena->pool;
	struct stock *stock = &pool->stock[arena->stock];

	pthread_mutex_lock(&pool->lock);
	stock->held.now -= arena->mapped_bytes;
	if (arena->mapped_bytes == stock->arena_bytes) {
		arena->next = stock->spare;
		stock->spare = arena;
		stock->spares++;
	} else {
		munmap(arena, arena->mapped_bytes);
	}
	leave(pool);
}
