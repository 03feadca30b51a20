"""System calls: as strace has them, line by line; what has no entry, other numbers, or is not in memory; secrets.

Lines are compared with those of strace 6.1, without -v: what differs is `DIFFERENCES`, each with its reason.
"""

import difflib
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.live.conftest import RunCli, rows, wait_for
from tests.live.strace import Kept, by_strace, by_tracehound, fresh, lines_of, normalised

import tracehound
from tracehound.agent import Trace
from tracehound.config import Settings
from tracehound.kernel.syscalls import Wishes
from tracehound.syscalls import SyscallSettings, find_calls
from tracehound.target import Processes

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the target makes calls that only x86_64 has")

GROUPS = ("file", "desc", "process", "network", "memory", "signal", "ipc", "other")
PROGRAMS = (
    "cp -r /etc/apt copy", "tar cf all.tar copy", "sort -o sorted /etc/passwd", "flock lock true", "setsid true",
    "ln -s all.tar symbolic", "touch new", "dd status=none if=/dev/zero of=zeros bs=1k count=2", "chmod 600 new",
    "mkdir -p a/b", "mv new a/b", "find . -name none", "rm -r a", "grep -c x sorted -m1 -q",
)  # fmt: skip
AT_LEAST = 150  # different calls that are compared

# A line of strace, ours in its place (both as they are compared), and why.
DIFFERENCES = (
    (
        "getsockopt(4, SOL_SOCKET, SO_TYPE, [1], [4]) = 0",
        "getsockopt(4, SOL_SOCKET, SO_TYPE, [SOCK_STREAM], [4]) = 0",
        "a type of sockets has a name",
    ),
    (
        'msgrcv(N, {mtype=3, mtext="letter\\0\\0"}, 8, 0, MSG_NOERROR) = 6',
        'msgrcv(N, {mtype=3, mtext="letter"}, 8, 0, MSG_NOERROR) = 6',
        "six bytes came: what lies behind them is the receiver's own",
    ),
    (
        "ioctl(4, BTRFS_IOC_CLONE or FICLONE, 3) = -1 EOPNOTSUPP (Operation not supported)",
        "ioctl(4, FICLONE, 3) = -1 EOPNOTSUPP (Operation not supported)",
        "one of its two names",
    ),
    (
        "syscall_0x1f4(0, ADDR, ADDR, ADDR, ADDR, ADDR) = -1 ENOSYS (Function not implemented)",
        None,
        "a number that no call in our table has",
    ),
)
# Not compared, as they are no calls: lines that begin with --- (a signal came) and +++ (a thread ended).


class Compared(NamedTuple):
    """Lines of each thread."""

    by_strace: list[list[str]]
    by_tracehound: list[list[str]]
    trace: Trace
    kept: Kept


@pytest.fixture(scope="module")
def target(c_target: Callable[[str], Path]) -> Path:
    return c_target("syscalls")


