/*
 * HTTP over every way in which bytes reach a socket: `byte_paths RESULT PATH...`.
 *
 * A PATH is `sender:receiver[:nonblocking]`. Each is one connection over loopback between two processes: three POST
 * requests and their responses, moved at both ends by the sender's and the receiver's way. Ways marked with a star move
 * heads by write and read, and only bodies their own way. RESULT gets a line per path and end:
 * `path role pid client_port sent received`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BODY_MAX = 400000, REQUESTS = 3, MANY = 300 };
static const int body_sizes[REQUESTS] = {10, 100000, 300000};

static int is_partial;
static long long sent_bytes, received_bytes;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void wait_for(int fd, short events)
{
	struct pollfd one = {.fd = fd, .events = events};

	if (poll(&one, 1, 20000) <= 0)
		die("poll");
}

/* Count what a call moved; 0: try again. */
static size_t moved(ssize_t result, int fd, short events, long long *total)
{
	if (result < 0 && (errno == EAGAIN || errno == EINPROGRESS)) {
		wait_for(fd, events);
		return 0;
	}
	if (result <= 0)
		die("move");
	*total += result;
	return result;
}

/* ---- io_uring, one call at a time ---- */

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static void open_ring(void)
{
	struct io_uring_params p = {0};
	char *sq, *cq;

	ring.fd = syscall(SYS_io_uring_setup, 4, &p);
	if (ring.fd < 0)
		die("io_uring_setup");
	sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
		  IORING_OFF_CQ_RING);
	ring.sqes = mmap(0, p.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
			 IORING_OFF_SQES);
	ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
	ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (unsigned *)(sq + p.sq_off.array);
	ring.cq_head = (unsigned *)(cq + p.cq_off.head);
	ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
	ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static ssize_t by_ring(int opcode, int fd, char *data, size_t size, int is_async)
{
	unsigned tail = *ring.sq_tail, at = tail & *ring.sq_mask;
	struct io_uring_sqe *sqe = &ring.sqes[at];
	ssize_t result;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->fd = fd;
	sqe->addr = (unsigned long)data;
	sqe->len = size;
	sqe->flags = is_async ? IOSQE_ASYNC : 0;
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0)
		die("io_uring_enter");
	while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == *ring.cq_head)
		if (syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0)
			die("io_uring_enter");
	result = ring.cqes[*ring.cq_head & *ring.cq_mask].res;
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	if (result < 0) {
		errno = -result;
		return -1;
	}
	return result;
}

/* ---- pieces: a buffer as many iovecs or messages ---- */

static struct iovec pieces[MANY];
static struct mmsghdr messages[8];

static int cut(char *data, size_t size, int count)
{
	int used = 0;
	size_t each = size / count + 1;

	while (size) {
		size_t one = size < each ? size : each;

		pieces[used++] = (struct iovec){data, one};
		data += one;
		size -= one;
	}
	return used;
}

/* As many iovecs as there are, the first ones of one byte: heads lie in more than 128 of them. */
static int cut_head(char *data, size_t size)
{
	int used = 0;

	while (size && used < MANY - 1) {
		pieces[used++] = (struct iovec){data++, 1};
		size--;
	}
	if (size)
		pieces[used++] = (struct iovec){data, size};
	return used;
}

