/* SPDX-License-Identifier: Apache-2.0 */
/* One function for each kind of argument, called once or a few times with known values. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define POINT __attribute__((noinline, noclone, used))

static volatile long kept;

/* A struct is handed over by its address, an array with how many there are. */
#define GIVE(name)                                                                                 \
	POINT long give_##name(const void *pointer, long count)                                    \
	{                                                                                          \
		__asm__ volatile("" : : "r"(pointer) : "memory"); /* it is looked at */            \
		kept += count;                                                                     \
		return pointer != NULL;                                                            \
	}

GIVE(timespec)
GIVE(timeval)
GIVE(timezone)
GIVE(itimerspec)
GIVE(stack)
GIVE(sigset)
GIVE(sigaction)
GIVE(siginfo)
GIVE(epoll)
GIVE(pollfd)
GIVE(dirent)
GIVE(rusage)
GIVE(utsname)
GIVE(sysinfo)
GIVE(stat)
GIVE(statfs)
GIVE(iovec)
GIVE(msghdr)
GIVE(inet)
GIVE(inet6)
GIVE(local)
GIVE(attr)
GIVE(numbers)
GIVE(floats)
GIVE(pointers)
GIVE(words)
GIVE(nested)
GIVE(string)
GIVE(cxx_string)
GIVE(bytes)
GIVE(edge)
GIVE(large)

POINT long numbers(int8_t a, int16_t b, int32_t c, int64_t d, uint8_t e, uint16_t f, uint32_t g, uint64_t h)
{
	kept += a + b + c + (long)d + e + f + g + (long)h;
	return -2;
}

POINT long plain(long a, int b)
{
	kept += a + b;
	return a * 1000 + 7;
}

POINT long text(const char *given)
{
	kept++;
	return given ? (long)strlen(given) : -14;
}

POINT long fill(char *out, long room, int *count, long number)
{
	kept++;
	*count += 40;
	return number < room ? (long)strlen(strcpy(out, "filled")) : -1;
}

POINT const char *find(long number)
{
	kept++;
	return number ? "found" : NULL;
}

POINT long outer(long number);

POINT long inner(long number)
{
	kept++;
	return number + 1;
}

POINT long outer(long number)
{
	return inner(number) + kept * 0;
}

struct inner_struct {
	char pad[4];
	int number;
	const char *text;
};

struct outer_struct {
	char pad[16];
	struct inner_struct *inside;
};

struct std_string { /* of libstdc++ */
	const char *text;
	size_t size;
	char room[16];
};

static void give_structs(void)
{
	struct timespec times[2] = {{1, 2}, {3, 4}};
	struct timeval value = {5, 6};
	struct timezone zone = {60, 1};
	struct itimerspec timer = {{1, 2}, {3, 4}};
	stack_t stack = {(void *)0x1000, 2, 8192};
	uint64_t set = 1 << (SIGINT - 1) | 1 << (SIGTERM - 1);
	struct sigaction action = {.sa_flags = SA_RESTART};
	siginfo_t info = {.si_signo = SIGCHLD, .si_code = CLD_EXITED};
	struct epoll_event events[2] = {{EPOLLIN, {.u64 = 7}}, {EPOLLOUT, {.u64 = 8}}};
	struct pollfd polls[2] = {{3, POLLIN, 0}, {4, POLLOUT, POLLHUP}};
	struct dirent entry = {.d_ino = 9, .d_off = 10, .d_reclen = 32, .d_type = DT_REG, .d_name = "name.txt"};
	struct rusage usage = {.ru_utime = {1, 2}, .ru_maxrss = 3, .ru_nivcsw = 4};
	struct utsname name = {.sysname = "Linux", .nodename = "node", .machine = "machine"};
	struct sysinfo system = {.uptime = 11, .totalram = 12, .procs = 13, .mem_unit = 1};
	struct stat status = {.st_ino = 14, .st_nlink = 1, .st_mode = S_IFREG | 0644, .st_size = 15};
	struct statfs files = {.f_type = 0xef53, .f_bsize = 4096, .f_namelen = 255};
	struct iovec vectors[2] = {{(void *)0x10, 3}, {(void *)0x20, 4}};
	struct msghdr message = {.msg_iov = (void *)0x30, .msg_iovlen = 2, .msg_flags = MSG_PEEK};
	struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons(80)};
	struct sockaddr_in6 inet6 = {.sin6_family = AF_INET6, .sin6_port = htons(443), .sin6_addr = in6addr_loopback};
	struct sockaddr_un local = {AF_UNIX, "/run/some.sock"};
	unsigned char attribute[56] = {1, 2};

	inet.sin_addr.s_addr = htonl(0x0a000001);
	sigaddset(&action.sa_mask, SIGHUP);
	info.si_pid = 42;
	info.si_uid = 1000;
	give_timespec(times, 2);
	give_timeval(&value, 1);
	give_timezone(&zone, 1);
	give_itimerspec(&timer, 1);
	give_stack(&stack, 1);
	give_sigset(&set, 1);
	give_sigaction(&action, 1);
	give_siginfo(&info, 1);
	give_epoll(events, 2);
	give_pollfd(polls, 2);
	give_dirent(&entry, 1);
	give_rusage(&usage, 1);
	give_utsname(&name, 1);
	give_sysinfo(&system, 1);
	give_stat(&status, 1);
	give_statfs(&files, 1);
	give_iovec(vectors, 2);
	give_msghdr(&message, 1);
	give_inet(&inet, 16);
	inet.sin_addr.s_addr = htonl(0x0a000002);
	give_inet(&inet, 16);
	give_inet6(&inet6, 28);
	give_local(&local, 16);
	give_attr(attribute, 1);
}

static void give_memory(void)
{
	int numbers_there[4] = {1, -2, 3, -4};
	double floats[2] = {1.5, -0.25};
	void *pointers[2] = {(void *)0x1234, NULL};
	const char *words[4] = {"one", "", "three", NULL};
	struct inner_struct in = {"", 77, "deep"};
	struct outer_struct out = {"", &in};
	struct std_string string = {string.room, 5, "short"}, far = {"a text that is longer than sixteen", 34, ""};
	unsigned char small[24] = {5 << 1, 's', 'm', 'a', 'l', 'l'};
	struct {
		size_t capacity, size;
		const char *text;
	} big = {64 | 1, 30, "of libc++, and not a short one"};
	static char large[40000];
	long page = sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(pages + page, page);
	memcpy(pages + page - 4, "edge", 4);
	memset(large, 'L', sizeof(large));
	give_numbers(numbers_there, 4);
	give_floats(floats, 2);
	give_pointers(pointers, 2);
	give_words(words, 3);
	give_nested(&out, 1);
	give_string(&string, 1);
	give_string(&far, 1);
	give_cxx_string(small, 1);
	give_cxx_string(&big, 1);
	give_bytes("\x16\x03\x01\x00", 4);
	give_bytes("GET / HTTP", 10);
	give_bytes("", 0);
	give_bytes("bad", -1);
	give_edge(pages + page - 4, 16);
	give_large(large, sizeof(large));
}

int main(void)
{
	char out[16] = "before", longer[301] = "";
	int count = 2;

	memset(longer, 'x', 300);
	numbers(-5, -300, -70000, -5000000000, 200, 60000, 4000000000u, 1ull << 63);
	for (long i = 0; i < 10; i++)
		plain(i, (int)-i);
	text("alpha");
	text("beta");
	text("alphabet");
	text(longer);
	text(NULL);
	fill(out, sizeof(out), &count, 1);
	find(0);
	find(1);
	inner(1);
	outer(2);
	give_structs();
	give_memory();
	return 0;
}
