"""`tracehound run` and the program it runs: exit codes, streams, terminal and signals are as without it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.live.conftest import TARGETS, TRACEHOUND, RunCli, Running, StartCli, wait_for

ASK = """
import os
assert os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
print("hello", input("who? "))
"""
INTERRUPTED = """
import signal, sys, time
def on_interrupt(*_):
    print("interrupted", flush=True)
    global left
    left -= 1
    if not left:
        sys.exit(5)
left = int(sys.argv[1])
signal.signal(signal.SIGINT, on_interrupt)
print("ready", flush=True)
end = time.monotonic() + 15
while time.monotonic() < end:
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + signal.SIGTERM),
        ("kill -KILL $$", 128 + signal.SIGKILL),
        ("kill -INT $$", 128 + signal.SIGINT),
        ("ulimit -c 0; kill -SEGV $$", 128 + signal.SIGSEGV),
    ],
)
def test_exit_code_is_the_commands(script: str, code: int, run_cli: RunCli) -> None:
    result = run_cli("run", "--no-record", "--", "/bin/sh", "-c", script)
    assert result.code == code
    assert result.objects.prog_id, "no BPF program was seen: the check for leftovers saw nothing"
    assert "nothing lost" in result.err


def test_streams_are_the_commands(run_cli: RunCli, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"from standard input")
    with source.open() as stdin:
        result = run_cli(
            "run", "--format", "none", "--no-record", "--", "/bin/sh", "-c", "cat; echo problem >&2", stdin=stdin
        )
    assert (result.code, result.out, result.err) == (0, "from standard input", "problem\n")


def test_summary_in_a_pipe_is_plain_and_narrow(run_cli: RunCli) -> None:
    result = run_cli("run", "--no-record", "--", "/bin/true")
    assert "\x1b" not in result.err and "\r" not in result.err
    assert all(len(line) <= 80 for line in result.lines)
    assert "nothing lost" in result.err and result.out == ""


def test_json_summary_is_one_object_a_line(run_cli: RunCli) -> None:
    result = run_cli("run", "--format", "json", "--no-record", "--", "/bin/true")
    assert result.lines and all(isinstance(json.loads(line), dict) for line in result.lines)


def test_command_inherits_nothing_of_ours(run_cli: RunCli) -> None:
    result = run_cli("run", "--no-record", "--", "/bin/sh", "-c", "ls -l /proc/self/fd; echo $PWD")
    assert "bpf" not in result.out and "anon_inode" not in result.out
    assert result.out.splitlines()[-1] == os.getcwd()
    status = run_cli("run", "--no-record", "--", "/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status").out
    blocked, ignored = (int(line.split()[1], 16) for line in status.splitlines())
    assert (blocked, ignored) == (0, ignored_here() & ~signal_bits(signal.SIGPIPE, signal.SIGXFSZ))


