/* SPDX-License-Identifier: Apache-2.0 */
/* Hardware breakpoints: perf_event_open(2), linux/hw_breakpoint.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>

#include "watch.h"

static int open_breakpoint(struct perf_event_attr *attr, int tid)
{
	int fd = syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0 && errno == EINVAL && attr->remove_on_exec) { /* before 5.13 */
		attr->remove_on_exec = 0;
		fd = syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

int watch_open(int tid, uint64_t address, uint32_t access, uint32_t size_bytes, bool in_kernel,
	       int program_fd)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_BREAKPOINT,
		.bp_type = access,
		.bp_addr = address,
		.bp_len = size_bytes,
		.sample_period = 1,
		.disabled = 1,
		.inherit = 1,
		.remove_on_exec = 1, /* the next program has something else there */
		.exclude_kernel = !in_kernel,
		.exclude_hv = 1,
	};
	int fd = open_breakpoint(&attr, tid), error;

	if (fd < 0)
		return fd;
	if (!ioctl(fd, PERF_EVENT_IOC_SET_BPF, program_fd))
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int watch_enable(int fd)
{
	return ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) ? -errno : 0;
}

int watch_disable(int fd)
{
	return ioctl(fd, PERF_EVENT_IOC_DISABLE, 0) ? -errno : 0;
}

int64_t watch_count(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) == sizeof(count) ? (int64_t)count : -errno;
}
