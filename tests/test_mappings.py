"""Following memory: listed once, again when something is unknown, never another's; this process is the target."""

import ctypes
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.decode.stack_records import MS, USER, add_stack, writer
from tests.symbols.stopped import needs_x86

from tracehound import mappings
from tracehound.batch import Batch, split
from tracehound.btf import wire_layout
from tracehound.mappings import Mappings, add_mapping
from tracehound.procfs import FactWriter
from tracehound.symbols.address_space import FileKey, Mapped

pytestmark = needs_x86

PID = os.getpid()
GETPID = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value or 0


class Followed:
    """Mappings with what they told so far."""

    def __init__(self, follows: Mappings, facts: FactWriter) -> None:
        self.follows, self._facts = follows, facts

    def take(self) -> Batch:
        return split(self._facts.take(), wire_layout())

    def see(self, ip: int, *chain: int, pid: int = PID, time_ns: int = MS) -> Batch:
        """Return the facts that a stack brings about."""
        made = writer()
        add_stack(made, 1, pid, (ip, 1 << 40, 0), b"", time_ns=time_ns, chain=(USER, *chain) if chain else ())
        return self.look(made)

    def look(self, made: FactWriter) -> Batch:
        self.follows.look_at([split(made.take(), wire_layout())])
        return self.take()


@pytest.fixture
def followed() -> Iterator[Followed]:
    facts = writer()
    with Mappings(facts, wire_layout()) as follows:
        yield Followed(follows, facts)


@pytest.fixture
def own_code() -> Iterator[int]:
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as memory:
        held = ctypes.c_char.from_buffer(memory)
        yield ctypes.addressof(held)
        del held


def kinds(batch: Batch) -> set[str]:
    return set(batch.records)


def holds(batch: Batch, address: int) -> bool:
    fixed = batch.records["fact_mapping"].fixed
    return any(row["start"] <= address < row["end"] for row in fixed)


def test_listed_at_the_first_stack_with_its_time(followed: Followed) -> None:
    found = followed.see(GETPID, time_ns=7 * MS)
    fixed = found.records["fact_mapping"].fixed
    assert holds(found, GETPID)
    assert set(fixed["time_ns"].tolist()) == {7 * MS}
    assert set(fixed["pid"].tolist()) == {PID}
    flags = wire_layout().enum("mapping_flag")
    is_first = [bool(flag & flags["MAPPING_FIRST"]) for flag in fixed["flags"].tolist()]
    assert is_first == [True, *[False] * (len(fixed) - 1)]
    assert kinds(followed.see(GETPID)) == set()


@pytest.mark.parametrize("in_chain", [False, True])
def test_listed_again_for_an_unknown_address(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, in_chain: bool
) -> None:
    followed.see(GETPID)
    new: int = request.getfixturevalue("own_code")
    seen = (GETPID, new) if in_chain else (new,)
    assert kinds(followed.see(*seen)) == set()  # at most once in a second
    monkeypatch.setattr(mappings, "AGAIN_NS", -1)
    assert kinds(followed.see(GETPID, GETPID + 1)) == set()  # nothing is unknown
    assert holds(followed.see(*seen), new)
    assert kinds(followed.see(*seen)) == set()


def test_listed_again_when_walks_led_out(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.see(GETPID)
    followed.follows.read_again({PID})
    assert kinds(followed.take()) == set()
    monkeypatch.setattr(mappings, "AGAIN_NS", -1)
    followed.follows.read_again({PID})
    assert holds(followed.take(), GETPID)


@pytest.mark.parametrize("kind", ["exec", "exit"])
def test_another_program_is_listed_anew(followed: Followed, kind: str) -> None:
    followed.see(GETPID)
    made = writer()
    made.add(kind, 2 * MS, {"pid": PID})
    followed.look(made)
    assert holds(followed.see(GETPID), GETPID)


def test_a_process_that_is_gone_tells_nothing(followed: Followed) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert kinds(followed.see(GETPID, pid=process.pid)) == set()


def test_a_pid_that_is_not_ours_is_not_looked_up() -> None:
    facts = writer()
    with Mappings(facts, wire_layout(), lambda _: None) as follows:
        assert kinds(Followed(follows, facts).see(GETPID)) == set()


def test_names_of_own_code_come_as_they_are_written(followed: Followed, own_code: int) -> None:
    path = Path(f"/tmp/perf-{PID}.map")
    try:
        path.write_bytes(b"%x 10 first\n" % own_code)
        path.chmod(0o644)
        found = followed.see(own_code)
        records = found.records["fact_module"]
        assert (records.tails, records.fixed["pid"].tolist()) == (b"%x 10 first\n" % own_code, [PID])
        assert kinds(followed.see(own_code)) == set()
    finally:
        path.unlink()


def test_mappings_that_the_kernel_tells_are_known(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "AGAIN_NS", -1)
    followed.see(GETPID)
    program = os.stat("/bin/true")
    key = FileKey(b"", (os.major(program.st_dev), os.minor(program.st_dev)), program.st_ino, b"/bin/true")
    made = writer()
    add_mapping(made, PID, 2 * MS, Mapped(1 << 30, (1 << 30) + 4096, 0, key), 0)
    before = len(os.listdir("/proc/self/fd"))
    assert kinds(followed.look(made)) == set()
    assert len(os.listdir("/proc/self/fd")) == before + 1  # held
    assert kinds(followed.see((1 << 30) + 8)) == set()
