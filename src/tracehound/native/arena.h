/*
 * Memory for records, under byte budgets. An arena is a run of whole records of one ring, each
 * padded to 8 bytes; it counts against the budget of its stock from its making until its release.
 */
enum stock_id {
	STOCK_LIFECYCLE,
	STOCK_DATA,
	STOCK_STACK,
	STOCK_FACT, /* what the drain itself tells: has no budget, is bounded by how often it is
		       taken */
	STOCKS,
};

struct pool;

struct arena {
	struct arena *next;
	struct pool *pool;
	uint64_t mapped_bytes; /* with this header */
	uint64_t size;	       /* bytes of records */
	uint32_t stock;	       /* enum stock_id */
	uint32_t reserved;
};

struct queue {
	struct arena *first;
	struct arena *last;
};

/* Of one stock, in bytes. */
struct held {
	uint64_t now;
	uint64_t peak;
	uint64_t budget;
};

/* NULL if there is no memory. */
struct pool *pool_new(uint64_t data_budget_bytes, uint64_t lifecycle_budget_bytes);
/* Raises the budget of a stock that had none, or less. */
void pool_allow(struct pool *pool, uint32_t stock, uint64_t budget_bytes);
struct held pool_held(struct pool *pool, uint32_t stock);
/* Unmaps what was released and not used again since the last trim. */
void pool_trim(struct pool *pool);
/* Ends the maker's use; the memory goes with the last arena that is out. */
void pool_close(struct pool *pool);

/* Where `size` bytes can be written at the end of a queue; NULL if the budget or the memory does
 * not allow it. */
uint8_t *queue_room(struct pool *pool, struct queue *queue, uint32_t stock, uint64_t size);
/* Appends all of `from` to `to`. */
void queue_move(struct queue *from, struct queue *to);
void queue_release(struct queue *queue);

uint8_t *arena_data(struct arena *arena);
/* Gives an arena back by the address of its data; from any thread, also after pool_close. */
void arena_release(uint8_t *data);
