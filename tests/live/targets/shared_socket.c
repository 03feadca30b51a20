/*
 * One connection whose ends are used by several threads without a lock: `shared_socket THREADS REQUESTS`.
 *
 * Each of the client's threads sends its requests with one write each; as many server threads read what comes, in any
 * cut, and answer what is complete. Requests have 512 bytes, responses 64. A server answers only what its threads were
 * handed: a thread that is preempted in its read holds bytes that none of them has, so the count of bytes received is
 * good for answers only when no thread is in a read.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST_SIZE = 512, RESPONSE_SIZE = 64, UNANSWERED_MAX = 100 };

static int fd, threads, requests;
static long received, whole_requests, answered;
static int in_read;
static sem_t room;

static void check(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void *send_requests(void *number)
{
	char text[REQUEST_SIZE + 1];

	for (int i = 0; i < requests; i++) {
		int head = sprintf(text, "GET /%ld/%d HTTP/1.1\r\nX-Fill: ", (long)number, i);

		memset(text + head, 'f', REQUEST_SIZE - head - 4);
		memcpy(text + REQUEST_SIZE - 4, "\r\n\r\n", 4);
		sem_wait(&room);
		check(write(fd, text, REQUEST_SIZE) == REQUEST_SIZE, "write");
	}
	return NULL;
}

static void *receive_responses(void *unused)
{
	char buffer[4096];
	long left = (long)threads * requests * RESPONSE_SIZE, got = 0;

	while (got < left) {
		long size = read(fd, buffer, sizeof(buffer)), before = got / RESPONSE_SIZE;

		check(size > 0, "read");
		got += size;
		for (; before < got / RESPONSE_SIZE; before++)
			sem_post(&room);
	}
	return unused;
}

/* Read what is there; the last thread out of its read tells how many requests have come whole. */
static long receive(char *buffer, size_t capacity)
{
	long size, total, before;

	__atomic_add_fetch(&in_read, 1, __ATOMIC_SEQ_CST);
	size = recv(fd, buffer, capacity, MSG_DONTWAIT);
	total = __atomic_add_fetch(&received, size > 0 ? size : 0, __ATOMIC_SEQ_CST) / REQUEST_SIZE;
	if (__atomic_sub_fetch(&in_read, 1, __ATOMIC_SEQ_CST) != 0)
		return size;
	before = __atomic_load_n(&whole_requests, __ATOMIC_SEQ_CST);
	while (before < total && !__atomic_compare_exchange_n(&whole_requests, &before, total, 0, __ATOMIC_SEQ_CST,
							      __ATOMIC_SEQ_CST))
		;
	return size;
}

static void *serve(void *unused)
{
	char buffer[700], text[RESPONSE_SIZE + 1];
	int head = sprintf(text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Fill: ");
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	long size, answer;

	memset(text + head, 'f', RESPONSE_SIZE - head - 4);
	memcpy(text + RESPONSE_SIZE - 4, "\r\n\r\n", 4);
	do {
		size = receive(buffer, sizeof(buffer));
		check(size >= 0 || errno == EAGAIN, "recv");
		answer = __atomic_load_n(&answered, __ATOMIC_SEQ_CST);
		while (answer < __atomic_load_n(&whole_requests, __ATOMIC_SEQ_CST))
			if (__atomic_compare_exchange_n(&answered, &answer, answer + 1, 0, __ATOMIC_SEQ_CST,
							__ATOMIC_SEQ_CST))
				check(write(fd, text, RESPONSE_SIZE) == RESPONSE_SIZE, "write");
		if (size < 0)
			poll(&readable, 1, -1);
	} while (size != 0);
	return unused;
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), status, on = 1;
	pthread_t all[16], reader;
	pid_t server;

	check(count == 3, "arguments");
	threads = atoi(arguments[1]);
	requests = atoi(arguments[2]);
	alarm(60);
	check(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 1), "listen");
	getsockname(listener, (struct sockaddr *)&address, &size);
	server = fork();
	alarm(60);
	if (server == 0) {
		fd = accept(listener, NULL, NULL);
	} else {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		check(!connect(fd, (struct sockaddr *)&address, size), "connect");
		sem_init(&room, 0, UNANSWERED_MAX);
		pthread_create(&reader, NULL, receive_responses, NULL);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (long i = 0; i < threads; i++)
		pthread_create(&all[i], NULL, server ? send_requests : serve, (void *)i);
	for (int i = 0; i < threads; i++)
		pthread_join(all[i], NULL);
	if (server == 0)
		return 0;
	pthread_join(reader, NULL);
	close(fd);
	check(waitpid(server, &status, 0) == server && status == 0, "server");
	return 0;
}