static int cut_messages(char *data, size_t size)
{
	int count = cut(data, size, 5);

	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < count; i++) {
		messages[i].msg_hdr.msg_iov = &pieces[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	return count;
}

static ssize_t sum_of(int count)
{
	ssize_t size = 0;

	for (int i = 0; i < count; i++)
		size += messages[i].msg_len;
	return count < 0 ? count : size;
}

static void fill_file(int *file, char *data, size_t size)
{
	if (*file < 0)
		*file = memfd_create("body", 0);
	if (pwrite(*file, data, size, 0) != (ssize_t)size)
		die("pwrite");
}

static ssize_t splice_out(int fd, char *data, size_t size)
{
	static int pipes[2] = {-1, -1};
	static size_t in_pipe;
	ssize_t result;

	if (pipes[0] < 0 && pipe(pipes))
		die("pipe");
	if (!in_pipe) {
		in_pipe = size < 60000 ? size : 60000;
		if (write(pipes[1], data, in_pipe) != (ssize_t)in_pipe)
			die("write to a pipe");
	}
	result = splice(pipes[0], 0, fd, 0, in_pipe, SPLICE_F_MOVE);
	if (result > 0)
		in_pipe -= result;
	return result;
}

static ssize_t send_once(const char *way, int fd, char *data, size_t size)
{
	static int file = -1;
	struct msghdr message = {.msg_iov = pieces};
	off_t offset = 0;

	if (!strcmp(way, "write"))
		return write(fd, data, size);
	if (!strcmp(way, "send"))
		return send(fd, data, size, 0);
	if (!strcmp(way, "zerocopy"))
		return send(fd, data, size, MSG_ZEROCOPY);
	if (!strcmp(way, "writev"))
		return writev(fd, pieces, cut(data, size, 7));
	if (!strcmp(way, "writev300"))
		return writev(fd, pieces, cut_head(data, size));
	if (!strcmp(way, "sendmsg")) {
		message.msg_iovlen = cut(data, size, 7);
		return sendmsg(fd, &message, 0);
	}
	if (!strcmp(way, "sendmmsg"))
		return sum_of(sendmmsg(fd, messages, cut_messages(data, size), 0));
	if (!strcmp(way, "sendfile")) {
		fill_file(&file, data, size);
		return sendfile(fd, file, &offset, size);
	}
	if (!strcmp(way, "splice"))
		return splice_out(fd, data, size);
	if (!strcmp(way, "uring"))
		return by_ring(IORING_OP_SEND, fd, data, size, 0);
	if (!strcmp(way, "uring_worker"))
		return by_ring(IORING_OP_WRITE, fd, data, size, 1);
	fprintf(stderr, "no way to send: %s\n", way);
	exit(1);
}

static ssize_t splice_in(int fd, char *data, size_t size)
{
	static int pipes[2] = {-1, -1};
	ssize_t result;

	if (pipes[0] < 0 && pipe(pipes))
		die("pipe");
	result = splice(fd, 0, pipes[1], 0, size < 50000 ? size : 50000, SPLICE_F_MOVE);
	if (result > 0 && read(pipes[0], data, result) != result)
		die("read from a pipe");
	return result;
}

static ssize_t receive_once(const char *way, int fd, char *data, size_t size)
{
	struct msghdr message = {.msg_iov = pieces};
	char peeked[5000];

	if (!strcmp(way, "read"))
		return read(fd, data, size);
	if (!strcmp(way, "recv"))
		return recv(fd, data, size, 0);
	if (!strcmp(way, "peek")) {
		if (recv(fd, peeked, sizeof(peeked) < size ? sizeof(peeked) : size, MSG_PEEK) < 0)
			return -1;
		return recv(fd, data, size, 0);
	}
	if (!strcmp(way, "truncate"))
		return recv(fd, NULL, size, MSG_TRUNC);
	if (!strcmp(way, "readv"))
		return readv(fd, pieces, cut(data, size, 7));
	if (!strcmp(way, "readv300"))
		return readv(fd, pieces, cut_head(data, size));
	if (!strcmp(way, "recvmsg")) {
		message.msg_iovlen = cut(data, size, 7);
		return recvmsg(fd, &message, 0);
	}
	if (!strcmp(way, "recvmmsg"))
		return sum_of(recvmmsg(fd, messages, cut_messages(data, size), MSG_WAITFORONE, NULL));
	if (!strcmp(way, "splice"))
		return splice_in(fd, data, size);
	if (!strcmp(way, "uring"))
		return by_ring(IORING_OP_RECV, fd, data, size, 0);
	if (!strcmp(way, "uring_worker"))
		return by_ring(IORING_OP_READ, fd, data, size, 1);
	fprintf(stderr, "no way to receive: %s\n", way);
	exit(1);
}

static void send_all(const char *way, int fd, char *data, size_t size)
{
	while (size) {
		size_t done = moved(send_once(way, fd, data, size), fd, POLLOUT, &sent_bytes);

		data += done;
		size -= done;
	}
}

/* recvmmsg leaves holes between its messages; what arrives is not looked at. */
static void receive_all(const char *way, int fd, char *data, size_t size)
{
	while (size)
		size -= moved(receive_once(way, fd, data, size), fd, POLLIN, &received_bytes);
}

static int head_of(char *text, int is_request, const char *path, int number)
{
	if (is_request)
		return sprintf(text, "POST /%s/%d HTTP/1.1\r\nHost: test\r\nX-Fill: %0200d\r\nContent-Length: %d\r\n\r\n", path,
			       number, 0, body_sizes[number]);
	return sprintf(text, "HTTP/1.1 20%d Text\r\nX-Fill: %0200d\r\nContent-Length: %d\r\n\r\n", number, 0,
		       body_sizes[number]);
}

/* One end of one path. Ways with a star move only bodies. */
static void talk(const char *path, const char *sender, const char *receiver, int fd, int is_client)
{
	static char data[BODY_MAX];
	const char *way;

	for (int number = 0; number < REQUESTS; number++) {
		for (int turn = 0; turn < 2; turn++) {
			int head = head_of(data, turn == 0, path, number), body = body_sizes[number];
			int sends = is_client == (turn == 0);

			way = sends ? sender : receiver;
			memset(data + head, 'x', body);
			if (*way == '*') {
				if (sends)
					send_all("write", fd, data, head);
				else
					receive_all("read", fd, data, head);
				way++;
			} else {
				body += head;
				head = 0;
			}
			if (sends)
				send_all(way, fd, data + head, body);
			else
				receive_all(way, fd, data + head, body);
		}
	}
}

static void set_up(int fd, int is_nonblocking)
{
	int on = 1, small = 20000;

	setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (is_nonblocking) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	}
}

