/*
 * Perf rings, one a CPU: what the kernel adds to an output of BPF (registers, call chain, a copy of
 * the stack), or side-band: memory that processes map. Their events become records of wire.h.
 */

/* Options of a ring: which fields its events have. */
struct perf_shape {
	uint64_t registers;   /* mask of the registers sampled; 0: none */
	uint32_t stack_bytes; /* of each stack; 0: none, else a multiple of 8 below 65535 */
	uint32_t has_chain;
	uint32_t is_sideband; /* mappings instead of samples */
	int32_t traced_fd;    /* of side-band: BPF map of the processes (pid -> enum trace_mode) */
	int32_t seen_fd;      /* and one of those that had samples; -1: those of all */
	uint32_t counts_lost; /* out: the kernel counts what it lost, see perf_read_lost */
};

struct perf_counters {
	uint64_t records;     /* read well, kept or dropped */
	uint64_t passed_over; /* events that nobody asked for: of other processes, of other kinds */
	uint64_t malformed;   /* events of sizes that cannot be */
	uint64_t lost;	      /* events that found no room, as PERF_RECORD_LOST tells them */
	uint64_t dropped;     /* side-band for which there was no memory */
	uint64_t peak_bytes;  /* most that was in the ring */
	int32_t error;	      /* errno that ended its reading, 0: it goes on */
	uint32_t cpu;
};

struct perf_ring;

/* Opens an event of this CPU with a ring of `pages` pages (a power of two), which is woken for at a
 * quarter; disabled. A descriptor or -errno. */
int perf_open(struct perf_shape *shape, uint32_t cpu, uint32_t pages);
int perf_enable(int fd);
/* What the kernel counted as lost of the event; -1: it does not count. */
int64_t perf_read_lost(int fd);
