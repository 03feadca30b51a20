// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Files: each open, openat, openat2 and creat that ended; and when slots of the
 * descriptor table change hands, so that a number can be told from the same one used
 * again. Only system calls know of that, and programs on all calls cost every process
 * of the machine, so this object is loaded on demand. Not seen: opens by io_uring and
 * of 32-bit programs.
 */
#include "compat.h"
#include "data_ring.h"
#include "filter.h"
#include "path.h"

enum {
	CURRENT_DIRECTORY = -100, /* AT_FDCWD */
	CREAT_FLAGS = 01 | 0100 | 01000,
	CLOSE_ON_EXEC = 4, /* CLOSE_RANGE_CLOEXEC */
	DESCRIPTOR_MAX = 0x7fffffff,
	OPEN_DATA_SIZE = PATH_SIZE_MAX + PATH_SIZE_MAX + 8, /* one more than may be kept is read */
};

/* The call that a thread is in. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64); /* when it began; 0: in none */
} opening SEC(".maps");

/* struct open_how */
struct user_open_how {
	__u64 flags;
	__u64 mode;
};

struct open_scratch {
	struct path_walk walk;
	struct user_open_how how;
	__u64 path; /* user address */
	__s32 directory;
	__u32 reserved;
	struct open_record record; /* its data: OPEN_DATA_SIZE bytes */
};

/* One for one program: two programs may nest on a CPU, one with itself may not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct open_scratch) + OPEN_DATA_SIZE);
} scratch_open SEC(".maps");

static __always_inline bool is_open(__u32 number)
{
	return number == SYSCALL_OPENAT || number == SYSCALL_OPEN || number == SYSCALL_CREAT ||
	       number == SYSCALL_OPENAT2;
}

/*
 * The slots that a call empties or replaces. Said at its begin, not its end: by then
 * another thread may have been given the slot and have used it.
 */
static __always_inline bool find_release(__u32 number, const struct pt_regs *regs, __u32 *first,
					 __u32 *last)
{
	*first = SYSCALL_FIRST(regs);
	*last = *first;
	if (number == SYSCALL_CLOSE)
		return *first <= DESCRIPTOR_MAX;
	*last = SYSCALL_SECOND(regs);
	if (number == SYSCALL_CLOSE_RANGE)
		return *first <= *last && !(SYSCALL_THIRD(regs) & CLOSE_ON_EXEC);
	if (number != SYSCALL_DUP2 && number != SYSCALL_DUP3)
		return false;
	if (*first == *last)
		return false; /* nothing changes */
	*first = *last;
	return *first <= DESCRIPTOR_MAX;
}

static __always_inline bool is_release(__u32 number)
{
	return number == SYSCALL_CLOSE || number == SYSCALL_CLOSE_RANGE || number == SYSCALL_DUP2 ||
	       number == SYSCALL_DUP3;
}

static void emit_release(const struct task_struct *task, __u32 number, const struct pt_regs *regs)
{
	struct release_record record = {0};

	if (!find_release(number, regs, &record.first, &record.last))
		return;
	fill_header(&record.header, bpf_ktime_get_ns(), RECORD_RELEASE, sizeof(record), task->tgid,
		    task->pid);
	output_record(&data, RING_DATA, &record.header, sizeof(record));
}

static __always_inline void read_arguments(struct open_scratch *scratch, __u32 number,
					   const struct pt_regs *regs)
{
	struct user_open_how *how = &scratch->how;

	scratch->directory = CURRENT_DIRECTORY;
	scratch->path = SYSCALL_FIRST(regs);
	if (number == SYSCALL_OPEN) {
		how->flags = SYSCALL_SECOND(regs);
		how->mode = SYSCALL_THIRD(regs);
		return;
	}
	if (number == SYSCALL_CREAT) {
		how->flags = CREAT_FLAGS;
		how->mode = SYSCALL_SECOND(regs);
		return;
	}
	scratch->directory = SYSCALL_FIRST(regs);
	scratch->path = SYSCALL_SECOND(regs);
	how->flags = SYSCALL_THIRD(regs);
	how->mode = SYSCALL_FOURTH(regs);
	if (number == SYSCALL_OPENAT2 && bpf_probe_read_user(how, sizeof(*how), (void *)how->flags))
		how->flags = how->mode = 0;
}

