/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that are called in known ways; the first argument says which, the second how often. */
#include <setjmp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
#include <sys/prctl.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#define POINT __attribute__((noinline, noclone, used))

static volatile long kept;
static jmp_buf back;

POINT long take_numbers(int8_t a, uint16_t b, int32_t c, uint64_t d, size_t e, void *f)
{
	kept++;
	return a + b + c + (long)d + (long)e + (f != NULL);
}

POINT int take_text(const char *text, const void *bytes, unsigned long size)
{
	kept++;
	return (int)(strlen(text) + size + ((const char *)bytes)[0]);
}

POINT int take_bad(const char *text)
{
	kept++;
	return text != NULL;
}

POINT long factorial(long n)
{
	long rest = n < 2 ? 1 : n * factorial(n - 1);

	kept++;
	return rest;
}

POINT void jump(int depth)
{
	kept++;
	if (depth == 0)
		longjmp(back, 1);
	if (depth > 0)
		jump(depth - 1);
	kept++;
}

POINT int leave(int how)
{
	kept++;
	if (how)
		_exit(7);
	return how;
}

POINT long tick(long n)
{
	kept += n;
	return n * 2;
}

static void *ticks(void *count)
{
	for (long i = 0; i < (long)count; i++)
		tick(i);
	return NULL;
}

static void paced(long total, long rate)
{
	struct timespec at;
	long slice = rate / 100 > 0 ? rate / 100 : 1;

	clock_gettime(CLOCK_MONOTONIC, &at);
	for (long i = 0; i < total; i++) {
		tick(i);
		if (i % slice == slice - 1) {
			at.tv_nsec += 10000000;
			if (at.tv_nsec >= 1000000000) {
				at.tv_nsec -= 1000000000;
				at.tv_sec++;
			}
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		}
	}
}

static int text_is_whole(void)
{
	static unsigned char before[64];
	static int is_kept;

	if (!is_kept) {
		memcpy(before, (void *)tick, sizeof(before));
		is_kept = 1;
		return 1;
	}
	return !memcmp(before, (void *)tick, sizeof(before));
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 1;
	pthread_t threads[4];
	char line[16];

	text_is_whole();
	if (!strcmp(argv[1], "types")) {
		take_numbers(-5, 65535, -70000, 0xdeadbeefcafe, 1234567890123, (void *)0x10);
		take_text("\xc3\xa9t\xc3\xa9", "\x01\x02\x00\x7f", 4);
		take_text("", "abcdefgh", 2);
		take_bad((const char *)8);
	} else if (!strcmp(argv[1], "recursion")) {
		kept += factorial(count);
	} else if (!strcmp(argv[1], "longjmp")) {
		for (volatile long i = 0; i < count; i++)
			if (!setjmp(back))
				jump(3);
	} else if (!strcmp(argv[1], "exit")) {
		leave(0);
		leave(1);
	} else if (!strcmp(argv[1], "fork")) {
		if (!fork())
			leave(1);
		wait(NULL);
		leave(0);
	} else if (!strcmp(argv[1], "threads")) {
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, ticks, (void *)count);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	} else if (!strcmp(argv[1], "rate")) {
		paced(count, atol(argv[3]));
	} else if (!strcmp(argv[1], "strict")) {
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
		for (long i = 0; i < count; i++)
			tick(i);
		syscall(SYS_exit, 3);
	} else if (!strcmp(argv[1], "serve")) { /* a line in: ticks; its answer: whether our code is as it was */
		while (fgets(line, sizeof(line), stdin)) {
			ticks((void *)atol(line));
			printf("%d %d\n", text_is_whole(), *(unsigned char *)(void *)tick);
			fflush(stdout);
		}
	}
	return 0;
}
