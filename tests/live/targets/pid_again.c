/*
 * A process, whose pid is told, sends GET /traced after a line of input and ends; a new one of ours gets the same pid
 * and sends GET /stranger on the same connection. A child of the first one lives until the next line. What the last
 * line of output says: whether the pid could be used again.
 */
#include <arpa/inet.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int client, server;

/* Send a request, answer it, and read the answer. */
static void exchange(const char *path)
{
	static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
	char text[256];
	int size = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);

	if (write(client, text, size) != size || read(server, text, sizeof(text)) != size ||
	    write(server, answer, sizeof(answer) - 1) != sizeof(answer) - 1 ||
	    read(client, text, sizeof(text)) != sizeof(answer) - 1)
		_exit(1);
}

static int wait_for(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static pid_t fork_as(pid_t pid)
{
	struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};

	return syscall(SYS_clone3, &arguments, sizeof(arguments));
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), go[2], end[2];
	pid_t first, again;
	char byte;

	alarm(60);
	client = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(client, (struct sockaddr *)&address, sizeof(address)) || pipe(go) || pipe(end))
		return 1;
	server = accept(listener, NULL, NULL);
	first = fork();
	if (!first) {
		alarm(60);
		close(end[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		if (!fork())
			_exit(read(end[0], &byte, 1)); /* until the end */
		exchange("/traced");
		_exit(0);
	}
	printf("%d\n", first);
	fflush(stdout);
	if (!getchar() || write(go[1], "g", 1) != 1 || !wait_for(first))
		return 1;
	again = fork_as(first);
	if (!again) {
		exchange("/stranger");
		_exit(0);
	}
	printf("%s\n", again == first && wait_for(again) ? "again" : "not again");
	fflush(stdout);
	return !getchar();
}
