/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, writes and runs known places as often as a line of standard input says: KIND COUNT. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POINT __attribute__((noinline, noclone, used))

unsigned int total = 5;
_Thread_local int of_thread;
static volatile unsigned int *heap, *stack, kept;

struct order {
	char kind[32];
	long count;
};

POINT void step(void)
{
	kept++;
}

/* What the caller has on its stack can be found in the copy. */
POINT void hook(const unsigned char *marker)
{
	kept += marker[0];
}

POINT void marked(void)
{
	unsigned char marker[64];

	memset(marker, 0xc5, sizeof(marker));
	hook(marker);
	kept += marker[63];
}

static volatile unsigned int *place_of(const char *kind)
{
	if (strstr(kind, "heap"))
		return heap;
	return strstr(kind, "stack") ? stack : (volatile unsigned int *)&total;
}

static void *act(void *argument)
{
	struct order *order = argument;
	volatile unsigned int *place = place_of(order->kind);

	for (long i = 0; i < order->count; i++) {
		if (strstr(order->kind, "write"))
			*place = *place + 0 * kept + 1;
		else if (strstr(order->kind, "mark"))
			marked();
		else if (strstr(order->kind, "read"))
			kept += *place;
		else
			step();
	}
	return NULL;
}

static void act_in_threads(struct order *order)
{
	pthread_t thread[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, act, order);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}

static void act_in_child(struct order *order)
{
	if (!fork()) {
		act(order);
		_exit(0);
	}
	wait(NULL);
}

static void *wait_for_ever(void *argument)
{
	for (;;)
		pause();
	return argument;
}

int main(void)
{
	volatile unsigned int here[256] = {0}; /* string functions read beside what they work on */
	struct order order;
	pthread_t idle;

	heap = (unsigned int *)calloc(1, 4096) + 512;
	stack = &here[128];
	pthread_create(&idle, NULL, wait_for_ever, NULL);
	printf("%p %p %p %p\n", (void *)&total, (void *)heap, (void *)stack, (void *)step);
	fflush(stdout);
	while (scanf("%31s %ld", order.kind, &order.count) == 2) {
		if (strstr(order.kind, "thread"))
			act_in_threads(&order);
		else if (strstr(order.kind, "fork"))
			act_in_child(&order);
		else
			act(&order);
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
