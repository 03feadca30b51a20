/* SPDX-License-Identifier: Apache-2.0 */
/* Walks copied stacks by libdw, the second oracle of the tests and the other side of a bench. One
 * Dwfl is kept for all stacks of one process. */
#include <elfutils/libdwfl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS = 17 }; /* DWARF's numbers: rax rdx rcx rbx rsi rdi rbp rsp r8 to r15, rip */

struct walker {
	Dwfl *dwfl;
	pid_t pid;
	const uint64_t *registers;
	const uint8_t *stack;
	uint64_t base, size;
	uint64_t *addresses;
	uint32_t count, most;
};

static int find_no_debuginfo(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
			     const char *file, const char *link, GElf_Word crc, char **path)
{
	(void)module, (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc;
	(void)path;
	return -1;
}

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_linux_proc_find_elf,
	.find_debuginfo = find_no_debuginfo,
};

static pid_t next_thread(Dwfl *dwfl, void *argument, void **thread)
{
	struct walker *walker = argument;

	(void)dwfl;
	if (*thread)
		return 0;
	*thread = walker;
	return walker->pid;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *result, void *argument)
{
	struct walker *walker = argument;

	(void)dwfl;
	if (address < walker->base || address - walker->base > walker->size - sizeof(*result))
		return false;
	memcpy(result, walker->stack + (address - walker->base), sizeof(*result));
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *argument)
{
	struct walker *walker = argument;

	dwfl_thread_state_register_pc(thread, walker->registers[REGISTERS - 1]);
	return dwfl_thread_state_registers(thread, 0, REGISTERS, walker->registers);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

static int on_frame(Dwfl_Frame *frame, void *argument)
{
	struct walker *walker = argument;
	Dwarf_Addr address;

	if (walker->count == walker->most || !dwfl_frame_pc(frame, &address, NULL))
		return DWARF_CB_ABORT;
	walker->addresses[walker->count++] = address;
	return DWARF_CB_OK;
}

void close_walker(struct walker *walker)
{
	if (walker)
		dwfl_end(walker->dwfl);
	free(walker);
}

/* `maps`: what /proc/PID/maps said. NULL where libdw refuses it. */
struct walker *open_walker(pid_t pid, char *maps, size_t size)
{
	struct walker *walker = calloc(1, sizeof(*walker));
	FILE *file = fmemopen(maps, size, "r");

	walker->dwfl = dwfl_begin(&callbacks);
	walker->pid = pid;
	if (!file || dwfl_linux_proc_maps_report(walker->dwfl, file) ||
	    dwfl_report_end(walker->dwfl, NULL, NULL) ||
	    !dwfl_attach_state(walker->dwfl, NULL, pid, &thread_callbacks, walker)) {
		close_walker(walker);
		walker = NULL;
	}
	if (file)
		fclose(file);
	return walker;
}

/* Walks `count` stacks of `size` bytes each, that lie one after another and begin at `base` in the
 * process; returns the frames of the last one. */
uint32_t walk(struct walker *walker, const uint64_t *registers, const uint8_t *stacks,
	      uint64_t base, uint64_t size, uint32_t count, uint64_t *addresses, uint32_t most)
{
	walker->registers = registers;
	walker->base = base;
	walker->size = size;
	walker->addresses = addresses;
	walker->most = most;
	for (uint32_t i = 0; i < count; i++) {
		walker->stack = stacks + i * size;
		walker->count = 0;
		dwfl_getthread_frames(walker->dwfl, walker->pid, on_frame, walker);
	}
	return walker->count;
}
