/* A thread that is not the leader calls execve; argv[1...] is what it runs. */
#include <pthread.h>
#include <unistd.h>

static void *run(void *arguments)
{
	char **argv = arguments;

	execv(argv[0], argv);
	_exit(127);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	alarm(20);
	if (argc < 2 || pthread_create(&thread, NULL, run, argv + 1) != 0)
		return 1;
	for (;;)
		pause();
}
