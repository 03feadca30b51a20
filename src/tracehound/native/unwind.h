/* Walks copied stacks over the rows of symbols/ehframe.py, x86-64. Reads nothing outside what it is
 * given. */

/* What the canonical frame address (CFA) is; the return address is below it. */
enum unwind_rule {
	UNWIND_GAP = 0, /* not said: try the frame pointer */
	UNWIND_RSP = 1,
	UNWIND_RBP = 2,
	UNWIND_PLT = 3,
	UNWIND_SIGNAL = 4, /* all registers are in the ucontext at RSP */
	UNWIND_END = 5,
	UNWIND_DEREF_RBP = 6,
	UNWIND_UNSUPPORTED = 7,
};

enum unwind_status {
	STACK_COMPLETE = 0,
	STACK_TRUNCATED = 1,
	STACK_NO_MAPPING = 2,
	STACK_BAD_CFI = 3,
	STACK_MAX_DEPTH = 4,
	STACK_FP_USED = 5,
	STACK_PATCHED = 6,
	STACK_NO_USER_REGS = 7,
	STACK_NEEDS_TABLE = 8, /* no end: the last frame is where the table is not there yet */
};

/* Of a frame: its address is a return address, one past what it names; it was found by frame
 * pointer alone; it is from the kernel's call chain. */
enum unwind_frame {
	FRAME_RETURN = 1,
	FRAME_GUESSED = 2,
	FRAME_CHAIN = 4,
};

enum unwind_sample_flags {
	SAMPLE_NO_REGISTERS = 1,
	SAMPLE_PATCHED = 2,
};

/* Holds from pc to the next row's. rbp: the caller's is at CFA + 8 * rbp; 0 unchanged, -128 lost.
 */
struct unwind_row {
	uint32_t pc;
	int16_t cfa_offset;
	uint8_t rule;
	int8_t rbp;
};

struct unwind_table {
	const struct unwind_row *rows;
	uint64_t count;
};

/* What `table` of a range may be beside a table's number. */
enum unwind_no_table {
	TABLE_UNKNOWN = -1, /* nothing is known of it: frame pointers only */
	TABLE_WANTED =
		-2, /* there may be one: a walk that comes here ends with STACK_NEEDS_TABLE */
};

/* Executable memory; rows count from bias. */
struct unwind_range {
	uint64_t start;
	uint64_t end;
	uint64_t bias;
	int64_t table;
};

/* Registers, where in `stacks` the bytes from sp on are, and which ranges (sorted by start) are the
 * process's. */
struct unwind_sample {
	uint64_t ip;
	uint64_t sp;
	uint64_t bp;
	uint64_t stack_at;
	uint32_t stack_size;
	uint32_t first_range;
	uint32_t ranges;
	uint32_t flags;
};

/* Of a sample: the kernel's call chain, u64s of the user side, innermost first, at byte `at`. */
struct unwind_chain {
	uint64_t at;
	uint64_t count;
};

/* Row n of addresses and kinds (max_depth entries a row), of depths and statuses is sample n's. */
void unwind_stacks(const struct unwind_table *tables, const struct unwind_range *ranges,
		   const uint8_t *stacks, const struct unwind_sample *samples, uint32_t count,
		   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds, uint32_t *depths,
		   uint8_t *statuses);

/*
 * Goes on where a copied stack ended (STACK_TRUNCATED): with the frames that the kernel's chain has
 * after the last one that both have; where that stands several times, after the longest equal run.
 * The status stays: whether the chain is whole is not known. Needs no memory.
 */
void unwind_splice(const uint8_t *chains, const struct unwind_chain *chain, uint32_t count,
		   uint32_t max_depth, uint64_t *addresses, uint8_t *kinds, uint32_t *depths,
		   const uint8_t *statuses);
