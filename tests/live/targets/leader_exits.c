/* The leader ends first; another thread lives on for 300 ms and ends the process with code 7. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *live_on(void *unused)
{
	(void)unused;
	usleep(300000);
	exit(7);
}

int main(void)
{
	pthread_t thread;

	alarm(20);
	if (pthread_create(&thread, NULL, live_on, NULL) != 0)
		return 1;
	pthread_exit(NULL);
}
