/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that leave in every way, and some that only look like code. */
#define NOINLINE __attribute__((noinline))

int outside(int value);
volatile int sink;

NOINLINE int one_return(int value)
{
	sink = value;
	return sink + 1;
}

NOINLINE int many_returns(int value)
{
	if (value < 3)
		return outside(value) + 1;
	if (value < 7) {
		sink = value;
		return outside(value + 1) + 2;
	}
	return outside(value * 3) ^ 5;
}

NOINLINE int only_a_tail_jump(int value)
{
	return many_returns(value + 1);
}

NOINLINE int through_a_pointer(int (*call)(int), int value)
{
	return call(value);
}

NOINLINE int switches(int value)
{
	switch (value) {
	case 0: return outside(4);
	case 1: return sink + 3;
	case 2: sink = 9; return 1;
	case 3: return outside(sink) * 2;
	case 4: return sink >> 3;
	case 5: return outside(1) ^ 77;
	default: return -1;
	}
}

/* Not static: its slow part is moved away, to rare.cold */
NOINLINE int rare(int value)
{
	if (__builtin_expect(value == 77, 0)) {
		outside(1);
		__builtin_trap();
	}
	return outside(value) + sink;
}

__attribute__((cold, noinline)) int unlikely(int value)
{
	return outside(value) + outside(value + 1);
}

NOINLINE int calls_unlikely(int value)
{
	int found = outside(value);

	if (found > 10) {
		found += unlikely(value);
		found += unlikely(found);
		return found * 3;
	}
	return found;
}

#ifdef __x86_64__
/* A table between instructions: each byte of it is a return where it is read as code */
__asm__(".globl with_table\n.type with_table, @function\nwith_table:\n"
	"lea 1f(%rip), %rdx\nmov (%rdx,%rdi,8), %rax\nadd %rdx, %rax\njmp *%rax\n"
	"1: .quad 0xc3c3c3c3c3c3c3c3, 0xc3c3c3c3c3c3c3c3\n2: mov $1, %eax\nret\n.size with_table, .-with_table\n");
/* A constant that is read where it lies, before the function's end */
__asm__(".globl with_constant\n.type with_constant, @function\nwith_constant:\n"
	"mov 1f(%rip), %rax\nret\n1: .quad 0xc3c3c3c3\n.size with_constant, .-with_constant\n");
/* A jump into the middle of another instruction */
__asm__(".globl overlaps\n.type overlaps, @function\noverlaps:\n"
	"test %edi, %edi\nje 1f+1\n1: mov $0xc3c3c3c3, %eax\nret\n.size overlaps, .-overlaps\n");
/* Bytes that are no instruction of a program */
__asm__(".globl says_something\n.type says_something, @function\nsays_something:\n"
	"xor %eax, %eax\nret\n.ascii \"no code, a text\"\n.size says_something, .-says_something\n");
/* What libc does: one thread needs no lock, and jumps over the prefix */
__asm__(".globl over_the_prefix\n.type over_the_prefix, @function\nover_the_prefix:\n"
	"test %esi, %esi\nje 1f+1\n1: lock incl (%rdi)\nrep ret\n.size over_the_prefix, .-over_the_prefix\n");
/* Its size is not said: it reaches to the next one */
__asm__(".globl without_size\n.type without_size, @function\nwithout_size:\nmov $2, %eax\nret\nnop\n");
__asm__(".globl after_it\n.type after_it, @function\nafter_it:\nret\n.size after_it, .-after_it\n");
#endif

NOINLINE int outside(int value)
{
	sink += value;
	return sink;
}

int main(int argc, char **argv)
{
	(void)argv;
	return one_return(argc) + only_a_tail_jump(argc) + through_a_pointer(one_return, argc) + switches(argc) +
	       rare(argc) + calls_unlikely(argc);
}