@pytest.fixture(scope="module")
def compared(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Every group once under each, in a folder of the same name."""
    folder = tmp_path_factory.mktemp("compared") / "w"
    command = [str(target), *GROUPS]
    return compare(command, folder)


@pytest.fixture(scope="module")
def real(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Real programs, one after another, which write nothing to where the two might differ."""
    folder = tmp_path_factory.mktemp("real") / "w"
    command = [str(target), "run", *PROGRAMS]
    return compare(command, folder)


def compare(command: list[str], folder: Path) -> Compared:
    """Run a command under each tracer, in a folder of the same name that was empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(fresh(folder))
        strace = by_strace(command, folder.parent / "strace")
        patch.chdir(fresh(folder))
        kept, trace = by_tracehound(command)
    return Compared(*normalised(strace, lines_of(kept.rows)), trace, kept)


@pytest.mark.parametrize("what", ["compared", "real"])
def test_lines_are_those_of_strace(what: str, request: pytest.FixtureRequest) -> None:
    compared: Compared = request.getfixturevalue(what)
    assert len(compared.by_tracehound) == len(compared.by_strace)
    allowed = {(theirs, ours) for theirs, ours, _ in DIFFERENCES}
    different = []
    for theirs, ours in zip(compared.by_strace, compared.by_tracehound, strict=True):
        for tag, a, b, c, d in difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
            if tag == "equal":
                continue
            left, right = theirs[a:b], ours[c:d]
            left += [None] * (len(right) - len(left))  # type: ignore[list-item]
            right += [None] * (len(left) - len(right))  # type: ignore[list-item]
            different += [pair for pair in zip(left, right, strict=True) if pair not in allowed]
    assert different == []


def test_many_different_calls_were_compared(compared: Compared) -> None:
    names = {line.split("(")[0] for lines in compared.by_tracehound for line in lines}
    assert len(names) >= AT_LEAST, sorted(names)


def test_nothing_was_lost_or_noticed(compared: Compared) -> None:
    assert compared.kept.losses == []
    assert compared.trace.syscall_totals[1] == {"compat": 0, "no_entry": 0}


def test_the_kernel_counts_what_rows_say(compared: Compared) -> None:
    counted = {total.name: (total.calls, total.errors) for total in compared.trace.syscall_totals[0]}
    ended = [row for row in compared.kept.rows if row["event"] == "call" and not row["incomplete"]]
    by_rows: dict[str, tuple[int, int]] = {}
    for row in ended:
        calls, errors = by_rows.get(row["symbol"], (0, 0))
        by_rows[row["symbol"]] = (calls + 1, errors + (row["errno"] is not None))
    assert counted == by_rows


def test_the_summary_counts_as_strace_does(run_cli: RunCli, target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    text = tmp_path / "strace"
    command = [str(target), "file"]
    subprocess.run(["strace", "-f", "-c", "-o", text, *command], cwd=fresh(folder), check=False, timeout=60)
    shown = run_cli("call", "--no-record", "--summary", "sys:all", "--", *command, cwd=fresh(folder))
    assert shown.code == 0, shown.err
    assert _counts(shown.err, 4) == _counts(text.read_text(), 3)


def _counts(text: str, at: int) -> dict[str, tuple[int, int]]:
    """Return calls and errors of each name in a summary whose calls stand in that column."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > at + 1 and words[at].isdigit() and words[-1] != "total":
            found[words[-1]] = (int(words[at]), int(words[at + 1]) if len(words) > at + 2 else 0)
    return found


def test_what_is_behind_descriptors(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, _ = by_tracehound([str(target), "desc"], "dup,dup2,lseek,epoll_create1,epoll_wait,fchdir,openat", paths=True)
    lines = [line for lines in lines_of(kept.rows).values() for line in lines]
    name = f"{tmp_path}/f"
    assert f"dup(3<{name}>) = 4<{name}>" in lines
    assert f"dup2(3<{name}>, 20) = 20<{name}>" in lines
    assert f"lseek(3<{name}>, 0, SEEK_SET) = 0" in lines
    assert any(
        re.fullmatch(r"epoll_create1\(EPOLL_CLOEXEC\) = (\d+)<anon_inode:\[eventpoll\]>", line) for line in lines
    )
    assert any(line.startswith(f'openat(AT_FDCWD<{tmp_path}>, "f", ') and line.endswith(f"<{name}>") for line in lines)
    kept, _ = by_tracehound([str(target), "network"], "accept4,getpeername,sendmsg", paths=True)
    lines = [line for lines in lines_of(kept.rows).values() for line in lines]
    peer = next(line for line in lines if line.startswith("getpeername("))
    assert re.match(r"getpeername\(5<TCP:\[127\.0\.0\.1:\d+->127\.0\.0\.1:\d+\]>, ", peer), peer
    assert any(re.match(r"sendmsg\(\d+<UNIX:\[\d+\]>, ", line) for line in lines)


def test_a_path_that_is_not_in_memory_yet(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, _ = by_tracehound([str(target), "late"], "openat")
    lines = [line for lines in lines_of(kept.rows).values() for line in lines][-2:]
    assert lines == [
        'openat(AT_FDCWD, "late path", O_RDONLY) = -1 ENOENT (No such file or directory)',
        "openat(AT_FDCWD, 0x8, O_RDONLY) = -1 EFAULT (Bad address)",
    ]


def test_a_call_of_the_32_bit_table_is_counted_and_not_misread(target: Path) -> None:
    kept, trace = by_tracehound([str(target), "compat"], "writev,getpid")
    assert [row["symbol"] for row in kept.rows] == ["getpid"]
    assert trace.syscall_totals[1] == {"compat": 1, "no_entry": 0}


def test_a_call_that_had_begun_is_counted_and_has_no_row() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None and cat.stdout is not None
        wait_for(lambda: Path(f"/proc/{cat.pid}/syscall").read_text().startswith("0 0x0 "), what="cat reads its input")
        kept = Kept()
        wishes = Wishes(tuple(find_calls("read,write")), SyscallSettings(with_data=True))
        features = frozenset({"processes", "syscalls"})
        with Trace(Processes((cat.pid,)), Settings(), features, syscalls=wishes) as trace:
            trace.load()
            trace.start([kept])
            for text in (b"one\n", b"two\n"):
                cat.stdin.write(text)
                cat.stdin.flush()
                assert cat.stdout.readline() == text
            cat.stdin.close()
            trace.wait_ended(60)
            trace.stop()
    (lines,) = lines_of(kept.rows).values()
    size = int(re.findall(r", (\d+)\) = 4$", lines[1])[0])
    assert lines == [
        'write(1, "one\\n", 4) = 4', f'read(0, "two\\n", {size}) = 4', 'write(1, "two\\n", 4) = 4',
        f'read(0, "", {size}) = 0',
    ]  # fmt: skip
    assert trace.syscall_totals[1] == {"compat": 0, "no_entry": 1}


def test_what_a_program_moves_is_shown_only_without_redaction(run_cli: RunCli, tmp_path: Path) -> None:
    command = ["sh", "-c", "echo the content | cat > /dev/null", "x", "--password", "hunter2"]
    record, tape = tmp_path / "record", tmp_path / "tape"
    shown = run_cli("call", "--record", record, "--tape", tape, "sys:%read,%write,execve", "--", *command)
    assert shown.code == 0, shown.err
    lines = [line for line in shown.out.splitlines() if "cat[" in line and "read(0" in line]
    assert "read(0, <12 bytes>, " in lines[0] and ") = 12  " in lines[0]
    assert 'cat"], 0x' in shown.out and '"--password", "?"]' in shown.out
    assert "hunter2" not in shown.out and '"the content' not in shown.out
    assert b"the content\n" not in tape.read_bytes()
    values = [each["value"] for row in rows(tracehound.open(record).calls) for each in row["args"]]
    assert "<12 bytes>" in values and not any("hunter2" in value or '"the content' in value for value in values)
    shown = run_cli("call", "--no-record", "--no-redact", "sys:write", "--", *command)
    assert any('write(1, "the content\\n", 12) = 12  ' in line for line in shown.out.splitlines())


def test_points_of_functions_stand_beside_system_calls(run_cli: RunCli, target: Path, tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    shown = run_cli("call", "--no-record", "sys:mkdir,rmdir", "syscalls:files", "--", target, "file", cwd=tmp_path)
    assert shown.code == 0, shown.err
    names = [re.split(r"\(", line.split("]  ")[1])[0] for line in shown.out.splitlines()]
    assert names[0] == "mkdir" and "rmdir" in names and names[-1] == "syscalls:files"
