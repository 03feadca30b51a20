/*
 * Makes many different system calls, some that fail: syscalls GROUP..., in an empty directory. What it
 * does is the same each time, so that two tracers can be compared. syscalls run COMMAND...: programs, one
 * after another.
 */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wunused-result"
#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wrestrict"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static void files(void)
{
	struct timespec times[2] = {{1000000000, 5}, {0, UTIME_NOW}};
	struct statfs filesystem;
	struct statx extended;
	struct stat status;
	char text[256];
	int fd;

	mkdir("d", 0750);
	mkdir("d", 0750);
	fd = open("d/\303\244 \"q\"\n", O_CREAT | O_RDWR | O_EXCL | O_CLOEXEC, 0640);
	write(fd, "0123456789012345678901234567890123456789\0tail", 45);
	close(fd);
	fd = syscall(SYS_open, "d/new", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	close(fd);
	fd = syscall(SYS_creat, "d/created", 0644);
	fchmod(fd, 04711);
	fchown(fd, -1, -1);
	ftruncate(fd, 4096);
	close(fd);
	truncate("d/created", 10);
	chmod("d/created", 0);
	syscall(SYS_chown, "d/created", 0, 0);
	lchown("d/none", 1, 2);
	fchownat(AT_FDCWD, "d/created", 0, -1, AT_SYMLINK_NOFOLLOW);
	fchmodat(AT_FDCWD, "d/created", 0644, 0);
	link("d/created", "d/linked");
	linkat(AT_FDCWD, "d/created", AT_FDCWD, "d/linked", 0);
	symlink("created", "d/symbolic");
	symlinkat("created", AT_FDCWD, "d/symbolic2");
	readlink("d/symbolic", text, sizeof(text));
	readlink("d/created", text, sizeof(text));
	readlinkat(AT_FDCWD, "d/symbolic", text, 3);
	syscall(SYS_access, "d/created", R_OK | W_OK);
	syscall(SYS_access, "d/none", F_OK);
	faccessat(AT_FDCWD, "d/created", X_OK, 0);
	syscall(SYS_stat, "d", &status);
	syscall(SYS_stat, "/dev/null", &status);
	syscall(SYS_lstat, "d/symbolic", &status);
	syscall(SYS_lstat, NULL, &status);
	fstatat(AT_FDCWD, "d/symbolic", &status, AT_SYMLINK_NOFOLLOW);
	statx(AT_FDCWD, "d/created", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &extended);
	statx(AT_FDCWD, "d/none", 0, STATX_SIZE | STATX_MODE, &extended);
	statfs("/proc", &filesystem);
	utimensat(AT_FDCWD, "d/created", times, 0);
	utimensat(AT_FDCWD, "d/created", NULL, AT_SYMLINK_NOFOLLOW);
	rename("d/created", "d/renamed");
	renameat(AT_FDCWD, "d/none", AT_FDCWD, "d/other");
	syscall(SYS_renameat2, AT_FDCWD, "d/renamed", AT_FDCWD, "d/linked", 1);
	mknod("d/fifo", S_IFIFO | 0600, 0);
	mknodat(AT_FDCWD, "d/device", S_IFCHR | 0600, 0x103);
	setxattr("d/renamed", "user.name", "value", 5, XATTR_CREATE);
	getxattr("d/renamed", "user.none", text, sizeof(text));
	removexattr("d/renamed", "user.name");
	unlink("d/renamed");
	unlinkat(AT_FDCWD, "d/none", AT_REMOVEDIR);
	mkdirat(AT_FDCWD, "e", 01777);
	rmdir("e");
	chdir("d");
	getcwd(text, sizeof(text));
	chdir("/none");
	umask(022);
	umask(0);
	chroot("none");
}

static void descriptors(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 5};
	struct iovec parts[3] = {{"one", 3}, {"two two", 7}, {NULL, 0}};
	struct pollfd polled[2];
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 7};
	struct timespec none = {0, 0};
	struct timeval tick = {0, 1000};
	struct itimerspec timer = {{0, 0}, {100, 5}};
	char text[256], other[8];
	int pipes[2], epoll, fd, number;
	struct winsize window;
	fd_set readable;
	sigset_t set;

	fd = open("f", O_CREAT | O_RDWR, 0600);
	writev(fd, parts, 3);
	pwrite(fd, "\0\001\0029\177\377", 6, 2);
	lseek(fd, 0, SEEK_SET);
	lseek(fd, -5, SEEK_SET);
	read(fd, text, 5);
	pread(fd, text, 100, 1);
	pread(fd, text, 100, 1 << 20);
	parts[0].iov_base = text;
	parts[0].iov_len = 4;
	parts[1].iov_base = other;
	parts[1].iov_len = 8;
	lseek(fd, 1, SEEK_SET);
	readv(fd, parts, 2);
	preadv(fd, parts, 2, 3);
	pwritev(fd, parts, 1, 3);
	fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8192);
	posix_fadvise(fd, 0, 10, POSIX_FADV_WILLNEED);
	fsync(fd);
	fdatasync(fd);
	flock(fd, LOCK_EX | LOCK_NB);
	dup(fd);
	dup2(fd, 20);
	dup3(fd, 21, O_CLOEXEC);
	fcntl(fd, F_GETFD);
	fcntl(21, F_GETFD);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, O_RDWR | O_APPEND | O_NONBLOCK);
	fcntl(fd, F_DUPFD_CLOEXEC, 30);
	fcntl(fd, F_SETLK, &lock);
	fcntl(fd, F_GETLK, &lock);
	fcntl(99, F_GETFL);
	pipe2(pipes, O_CLOEXEC);
	syscall(SYS_pipe, pipes);
	write(pipes[1], "hello\n", 6);
	polled[0] = (struct pollfd){pipes[0], POLLIN | POLLPRI, 0};
	polled[1] = (struct pollfd){pipes[1], POLLOUT, 0};
	poll(polled, 2, 100);
	polled[0].fd = -1;
	poll(polled, 1, 1);
	ppoll(polled, 1, &none, NULL);
	FD_ZERO(&readable);
	FD_SET(pipes[0], &readable);
	select(pipes[0] + 1, &readable, NULL, NULL, &tick);
	FD_ZERO(&readable);
	tick.tv_usec = 500;
	select(0, NULL, NULL, NULL, &tick);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event);
	epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event);
	epoll_wait(epoll, &event, 1, 100);
	epoll_wait(epoll, &event, 1, 0);
	epoll_ctl(epoll, EPOLL_CTL_DEL, pipes[0], NULL);
	ioctl(pipes[0], FIONREAD, &number);
	number = 1;
	ioctl(pipes[0], FIONBIO, &number);
	ioctl(fd, TIOCGWINSZ, &window);
	ioctl(fd, FIOCLEX);
	eventfd(5, EFD_NONBLOCK | EFD_SEMAPHORE);
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	timerfd_settime(fd, 0, &timer, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	signalfd(-1, &set, SFD_CLOEXEC);
	fd = inotify_init1(IN_NONBLOCK);
	inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE);
	inotify_rm_watch(fd, 1);
	fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	fcntl(fd, F_ADD_SEALS, F_SEAL_GROW);
	fcntl(fd, F_GET_SEALS);
	fd = open(".", O_RDONLY | O_DIRECTORY);
	syscall(SYS_getdents64, fd, text, sizeof(text));
	syscall(SYS_getdents64, fd, text, sizeof(text));
	fchdir(fd);
	openat(fd, "none", O_RDONLY);
	close(fd);
	close(fd);
	close_range(20, 21, 0);
	splice(pipes[0], NULL, pipes[1], NULL, 10, SPLICE_F_NONBLOCK);
	tee(pipes[0], pipes[1], 10, 0);
	fd = open("f", O_RDONLY);
	sendfile(pipes[1], fd, NULL, 4);
	copy_file_range(fd, NULL, 99, NULL, 4, 0);
	sync_file_range(fd, 0, 4, SYNC_FILE_RANGE_WRITE);
	read(-1, NULL, 1);
	write(fd, NULL, 1);
}

