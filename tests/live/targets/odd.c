// SPDX-License-Identifier: Apache-2.0
// Functions that have no return to be seen, or are none: data inside, a jump at the end, a moved part, a choice.
int plain(int n);
int odd(int n);
int jumps(int n);
int chosen(int n);

static int chosen_one(int n)
{
	return n + 1;
}

static int (*choose(void))(int)
{
	return chosen_one;
}

int chosen(int n) __attribute__((ifunc("choose")));

__attribute__((noinline)) int plain(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 2;
}

#ifdef __x86_64__
#define JUMP "jmp "
#define ADD "lea 3(%rdi), %eax\n\tret\n"
#else
#define JUMP "b "
#define ADD "add w0, w0, 3\n\tret\n"
#endif

__asm__(".text\n"
	"	.globl odd\n"
	"	.type odd, %function\n"
	"odd:	" JUMP "1f\n"
	"	.quad 0x0606060606060606\n"
	"1:	" ADD "	.size odd, . - odd\n"
	"	.type odd.cold, %function\n"
	"odd.cold:\n"
	"	" ADD "	.size odd.cold, . - odd.cold\n"
	"	.globl jumps\n"
	"	.type jumps, %function\n"
	"jumps:	" JUMP "plain\n"
	"	.size jumps, . - jumps\n");

int main(int argc, char **argv)
{
	(void)argv;
	int sum = 0;
	for (int i = 0; i < 5; i++)
		sum += odd(i) + jumps(i) + chosen(argc);
	return sum != 55;
}
