"""Options of perf rings and of `call`: what is refused in a line, what becomes of names and numbers; no root needed."""

import mmap
import signal

import pytest

from tracehound.errors import UsageError
from tracehound.kernel.call_options import CallOptions, parse_registers, parse_signal
from tracehound.kernel.perf import ExtraOptions, PerfReader, default_pages, online_cpus, own_registers

NAMES = tuple(own_registers())


@pytest.mark.parametrize(("text", "cpus"), [("0\n", [0]), ("0-3", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8])])
def test_cpus_on_line(text: str, cpus: list[int]) -> None:
    assert online_cpus(text) == cpus


@pytest.mark.parametrize(("cpus", "mib"), [(1, 4), (16, 4), (17, 2), (64, 1), (512, 0.25)])
def test_rings_are_smaller_where_there_are_many_cpus(cpus: int, mib: float) -> None:
    assert default_pages(cpus) * mmap.PAGESIZE == mib * (1 << 20)


@pytest.mark.parametrize("size", [1, 504, 513, 65008, -8])
def test_sizes_of_stacks_that_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"--stack-size must be 512 to 65000 bytes and a multiple of 8, not {size}"):
        ExtraOptions(stack_bytes=size)


def test_registers_of_another_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="no registers of this machine: mask 0x8000000000000000"):
        ExtraOptions(registers=1 << 63)


@pytest.mark.parametrize("pages", [0, 3, 1000])
def test_pages_are_a_power_of_two(pages: int) -> None:
    with pytest.raises(UsageError, match=f"--perf-pages must be a power of two, not {pages}"):
        PerfReader(-1, pages, ExtraOptions())


def test_what_rings_are_asked_for() -> None:
    bits = own_registers()
    every = sum(1 << bit for bit in bits.values())
    assert not CallOptions().has_rings
    assert CallOptions(registers=NAMES[:2]).extra == ExtraOptions(1 << bits[NAMES[0]] | 1 << bits[NAMES[1]])
    assert CallOptions(registers=NAMES[:1], stack_bytes=512).extra == ExtraOptions(every, 512, has_chain=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resumes": True}, "--resume continues what --signal has stopped"),
        ({"watch_rate": 0}, "--watch-rate must be at least 1, not 0"),
        ({"stack_bytes": 100}, "--stack-size must be"),
    ],
)
def test_options_that_cannot_be(options: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CallOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "number"),
    [("STOP", signal.SIGSTOP), ("SIGUSR1", signal.SIGUSR1), ("usr2", signal.SIGUSR2), ("10", 10), ("40", 40)],
)
def test_signals(text: str, number: int) -> None:
    assert parse_signal(text) == number


@pytest.mark.parametrize(
    ("text", "said"),
    [("0", "no signal 0. There are: "), ("65", "no signal 65. There are: "), ("USR", r"no signal USR. Near: USR[12]")],
)
def test_no_signals(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_signal(text)


def test_names_of_registers() -> None:
    assert parse_registers([f"{NAMES[1]}, {NAMES[0].upper()}", NAMES[1]]) == (NAMES[1], NAMES[0])
    with pytest.raises(UsageError, match=f"no register {NAMES[0]}x. Near: {NAMES[0]}"):
        parse_registers([f"{NAMES[0]}x"])
    with pytest.raises(UsageError, match=r"no register \(nothing\). There are: " + NAMES[0]):
        parse_registers([""])