static void *thread(void *argument)
{
	prctl(PR_SET_NAME, "a thread");
	return argument;
}

static void processes(const char *self)
{
	char *arguments[] = {"syscalls", "a \"quoted\"", NULL}, *environment[] = {"A=1", "B=2", NULL};
	siginfo_t info;
	struct rusage usage;
	pthread_t other;
	int status;
	pid_t child;

	child = fork();
	if (!child)
		_exit(3);
	waitpid(child, &status, 0);
	child = fork();
	if (!child)
		kill(getpid(), SIGTERM);
	wait4(child, &status, 0, &usage);
	child = vfork();
	if (!child) {
		execve("./none", arguments, environment);
		execve(self, arguments, environment);
		_exit(1);
	}
	waitid(P_PID, child, &info, WEXITED);
	wait4(-1, &status, WNOHANG, NULL);
	pthread_create(&other, NULL, thread, NULL);
	pthread_join(other, NULL);
	getpid();
	getppid();
	syscall(SYS_gettid);
	setpgid(0, 0);
	getpgid(0);
	getsid(0);
	unshare(CLONE_NEWUTS);
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_GET_DUMPABLE);
	prctl(PR_SET_PDEATHSIG, SIGHUP);
}

static void networks(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET}, peer;
	struct sockaddr_in6 address6 = {.sin6_family = AF_INET6, .sin6_port = 0x0100};
	struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "socket"};
	struct linger linger = {1, 2};
	socklen_t size = sizeof(address);
	int listener, client, server, pair[2], one = 1, sent;
	char text[64], control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec parts[2] = {{"he", 2}, {"llo", 3}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	struct cmsghdr *head;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	bind(listener, (struct sockaddr *)&address, sizeof(address));
	listen(listener, 5);
	getsockname(listener, (struct sockaddr *)&address, &size);
	client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	connect(client, (struct sockaddr *)&address, sizeof(address));
	size = sizeof(peer);
	server = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC);
	size = sizeof(peer);
	getpeername(server, (struct sockaddr *)&peer, &size);
	size = sizeof(one);
	getsockopt(client, SOL_SOCKET, SO_ERROR, &one, &size);
	getsockopt(client, SOL_SOCKET, SO_TYPE, &one, &size);
	send(client, "ping", 4, MSG_NOSIGNAL);
	recv(server, text, sizeof(text), 0);
	recv(server, text, sizeof(text), MSG_DONTWAIT | MSG_PEEK);
	sendto(client, "0123456789012345678901234567890123456789", 40, 0, NULL, 0);
	recvfrom(server, text, sizeof(text), MSG_WAITALL & 0, NULL, NULL);
	sendmsg(client, &message, 0);
	parts[0] = (struct iovec){text, 3};
	parts[1] = (struct iovec){text + 8, 20};
	recvmsg(server, &message, 0);
	shutdown(client, SHUT_WR);
	close(client);
	socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP);
	address6.sin6_addr = in6addr_loopback;
	connect(99, (struct sockaddr *)&address6, sizeof(address6));
	socket(AF_NETLINK, SOCK_RAW, 0);
	socket(AF_INET, 77, 0);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&local, sizeof(local));
	connect(listener, (struct sockaddr *)&local, sizeof(local));
	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	parts[0] = (struct iovec){"fd", 2};
	message.msg_iovlen = 1;
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &listener, sizeof(listener));
	sendmsg(pair[0], &message, MSG_EOR);
	parts[0] = (struct iovec){text, sizeof(text)};
	sent = recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC);
	(void)sent;
	client = socket(AF_INET, SOCK_DGRAM, 0);
	sendto(client, "x", 1, MSG_DONTROUTE, (struct sockaddr *)&address, sizeof(address));
}

