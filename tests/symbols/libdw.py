"""Copied stacks walked by libdw: through the small C of oracle/, and through ctypes alone."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.symbols.stopped import Captured

SOURCE: Final = Path(__file__).parent / "oracle" / "libdw_walk.c"
HEADER: Final = Path("/usr/include/elfutils/libdwfl.h")
MOST: Final = 256
# DWARF's registers in struct user_regs_struct: rax rdx rcx rbx rsi rdi rbp rsp r8 to r15, rip
PLACES: Final = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
_CALLBACK_OK: Final = 0

Registers = ctypes.c_uint64 * len(PLACES)
Addresses = ctypes.c_uint64 * MOST


def _registers(captured: Captured) -> Any:
    return Registers(*(captured.registers[place] for place in PLACES))


class Shim:
    """libdw through C; one process."""

    def __init__(self, folder: Path, captured: Captured, pid: int) -> None:
        """Compile the C into `folder`, and open the files of the process, which must still be there."""
        target = folder / "libdw_walk.so"
        if not target.exists():
            command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(target), str(SOURCE), "-ldw"]
            subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(target))
        self._library.open_walker.restype = ctypes.c_void_p
        self._library.walk.restype = ctypes.c_uint32
        maps = captured.maps.encode()
        self._walker = ctypes.c_void_p(self._library.open_walker(pid, maps, ctypes.c_size_t(len(maps))))
        assert self._walker.value, "libdw refused the mappings"
        self._registers, self._sp = _registers(captured), ctypes.c_uint64(int(captured.samples["sp"][0]))

    def walk(self, stacks: bytes, size: int) -> list[int]:
        """Walk stacks of `size` bytes each; returns the addresses of the last one."""
        found = Addresses()
        count = len(stacks) // size
        depth = self._library.walk(
            self._walker, self._registers, stacks, self._sp, ctypes.c_uint64(size), count, found, MOST
        )
        return found[:depth]

    def close(self) -> None:
        """Let go of the files."""
        self._library.close_walker(self._walker)


class ByCallbacks:
    """libdw with Python functions as its callbacks, as a program without a compiler has it; one process."""

    def __init__(self, captured: Captured, pid: int) -> None:
        """Open the files of the process, which must still be there."""
        library, libc = ctypes.CDLL("libdw.so.1"), ctypes.CDLL(None)
        void = ctypes.c_void_p
        for name in ("dwfl_begin",):
            getattr(library, name).restype = void
        libc.fmemopen.restype = void
        no_debuginfo = ctypes.CFUNCTYPE(ctypes.c_int, *(void,) * 6, ctypes.c_uint32, void)(lambda *_: -1)
        find_elf = ctypes.cast(library.dwfl_linux_proc_find_elf, void)
        self._callbacks = (void * 4)(find_elf.value, ctypes.cast(no_debuginfo, void).value, None, None)
        self._dwfl = void(library.dwfl_begin(self._callbacks))
        maps = ctypes.create_string_buffer(captured.maps.encode())
        file = void(libc.fmemopen(maps, ctypes.c_size_t(len(maps) - 1), b"r"))
        assert not library.dwfl_linux_proc_maps_report(self._dwfl, file)
        assert not library.dwfl_report_end(self._dwfl, None, None)
        libc.fclose(file)
        self._library, self._pid, self._sp = library, pid, int(captured.samples["sp"][0])
        self._registers, self._stack, self._found = _registers(captured), b"", list[int]()
        self._functions = self._make_callbacks()
        pointers = [ctypes.cast(one, void).value for one in self._functions[:3]]
        # next_thread, get_thread, memory_read, set_initial_registers, detach, thread_detach
        self._thread_callbacks = (void * 6)(pointers[0], None, pointers[1], pointers[2], None, None)
        self._kept = no_debuginfo, maps
        assert library.dwfl_attach_state(self._dwfl, None, pid, self._thread_callbacks, None)

    def _make_callbacks(self) -> list[Any]:
        void, word = ctypes.c_void_p, ctypes.c_uint64
        library = self._library

        def next_thread(_dwfl: Any, _argument: Any, thread: Any) -> int:
            if thread[0]:
                return 0
            thread[0] = 1
            return self._pid

        def memory_read(_dwfl: Any, address: int, result: Any, _argument: Any) -> bool:
            at = address - self._sp
            if not 0 <= at <= len(self._stack) - 8:
                return False
            result[0] = int.from_bytes(self._stack[at : at + 8], "little")
            return True

        def set_registers(thread: Any, _argument: Any) -> bool:
            library.dwfl_thread_state_register_pc(void(thread), word(self._registers[-1]))
            return bool(library.dwfl_thread_state_registers(void(thread), 0, len(PLACES), self._registers))

        def on_frame(frame: Any, _argument: Any) -> int:
            address = word()
            library.dwfl_frame_pc(void(frame), ctypes.byref(address), None)
            self._found.append(address.value)
            return _CALLBACK_OK

        return [
            ctypes.CFUNCTYPE(ctypes.c_int, void, void, ctypes.POINTER(void))(next_thread),
            ctypes.CFUNCTYPE(ctypes.c_bool, void, word, ctypes.POINTER(word), void)(memory_read),
            ctypes.CFUNCTYPE(ctypes.c_bool, void, void)(set_registers),
            ctypes.CFUNCTYPE(ctypes.c_int, void, void)(on_frame),
        ]

    def walk(self, stack: bytes) -> list[int]:
        """Return the addresses of one stack."""
        self._stack, self._found = stack, []
        self._library.dwfl_getthread_frames(self._dwfl, self._pid, self._functions[3], None)
        return self._found

    def close(self) -> None:
        """Let go of the files."""
        self._library.dwfl_end(self._dwfl)
