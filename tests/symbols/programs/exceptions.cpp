/* SPDX-License-Identifier: Apache-2.0 */
/* Waits in a destructor that an exception runs, in the handler that caught it, or where none does. */
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) static void stop()
{
	printf("%ld\n", static_cast<long>(syscall(SYS_gettid)));
	fflush(stdout);
	for (;;)
		pause();
}

struct Guard {
	bool stops;
	__attribute__((noinline)) ~Guard()
	{
		if (stops)
			stop();
	}
};

__attribute__((noinline)) static void throws(bool in_destructor)
{
	Guard guard{in_destructor};

	throw std::runtime_error("thrown");
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	if (argc > 1 && !strcmp(argv[1], "terminate")) {
		std::set_terminate(stop);
		throws(false);
	}
	try {
		throws(argc > 1 && !strcmp(argv[1], "destructor"));
	} catch (const std::exception &) {
		stop();
	}
	return 0;
}