static void memory(void)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(page, 4096, PROT_NONE);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	madvise(page, 8192, MADV_DONTNEED);
	madvise(page, 4096, 77);
	msync(page, 4096, MS_SYNC | MS_INVALIDATE);
	mlock(page, 4096);
	munlock(page, 4096);
	mlockall(MCL_CURRENT);
	munlockall();
	page = mremap(page, 8192, 16384, MREMAP_MAYMOVE);
	mmap(page, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 99, 0);
	munmap(page, 16384);
	munmap((void *)1, 0);
	syscall(SYS_brk, 0);
	syscall(SYS_membarrier, 0, 0, 0);
	syscall(SYS_mlock2, page, 4096, MLOCK_ONFAULT);
}

static void handler(int number)
{
	(void)number;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_NODEFER}, before;
	struct itimerval timer = {{0, 0}, {0, 500000}}; /* longer than the way into a call takes */
	struct timespec wait = {5, 0}, left, none = {0, 1};
	stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
	sigset_t set, old;
	timer_t made;

	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGINT);
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGUSR1, &action, &before);
	sigaction(SIGKILL, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGRTMIN + 1, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, &old);
	raise(SIGUSR1);
	sigpending(&set);
	sigtimedwait(&set, NULL, &none);
	sigfillset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	kill(getpid(), 0);
	kill(-99999, SIGUSR2);
	sigaltstack(&stack, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	nanosleep(&wait, &left);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &none, NULL);
	getitimer(ITIMER_REAL, &timer);
	timer_create(CLOCK_REALTIME, NULL, &made);
	timer_delete(made);
	alarm(0);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 500000}}, NULL);
	pause();
	action.sa_flags = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 500000}}, NULL);
	read(syscall(SYS_eventfd2, 0, 0), &set, 8);
}