def test_command_ignores_what_our_caller_ignored(run_cli: RunCli) -> None:
    """As under nohup, and in the background of a script."""
    prefix = ["/bin/sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *TRACEHOUND]
    result = run_cli("run", "--no-record", "--", "/bin/grep", "SigIgn", "/proc/self/status", prefix=prefix)
    wanted = signal_bits(signal.SIGHUP, signal.SIGINT)
    assert int(result.out.split()[1], 16) & wanted == wanted


def signal_bits(*numbers: int) -> int:
    """Return signals as /proc shows a set of them."""
    return sum(1 << (number - 1) for number in numbers)


def ignored_here() -> int:
    """Return what this process ignores, as a command started without us would; two are Python's own."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))


def test_recording_of_a_run_holds_what_it_did(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("run", "--record", tmp_path / "record", "--", "/bin/sh", "-c", "/bin/echo hello; exit 4").code == 4
    sql = "select event, exit_code, argv from processes where exe is null or exe not like '%/dash' order by time_ns"
    result = run_cli("query", tmp_path / "record", sql, "--format", "json")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [row["argv"] for row in found if row["event"] == "exec"] == [["/bin/echo", "hello"]]
    assert sorted(row["exit_code"] for row in found if row["event"] == "exit") == [0, 4]
    assert not list((tmp_path / "record").rglob("*.arrows"))


@pytest.mark.parametrize("form", ["table", "json"])
def test_secrets_of_the_command_line_are_kept_nowhere(form: str, run_cli: RunCli, tmp_path: Path) -> None:
    command = ["/bin/echo", "--password=hunter2", "--token", "hunter3"]
    folders = {True: tmp_path / "clean", False: tmp_path / "raw"}
    for is_clean, folder in folders.items():
        options = () if is_clean else ("--no-redact",)
        result = run_cli("run", "--format", form, "--record", folder, *options, "--", *command, env={"COLUMNS": "200"})
        assert result.out == "--password=hunter2 --token hunter3\n"
        kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert (b"hunter" not in kept) is is_clean
        assert ("hunter" not in result.err) is is_clean


def test_two_runs_at_once_see_only_their_own(start_cli: StartCli, run_cli: RunCli, tmp_path: Path) -> None:
    script = f"for i in 1 2 3 4 5 6 7 8 9; do sleep 0.{{}}; done; touch {tmp_path}/{{}}"
    running = [
        start_cli("run", "--record", tmp_path / f"record-{name}", "--", "/bin/sh", "-c", script.format(delay, name))
        for name, delay in (("a", "051"), ("b", "052"))
    ]
    for each in running:
        assert each.finish().code == 0
    for name, delay in (("a", "051"), ("b", "052")):
        sql = "select argv from processes where event = 'exec' order by time_ns"
        result = run_cli("query", tmp_path / f"record-{name}", sql, "--format", "json")
        shell, *others = [json.loads(line)["argv"] for line in result.out.splitlines()]
        assert shell[0] == "/bin/sh"
        assert others == [["sleep", f"0.{delay}"]] * 9 + [["touch", f"{tmp_path}/{name}"]]


@pytest.mark.parametrize(("script", "code"), [("sleep 0.5", 120), ("sleep 0.5; exit 3", 3)])
def test_failed_tracing_leaves_the_command_alone(script: str, code: int, run_cli: RunCli) -> None:
    prefix = [sys.executable, TARGETS / "broken_cli.py"]
    result = run_cli("run", "--no-record", "--", "/bin/sh", "-c", f"{script}", prefix=prefix)
    assert result.code == code
    assert result.lines[0].startswith("tracehound: tracing failed") and "planted mistake" in result.lines[0]
    assert "nothing lost" not in result.err


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2>&1 | true"])
def test_exit_code_is_the_commands_whatever_becomes_of_the_summary(redirection: str, tmp_path: Path) -> None:
    line = f"{shlex.join(TRACEHOUND)} run --no-record -- /bin/sh -c 'sleep 0.2; exit 3'"
    script = f"{{ {line}; echo $? >{tmp_path}/code; }} {redirection}"
    subprocess.run(["/bin/sh", "-c", script], check=False, timeout=60, stdout=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text(), what="the end")
    assert (tmp_path / "code").read_text() == "3\n"


# ---- terminal and signals


class Terminal:
    """A pseudo terminal whose session leader is `tracehound`."""

    def __init__(self, start_cli: StartCli, *command: object) -> None:
        self.master, slave = os.openpty()
        prefix = ["setsid", "--ctty", *TRACEHOUND]
        self.running = start_cli(
            "run", "--no-record", "--", *command, prefix=prefix, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = ""

    def read(self) -> str:
        with suppress(OSError):
            while data := os.read(self.master, 4096):
                self.text += data.decode()
        return self.text

    def expect(self, text: str, times: int = 1) -> None:
        wait_for(lambda: self.read().count(text) >= times, what=f"{text!r} on the terminal, which shows {self.text!r}")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def finish(self) -> int:
        wait_for(lambda: self.read() is not None and self.running.process.poll() is not None, what="the end")
        result = self.running.finish()
        assert "Traceback" not in self.read()
        return result.code


@pytest.fixture
def terminal(start_cli: StartCli) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(*command: object) -> Terminal:
        opened.append(Terminal(start_cli, *command))
        return opened[-1]

    yield open_terminal
    for each in opened:
        os.close(each.master)


def test_command_reads_the_terminal(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(sys.executable, "-c", ASK)
    shown.expect("who? ")
    shown.type("world\n")
    shown.expect("hello world")
    assert shown.finish() == 0
    assert "nothing lost" in shown.text


def test_interrupt_on_the_terminal_is_the_commands(terminal: Callable[..., Terminal]) -> None:
    shown = terminal(sys.executable, "-c", INTERRUPTED, 2)
    shown.expect("ready")
    shown.type("\x03")
    shown.expect("interrupted")
    assert shown.running.process.poll() is None
    shown.type("\x03")
    shown.expect("interrupted", 2)
    assert shown.finish() == 5


def test_command_that_dies_by_interrupt(terminal: Callable[..., Terminal]) -> None:
    shown = terminal("/bin/sh", "-c", "echo ready; exec sleep 15")
    shown.expect("ready")
    time.sleep(0.2)
    shown.type("\x03")
    assert shown.finish() == 128 + signal.SIGINT


def start_waiting(start_cli: StartCli, folder: Path, *options: object) -> Running:
    """Start a command that says when it is ready and ends by itself when told."""
    script = f"touch {folder}/ready; while [ ! -e {folder}/go ] && [ $((n+=1)) -lt 1500 ]; do sleep 0.01; done; exit 6"
    running = start_cli("run", *options, "--", "/bin/sh", "-c", script)
    wait_for((folder / "ready").exists, what="the command")
    return running


@pytest.mark.parametrize("times", [1, 2])
def test_interrupt_while_the_command_lives_is_not_ours(times: int, start_cli: StartCli, tmp_path: Path) -> None:
    running = start_waiting(start_cli, tmp_path, "--no-record")
    for _ in range(times):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    assert running.process.poll() is None
    (tmp_path / "go").touch()
    result = running.finish()
    assert result.code == 6 and "nothing lost" in result.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_to_end_is_passed_on(number: signal.Signals, start_cli: StartCli, tmp_path: Path) -> None:
    running = start_waiting(start_cli, tmp_path, "--no-record")
    running.process.send_signal(number)
    assert running.finish().code == 128 + number


def test_interrupts_after_the_command_leave_a_whole_recording(
    start_cli: StartCli, run_cli: RunCli, tmp_path: Path
) -> None:
    running = start_waiting(start_cli, tmp_path, "--record", tmp_path / "record")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    time.sleep(1.5)  # rows older than a second are there whatever happens
    (tmp_path / "go").touch()
    with suppress(OSError):
        wait_for(lambda: not children.read_text().split(), what="the command's end")
    for _ in range(2):
        with suppress(ProcessLookupError):
            running.process.send_signal(signal.SIGINT)
    assert running.finish().code in (6, 130)
    result = run_cli(
        "query", tmp_path / "record", "select count(*) from processes where event = 'exec'", "--format", "csv"
    )
    assert result.code == 0 and int(result.out.split()[-1]) >= 1
