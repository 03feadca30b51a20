/* vfork, then execve in the child: argv[1...] is what it runs. Prints the child's pid. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int status;
	pid_t child;

	alarm(20);
	if (argc < 2)
		return 1;
	child = vfork();
	if (child == 0) {
		execv(argv[1], argv + 1);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	printf("%d\n", child);
	return 0;
}
