"""Programs that wait at a known place: compiled, started, and read without privilege as their parent may."""

import ctypes
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pytest

from tracehound.symbols.elf import Elf
from tracehound.symbols.go import go_table
from tracehound.symbols.go_rows import unwind_rows
from tracehound.symbols.unwind import SAMPLE, Mapping, Table, make_ranges

FOLDER = Path(__file__).parent / "programs"
PTRACE_GETREGS, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 12, 17, 0x4206, 0x4207
PAUSE = "34"  # the call that stop() of the programs waits in
FUTEX = "202"
WALL = 0x40000000  # __WALL: threads too
RBP, RIP, RSP = 4, 16, 19  # places in struct user_regs_struct

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="stacks are walked on x86-64 only")
needs_gdb = pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


@dataclass
class Captured:
    """One stopped thread, as a probe would hand it over.

    `registers` as in struct user_regs_struct; `maps` is what /proc had.
    """

    tables: list[Table]
    ranges: npt.NDArray[Any]
    samples: npt.NDArray[Any]
    stack: bytes
    elfs: list[Elf]
    mappings: list[Mapping]
    registers: tuple[int, ...] = ()
    maps: str = ""


def compile_program(folder: Path, source: str, *flags: str) -> Path:
    """Compile a program of `programs/` into `folder`."""
    target = folder / "-".join([source, *(flag.strip("-") for flag in flags)])
    compiler = "g++" if source.endswith(".cpp") else "gcc"
    subprocess.run([compiler, "-g", *flags, "-pthread", "-o", str(target), str(FOLDER / source)], check=True)
    return target


@contextmanager
def waiting(program: Path, *arguments: str, call: str = PAUSE) -> Iterator[tuple[int, int]]:
    """Run a program until it waits in a system call; yields its pid and the thread that waits, which it prints."""
    with subprocess.Popen([str(program), *arguments], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            tid = int(process.stdout.readline())
            _wait_for_call(process, tid, call)
            yield process.pid, tid
        finally:
            process.kill()


def _wait_for_call(process: subprocess.Popen[bytes], tid: int, call: str) -> None:
    calls = Path(f"/proc/{process.pid}/task/{tid}/syscall")
    while process.poll() is None and calls.read_text().split()[0] != call:
        time.sleep(0.001)


def capture(pid: int, tid: int, stack_bytes: int = 65536, with_files: bool = True) -> Captured:
    """Stop a thread, copy its registers, stack and mappings, let it go on; only what is executable is mapped.

    Without files only registers and stack are there.
    """
    _ptrace(PTRACE_SEIZE, tid)
    try:
        _ptrace(PTRACE_INTERRUPT, tid)
        os.waitpid(tid, WALL)
        registers = (ctypes.c_uint64 * 27)()
        _ptrace(PTRACE_GETREGS, tid, ctypes.addressof(registers))
        sp = registers[RSP]
        maps = Path(f"/proc/{pid}/maps").read_text()
        lines = [line.split(maxsplit=5) for line in maps.splitlines()]
        spans = [[int(part, 16) for part in line[0].split("-")] for line in lines]
        end = next(end for start, end in spans if start <= sp < end)
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(sp)
            stack = memory.read(min(stack_bytes, end - sp))
            elfs, mappings = _map(lines, spans, memory) if with_files else ([], [])
    finally:
        _libc.ptrace(PTRACE_DETACH, tid, None, None)
    ranges = make_ranges(mappings)
    sample = (registers[RIP], sp, registers[RBP], 0, len(stack), 0, len(ranges), 0)
    tables = [Table(unwind_rows(elf, go_table(elf))) for elf in elfs]
    samples = np.array([sample], dtype=SAMPLE)
    return Captured(tables, ranges, samples, stack, elfs, mappings, tuple(registers), maps)


def _map(lines: list[list[str]], spans: list[list[int]], memory: BinaryIO) -> tuple[list[Elf], list[Mapping]]:
    elfs: list[Elf] = []
    mappings = []
    for line, (start, end) in zip(lines, spans, strict=True):
        if "x" not in line[1]:
            continue
        path = line[5] if len(line) > 5 else ""
        elf, offset = None, int(line[2], 16)
        if path.startswith("/"):
            elf = next((one for one in elfs if one.name == path), None) or Elf.open(path)
        elif path == "[vdso]":
            memory.seek(start)
            elf, offset = Elf(memory.read(end - start), path), 0
        if elf and elf not in elfs:
            elfs.append(elf)
        mappings.append(Mapping(start, end, offset, elfs.index(elf) if elf else -1, elf))
    return elfs, mappings


def _ptrace(request: int, tid: int, data: int | None = None) -> None:
    if _libc.ptrace(request, tid, None, data):
        raise OSError(ctypes.get_errno(), f"ptrace {request}: {os.strerror(ctypes.get_errno())}")


def gdb_stack(pid: int, tid: int) -> list[int]:
    """Return the addresses of gdb's frames, innermost first, without those it makes up for inlined and tail calls."""
    script = f"""
for one in gdb.selected_inferior().threads():
    if one.ptid[1] == {tid}: one.switch()
frame = gdb.newest_frame()
while frame:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): print("pc", frame.pc())
    frame = frame.older()
"""
    settings = ("set debuginfod enabled off", "set backtrace past-main on", "set backtrace past-entry on")
    command = ["gdb", "-nx", "-batch", *(part for one in settings for part in ("-ex", one)), "-p", str(pid)]
    done = subprocess.run([*command, "-ex", f"python exec({script!r})"], capture_output=True, text=True, check=True)
    found = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("pc ")]
    assert found, done.stdout + done.stderr
    return found
