/*
 * The drain: a thread that copies records out of kernel rings into arenas and never waits for
 * Python. Whoever takes an arena releases it. All that can fail returns 0 or -errno.
 */
struct drain;

/* Records of the rings that share a budget. */
struct ring_counters {
	uint64_t records; /* kept */
	uint64_t bytes;
	uint64_t dropped_records; /* the budget was used up */
	uint64_t dropped_bytes;
	uint64_t ring_peak_bytes; /* most that a pass found in a ring */
	uint64_t held_bytes;	  /* now: waiting, or taken and not released */
	uint64_t held_peak_bytes;
};

struct drain_counters {
	struct ring_counters lifecycle;
	struct ring_counters data;
	struct ring_counters stack; /* of all groups of perf rings */
	uint64_t passes;
	uint64_t busy_passes;	/* ended at a record still being written */
	uint64_t discarded;	/* records that the kernel side reserved and gave back */
	uint64_t damaged;	/* records, or whole rings, of sizes that cannot be */
	uint64_t capture_limit; /* now: enum capture_class, 0 = none */
	uint64_t capture_limit_changes;
};

/* wake_fd: an eventfd, written when something waits; stays the caller's. NULL if there is no
 * memory. */
struct drain *drain_new(uint64_t budget_bytes, uint64_t lifecycle_budget_bytes, int wake_fd);
/* Before or after the start; `fd` stays the caller's, `ring` is of enum ring_id. */
int drain_add_ring(struct drain *drain, int fd, uint64_t size_bytes, uint32_t ring);
/* The same of a ring in ordinary memory: `data` holds it twice in a row, as the kernel maps it. */
int drain_add_memory(struct drain *drain, uint64_t *consumer, uint64_t *producer,
		     const uint8_t *data, uint64_t size_bytes, uint32_t ring);
/* A group of perf rings, one a CPU, whose records share the budget of stacks. Its number or -errno.
 */
int drain_add_group(struct drain *drain, uint64_t budget_bytes, uint32_t ring);
/* Adds the ring of an event that perf_open made; `fd` stays the caller's. */
int drain_add_perf(struct drain *drain, uint32_t group, int fd, uint32_t pages, uint32_t cpu,
		   const struct perf_shape *shape);
/* The same of one in ordinary memory. */
int drain_add_perf_memory(struct drain *drain, uint32_t group, uint64_t *head, uint64_t *tail,
			  const uint8_t *data, uint64_t size_bytes, const struct perf_shape *shape);
/* Counters of the n-th ring of a group; -ENOENT if there is none. */
int drain_read_perf(struct drain *drain, uint32_t group, uint32_t number,
		    struct perf_counters *out);
/* A mmapable array of u32 whose first word becomes the capture limit. */
int drain_map_limits(struct drain *drain, int fd);
int drain_start(struct drain *drain, uint32_t period_us);
/* Reads every ring once; the thread calls it each period. now_ns: CLOCK_MONOTONIC, 0 = read the
 * clock. */
void drain_pass(struct drain *drain, uint64_t now_ns);
/* All that waits: lifecycle, then data, then facts with the tick last. A list, or NULL. */
struct arena *drain_take(struct drain *drain);
void drain_read_counters(struct drain *drain, struct drain_counters *out);
/* One last pass, then ends the thread; what waits can still be taken. */
void drain_stop(struct drain *drain);
/* Stops, and frees all but the arenas that were taken. */
void drain_free(struct drain *drain);
