/* SPDX-License-Identifier: Apache-2.0 */
/* Calls stop() by the way that is named, says which thread that is, and waits there. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static volatile int sink;

/* With BARE no function of libc is on the stack: musl's have no unwind tables. */
static inline void wait_here(void)
{
#ifdef BARE
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_pause) : "rcx", "r11", "memory");
#else
	pause();
#endif
}

NOINLINE void stop(void)
{
	printf("%ld\n", (long)syscall(SYS_gettid));
	fflush(stdout);
	for (;;)
		wait_here();
}

NOINLINE int recurse(int depth)
{
	volatile char pad[64];

	pad[0] = (char)depth;
	if (depth)
		return recurse(depth - 1) + pad[0];
	stop();
	return sink;
}

NOINLINE int with_alloca(int size)
{
	char *room = alloca((size_t)size);

	memset(room, 1, (size_t)size);
	sink = room[size / 2];
	return recurse(3) + room[size - 1];
}

NOINLINE int realigned(int depth)
{
	volatile char pad[64] __attribute__((aligned(64)));

	pad[0] = (char)depth;
	return recurse(depth) + pad[0] + (int)((uintptr_t)pad & 63);
}

NOINLINE int tail_called(int depth)
{
	sink++;
	return recurse(depth);
}

NOINLINE int calls_tail(int depth)
{
	return tail_called(depth + 1);
}

static void on_signal(int signal)
{
	(void)signal;
	recurse(1);
}

static void handle(int flags)
{
	static char other[65536];
	stack_t stack = {.ss_sp = other, .ss_size = sizeof(other)};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};

	if (flags & SA_ONSTACK)
		sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
}

static int compare(const void *left, const void *right)
{
	if (*(const int *)left == 7 || *(const int *)right == 7)
		recurse(1);
	return *(const int *)left - *(const int *)right;
}

static void *in_thread(void *argument)
{
	recurse(*(int *)argument);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	int values[] = {4, 9, 7, 1, 3}, depth = 2;
	pthread_t thread;

	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	if (!strcmp(way, "recursion"))
		return recurse(argc > 2 ? atoi(argv[2]) : 5) + sink;
	if (!strcmp(way, "alloca"))
		return with_alloca(argc * 100) + sink;
	if (!strcmp(way, "realigned"))
		return realigned(argc) + sink;
	if (!strcmp(way, "tail_call"))
		return calls_tail(argc) + sink;
	if (!strcmp(way, "qsort"))
		qsort(values, 5, sizeof(*values), compare);
	if (!strcmp(way, "thread")) {
		pthread_create(&thread, NULL, in_thread, &depth);
		pthread_join(thread, NULL);
	}
	if (!strcmp(way, "signal") || !strcmp(way, "other_stack")) {
		handle(*way == 'o' ? SA_ONSTACK : 0);
		raise(SIGUSR1);
	}
	if (!strcmp(way, "fault")) {
		handle(0);
		*(volatile int *)8 = argc;
	}
	return 2;
}