static void ipc(void)
{
	struct sembuf operation = {0, 1, SEM_UNDO | IPC_NOWAIT};
	struct {
		long type;
		char text[8];
	} letter = {3, "letter"};
	int shared = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600), semaphore, queue;
	void *at = shmat(shared, NULL, SHM_RDONLY);

	shmdt(at);
	shmctl(shared, IPC_RMID, NULL);
	shmget(0x77777777, 4096, IPC_EXCL);
	semaphore = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
	semop(semaphore, &operation, 1);
	semctl(semaphore, 0, GETVAL);
	semctl(semaphore, 0, SETVAL, 4);
	semctl(semaphore, 0, IPC_RMID);
	queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
	msgsnd(queue, &letter, 6, IPC_NOWAIT);
	msgrcv(queue, &letter, 8, 0, MSG_NOERROR);
	msgrcv(queue, &letter, 8, 0, IPC_NOWAIT);
	msgctl(queue, IPC_RMID, NULL);
}

static void others(void)
{
	gid_t groups[64];
	uid_t ids[3];
	struct rlimit limit;
	struct utsname name;
	struct sysinfo info;
	struct rusage usage;
	struct timeval now;
	struct timespec time;
	struct sched_param parameter = {0};
	struct tms passed;
	cpu_set_t cpus;
	int word = 1;

	getuid();
	setreuid(-1, -1);
	getresuid(ids, ids + 1, ids + 2);
	setresgid(-1, -1, -1);
	getgroups(0, NULL);
	getgroups(64, groups);
	getrlimit(RLIMIT_NOFILE, &limit);
	syscall(SYS_getrlimit, RLIMIT_CORE, &limit);
	setrlimit(RLIMIT_NOFILE, &limit);
	uname(&name);
	sysinfo(&info);
	getrusage(RUSAGE_SELF, &usage);
	getrusage(RUSAGE_CHILDREN, &usage);
	times(&passed);
	syscall(SYS_gettimeofday, &now, NULL);
	syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &time);
	syscall(SYS_clock_getres, CLOCK_MONOTONIC, &time);
	syscall(SYS_time, NULL);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	sched_yield();
	sched_getscheduler(0);
	sched_getparam(0, &parameter);
	sched_get_priority_max(SCHED_FIFO);
	getpriority(PRIO_PROCESS, 0);
	setpriority(PRIO_PROCESS, 0, 5);
	syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
	syscall(SYS_futex, &word, FUTEX_WAIT, 2, NULL, NULL, 0);
	syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 2, NULL, NULL, -1);
	syscall(SYS_getrandom, ids, 4, GRND_NONBLOCK);
	syscall(SYS_personality, -1);
	syscall(SYS_sync_file_range, -1, 0, 0, 0);
	syscall(SYS_pidfd_open, getpid(), 0);
	syscall(500);
	gethostname((char *)groups, sizeof(groups));
}

/* A path that lies in memory that nobody has looked at yet. */
static void late(void)
{
	int fd = open("late", O_CREAT | O_RDWR, 0600);
	char *path;

	write(fd, "late path", 10);
	path = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	open(path, O_RDONLY);
	open((char *)8, O_RDONLY);
}

/* A call of the 32-bit table: number 20 is getpid there, writev here. */
static void compat(void)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
#endif
	getpid();
}

/* Run a program, its words with a space between, and wait for its end. */
static void run(char *line)
{
	char *words[32], *word;
	int count = 0;

	for (word = strtok(line, " "); word && count < 31; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	if (!fork()) {
		execvp(words[0], words);
		_exit(127);
	}
	wait(NULL);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} groups[] = {
		{"file", files}, {"desc", descriptors}, {"network", networks}, {"memory", memory},
		{"signal", signals}, {"ipc", ipc}, {"other", others},
		{"late", late}, {"compat", compat},
	};

	if (count < 2 || !strcmp(arguments[0], "syscalls"))
		return 0;
	if (!strcmp(arguments[1], "run")) {
		for (int i = 2; i < count; i++)
			run(arguments[i]);
		return 0;
	}
	for (int i = 1; count > 2 && i < count; i++) { /* each of several in a folder and a process of its own */
		if (!fork()) {
			mkdir(arguments[i], 0700);
			chdir(arguments[i]);
			execl(arguments[0], arguments[0], arguments[i], NULL);
		}
		wait(NULL);
	}
	if (!strcmp(arguments[1], "process"))
		processes(arguments[0]);
	for (unsigned i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (!strcmp(arguments[1], groups[i].name))
			groups[i].run();
	return 0;
}
