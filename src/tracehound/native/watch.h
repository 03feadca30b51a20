/* Hardware breakpoints that run BPF programs. */

enum watch_access {
	WATCH_READ = 1,
	WATCH_WRITE = 2,
	WATCH_RUN = 4,
};

/* Opens a disabled hardware breakpoint of a thread and of the threads and processes that it starts,
 * which runs a BPF program of type `perf_event` for each hit. A descriptor or -errno. */
int watch_open(int tid, uint64_t address, uint32_t access, uint32_t size_bytes, bool in_kernel,
	       int program_fd);
int watch_enable(int fd);
int watch_disable(int fd);
/* How often it was hit, -errno. */
int64_t watch_count(int fd);