static void run(FILE *result, const char *path, const char *role, int fd)
{
	char copy[100], *sender, *receiver, *mode;
	struct sockaddr_in address;
	socklen_t size = sizeof(address);
	int is_client = !strcmp(role, "client");

	snprintf(copy, sizeof(copy), "%s", path);
	sender = strtok(copy, ":");
	receiver = strtok(NULL, ":");
	mode = strtok(NULL, ":");
	sent_bytes = received_bytes = 0;
	is_partial = mode != NULL;
	set_up(fd, is_partial);
	if ((is_client ? getsockname : getpeername)(fd, (struct sockaddr *)&address, &size))
		die("getsockname");
	talk(path, sender, receiver, fd, is_client);
	fprintf(result, "%s %s %d %d %lld %lld\n", path, role, getpid(), ntohs(address.sin_port), sent_bytes, received_bytes);
	close(fd);
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), status;
	FILE *result = fopen(arguments[1], "a");
	pid_t server;

	alarm(60);
	setlinebuf(result);
	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 8))
		die("listen");
	getsockname(listener, (struct sockaddr *)&address, &size);
	server = fork();
	alarm(60);
	open_ring();
	for (int i = 2; i < count; i++) {
		int fd;

		if (server == 0) {
			fd = accept(listener, NULL, NULL);
		} else {
			fd = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(fd, (struct sockaddr *)&address, size))
				die("connect");
		}
		run(result, arguments[i], server == 0 ? "server" : "client", fd);
	}
	if (server == 0)
		return 0;
	if (waitpid(server, &status, 0) < 0 || status)
		return 1;
	return 0;
}
