/*
 * A program that is over before anybody can look at it: three calls deep, from itself, from a child and after an exec.
 * `stack_short`: execs itself, forks, unlinks its own file, calls; the child calls too. `stack_short deep`: calls once,
 * from far below.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 3 };

__attribute__((noinline)) int innermost(int number)
{
	__asm__ volatile("");
	return number + 1;
}

__attribute__((noinline)) int middle(int number)
{
	int sum = innermost(number);

	__asm__ volatile("");
	return sum + 1;
}

__attribute__((noinline)) int deeper(int left)
{
	volatile char room[64] = {0};
	int sum = left ? deeper(left - 1) : middle(left);

	return sum + room[left];
}

int main(int count, char **arguments)
{
	int status = 0;
	pid_t child;

	if (count == 2 && !strcmp(arguments[1], "deep"))
		return deeper(50) < 0;
	if (count == 1) {
		execl(arguments[0], arguments[0], "again", NULL);
		return 1;
	}
	unlink(arguments[0]);
	child = fork();
	for (int i = 0; i < TIMES; i++)
		middle(i);
	if (child == 0)
		return 0;
	return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}
