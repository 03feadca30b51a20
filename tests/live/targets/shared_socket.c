/*
 * One connection whose ends are used by several threads without a lock: `shared_socket THREADS REQUESTS`.
 *
 * Each of the client's threads sends its requests with one write each; as many server threads read what comes, in any
 * cut, and answer what is complete. Requests have 512 bytes, responses 64.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
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
static long received, answered;
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

static void *serve(void *unused)
{
	char buffer[700], text[RESPONSE_SIZE + 1];
	int head = sprintf(text, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Fill: ");
	long size;

	memset(text + head, 'f', RESPONSE_SIZE - head - 4);
	memcpy(text + RESPONSE_SIZE - 4, "\r\n\r\n", 4);
	while ((size = read(fd, buffer, sizeof(buffer))) > 0) {
		long whole = __atomic_add_fetch(&received, size, __ATOMIC_SEQ_CST) / REQUEST_SIZE;

		for (long before = __atomic_load_n(&answered, __ATOMIC_SEQ_CST); before < whole;) {
			if (!__atomic_compare_exchange_n(&answered, &before, before + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				continue;
			check(write(fd, text, RESPONSE_SIZE) == RESPONSE_SIZE, "write");
			before++;
		}
	}
	check(size == 0, "read");
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
