/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

/* What libbpf says is kept per thread: loading in two threads does not mix. */
static __thread char log_text[1 << 18];
static __thread size_t log_size;

static int keep_log(enum libbpf_print_level level, const char *format, va_list arguments)
{
	size_t room = sizeof(log_text) - log_size;
	int length;

	if (level == LIBBPF_DEBUG)
		return 0;
	length = vsnprintf(log_text + log_size, room, format, arguments);
	if (length > 0)
		log_size += (size_t)length < room ? (size_t)length : room - 1;
	return length;
}

size_t bpf_take_log(char *text, size_t room)
{
	size_t size = log_size < room ? log_size : room;

	memcpy(text, log_text, size);
	log_size = 0;
	return size;
}

struct bpf_object *bpf_open(const void *image, size_t size, const char *name, const char *btf_path)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name,
		    .btf_custom_path = btf_path);

	libbpf_set_print(keep_log);
	return bpf_object__open_mem(image, size, &options);
}

const void *bpf_object_btf(const struct bpf_object *object, uint32_t *size)
{
	const struct btf *btf = bpf_object__btf(object);

	return btf ? btf__raw_data(btf, size) : NULL;
}

int bpf_run_here(int program_fd, void *context, uint32_t size)
{
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = context, .ctx_size_in = size);
	int status = bpf_prog_test_run_opts(program_fd, &options);

	return status ? status : (int)options.retval;
}

int bpf_open_iterator(const struct bpf_program *program)
{
	struct bpf_link *link = bpf_program__attach_iter(program, NULL);
	int fd;

	if (!link)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(link));
	if (fd < 0)
		fd = -errno;
	bpf_link__destroy(link); /* the open iterator keeps what it needs */
	return fd;
}

int bpf_map_name(int fd, char *name)
{
	struct bpf_map_info info = {0};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return -errno;
	memcpy(name, info.name, sizeof(info.name));
	return 0;
}

struct bpf_link *bpf_attach_point(const struct bpf_program *program, const char *path,
				  uint64_t offset, uint64_t cookie)
{
	LIBBPF_OPTS(bpf_uprobe_opts, options, .bpf_cookie = cookie);

	return bpf_program__attach_uprobe_opts(program, -1, path, offset, &options);
}

/* As the kernel's linux/bpf.h has them since 6.6; the headers here may be older. */
enum { LINK_CREATE = 28, ATTACH_UPROBE_MULTI = 48 };

struct link_uprobe_multi {
	uint32_t program_fd;
	uint32_t target_fd;
	uint32_t attach_type;
	uint32_t flags;
	uint64_t path;
	uint64_t offsets;
	uint64_t reference_counters;
	uint64_t cookies;
	uint32_t count;
	uint32_t multi_flags;
	uint32_t pid;
	uint32_t reserved;
};

int bpf_attach_points(int program_fd, const char *path, const uint64_t *offsets,
		      const uint64_t *cookies, uint32_t count)
{
	struct link_uprobe_multi wanted = {
		.program_fd = program_fd,
		.attach_type = ATTACH_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.count = count,
	};
	long fd = syscall(SYS_bpf, LINK_CREATE, &wanted, sizeof(wanted));

	return fd < 0 ? -errno : (int)fd;
}