/* What a descriptor of the current process stands for; NULL if it has no such one. */
static __always_inline struct file *file_of(const struct task_struct *task, __u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL, **files;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	files = BPF_CORE_READ(table, fd);
	bpf_probe_read_kernel(&file, sizeof(file), files + fd);
	return file;
}

/* What was opened: its own path, with symbolic links followed. A pipe or socket has none. */
static bool read_opened(struct open_scratch *scratch, const struct task_struct *task)
{
	struct file *file = file_of(task, scratch->record.result);
	struct path_walk *walk = &scratch->walk;

	if (!file || !read_path(walk, &file->f_path) || (walk->is_detached && walk->size <= 1))
		return false;
	if (!walk->size) {
		walk->text[0] = '/';
		walk->size = 1;
	}
	scratch->record.flags |= OPEN_RESOLVED;
	return true;
}

/* The directory at which a relative path begins. */
static void read_directory(struct open_scratch *scratch, const struct task_struct *task)
{
	struct fs_struct *fs = BPF_CORE_READ(task, fs);
	const struct path *path = &fs->pwd;
	struct file *file;

	if (scratch->directory != CURRENT_DIRECTORY) {
		file = file_of(task, scratch->directory);
		path = file ? &file->f_path : NULL;
	}
	if (!path || !read_path(&scratch->walk, path)) {
		scratch->walk.size = 0;
		scratch->record.flags |= OPEN_PLACE_UNKNOWN;
	}
}

/* Append the path as it was given. */
static __always_inline void append_given(struct open_scratch *scratch)
{
	struct open_record *record = &scratch->record;
	__u32 at = record->place_size;
	long size;

	if (at > PATH_SIZE_MAX)
		return;
	size = bpf_probe_read_user_str(record->data + at, PATH_SIZE_MAX + 1, (void *)scratch->path);
	if (size < 1) {
		record->flags |= OPEN_PATH_FAULT;
		return;
	}
	if (size > PATH_SIZE_MAX)
		record->flags |= OPEN_PATH_TRUNCATED;
	record->path_size = size - 1;
}

static void emit_open(struct open_scratch *scratch, const struct task_struct *task, __s32 result,
		      __u64 duration_ns)
{
	struct open_record *record = &scratch->record;
	char first = 0;
	__u32 size;

	record->duration_ns = duration_ns;
	record->open_flags = generic_open_flags(scratch->how.flags);
	record->mode = scratch->how.mode;
	record->result = result;
	record->flags = record->path_size = scratch->walk.size = 0;
	bpf_probe_read_user(&first, 1, (void *)scratch->path);
	if (result < 0 || !read_opened(scratch, task)) {
		scratch->walk.size = 0;
		if (first != '/')
			read_directory(scratch, task);
	}
	record->place_size = copy_path(&scratch->walk, record->data);
	append_given(scratch);
	size = sizeof(*record) + record->place_size + record->path_size;
	if (size > sizeof(*record) + OPEN_DATA_SIZE)
		return;
	fill_header(&record->header, bpf_ktime_get_ns(), RECORD_OPEN, size, task->tgid, task->pid);
	output_record(&data, RING_DATA, &record->header, size);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long number)
{
	struct task_struct *task;
	__u64 *began_ns;

	if (!is_open(number) && !is_release(number))
		return 0;
	task = bpf_get_current_task_btf();
	if (is_compat_task(task) || !is_traced(task->tgid))
		return 0;
	if (!is_open(number)) {
		emit_release(task, number, regs);
		return 0;
	}
	began_ns = bpf_task_storage_get(&opening, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (began_ns)
		*began_ns = bpf_ktime_get_ns();
	else
		count_loss(LOSS_STORAGE_FULL, 1);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long result)
{
	__u64 *began_ns, duration_ns = 0;
	struct open_scratch *scratch;
	struct task_struct *task;
	__u32 number = SYSCALL_NUMBER(regs), key = 0;

	if (!is_open(number))
		return 0;
	task = bpf_get_current_task_btf();
	if (is_compat_task(task) || !is_traced(task->tgid))
		return 0;
	began_ns = bpf_task_storage_get(&opening, task, NULL, 0);
	if (began_ns && *began_ns) {
		duration_ns = bpf_ktime_get_ns() - *began_ns;
		*began_ns = 0;
	}
	scratch = bpf_map_lookup_elem(&scratch_open, &key);
	if (!scratch)
		return 0;
	read_arguments(scratch, number, regs);
	emit_open(scratch, task, result, duration_ns);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
