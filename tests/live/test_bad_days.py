"""What is wrong is said in one clear line, with the right exit code, and nothing is started or left behind."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.conftest import TARGETS, TRACEHOUND, Finished, RunCli, StartCli, wait_for

STARTED = ["--", "/bin/sh", "-c", "echo started"]
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


def said(result: Finished, code: int, *words: str, lines: int = 1) -> None:
    """Check a refusal: exit code, at most so many lines, which name what matters; the command did not run."""
    assert result.code == code, result.err
    assert len(result.lines) in range(1, lines + 1), result.err
    for word in words:
        assert word in result.err
    assert result.lines[0].startswith("tracehound: ")
    assert "started" not in result.out


def test_no_such_command(run_cli: RunCli) -> None:
    said(run_cli("run", "--", "/no/such/command"), 127, "/no/such/command")
    said(run_cli("run", "--", "no-such-command"), 127, "no-such-command")


def test_command_that_is_not_executable(run_cli: RunCli, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\necho started\n")
    said(run_cli("run", "--", plain), 126, str(plain))
    said(run_cli("run", "--", tmp_path), 126, str(tmp_path))


def test_command_of_no_known_format(run_cli: RunCli, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF not really")
    binary.chmod(0o755)
    said(run_cli("run", "--", binary), 126, str(binary))


@pytest.mark.parametrize("options", [(), ("--user", "no-such-user")])
def test_a_command_that_does_not_start_leaves_no_recording(
    options: tuple[str, ...], run_cli: RunCli, tmp_path: Path
) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert run_cli("run", "--", "/bin/echo", "first", env=env).code == 0
    kept = sorted((tmp_path / "state").rglob("*"))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF not really")
    binary.chmod(0o755)
    code = 2 if options else 126
    assert run_cli("run", *options, "--", binary, env=env).code == code
    assert run_cli("run", *options, "--record", tmp_path / "record", "--", binary, env=env).code == code
    assert sorted((tmp_path / "state").rglob("*")) == kept
    assert not (tmp_path / "record").exists()


def test_no_root(run_cli: RunCli) -> None:
    result = run_cli("run", *STARTED, prefix=[*AS_NOBODY, *TRACEHOUND])
    said(result, 2, "CAP_BPF", "CAP_PERFMON", lines=2)


def test_no_root_query_works(run_cli: RunCli, recording: Path) -> None:
    for folder in (recording, *recording.rglob("*"), *recording.parents[:3]):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    result = run_cli("query", recording, "select count(*) from requests", prefix=[*AS_NOBODY, *TRACEHOUND])
    assert result.code == 0, result.err
    assert result.err == ""


def test_no_btf(run_cli: RunCli) -> None:
    said(run_cli("run", "--btf", "/missing", *STARTED), 2, "/missing")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--recrod", "x", *STARTED), ("--recrod", "--record")),
        (("run", "--no-such-switch", *STARTED), ("--no-such-switch",)),
        (("run", "--memory-mib", "lots", *STARTED), ("--memory-mib", "lots")),
        (("run", "--memory-mib", "0", *STARTED), ("--memory-mib", "0")),
        (("run", "--ring-mib", "3", *STARTED), ("--ring-mib", "3")),
        (("run", "--format", "xml", *STARTED), ("xml", "json")),
        (("run", "--record", "/tmp/never", "--no-record", *STARTED), ("--record", "--no-record")),
        (("run",), ("command",)),
        (("rnu", *STARTED), ("rnu", "run")),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) and value[0] in ("run", "rnu") else "",
)
def test_wrong_use(arguments: tuple[str, ...], words: tuple[str, ...], run_cli: RunCli) -> None:
    result = run_cli(*arguments)
    said(result, 2, *words, lines=2)
    assert not result.objects.prog_id
    assert not Path("/tmp/never").exists()


@pytest.mark.parametrize(
    "arguments", [("run", "--record", "/proc/nowhere", *STARTED), ("run", "--output", "/no/such/folder/file", *STARTED)]
)
def test_output_that_cannot_be_written(arguments: tuple[str, ...], run_cli: RunCli) -> None:
    said(run_cli(*arguments), 2, arguments[2], lines=2)


# ---- queries


@pytest.fixture(scope="module")
def recording(
    python_target: Callable[..., list[str]], state_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A recording of a few requests, made by the command line."""
    folder = tmp_path_factory.mktemp("queries")
    command = python_target("steady_http", 0.3, folder / "log")
    subprocess.run(
        [*TRACEHOUND, "run", "--record", folder / "record", "--format", "none", "--", *command], check=True, timeout=60
    )
    return folder / "record"


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("selec 1", "selec"),
        ("select nosuch from requests", "nosuch"),
        ("select * from request", "requests"),
        ("select status + from requests", "from"),
    ],
)
def test_wrong_sql_shows_the_place(sql: str, word: str, run_cli: RunCli, recording: Path) -> None:
    result = run_cli("query", recording, sql)
    said(result, 2, word, "^", lines=6)


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '{folder}/stolen'",
        "select * from read_csv('/etc/passwd')",
        "attach '{folder}/stolen' as x",
        "insert into requests select * from requests",
        "delete from requests",
        "install httpfs",
        "set enable_external_access = true",
    ],
)
def test_sql_that_would_write_or_look_elsewhere(sql: str, run_cli: RunCli, recording: Path, tmp_path: Path) -> None:
    before = sorted(recording.rglob("*"))
    result = run_cli("query", recording, sql.format(folder=tmp_path))
    said(result, 2, lines=6)
    assert "root" not in result.out and not list(tmp_path.iterdir())
    assert sorted(recording.rglob("*")) == before


def test_recording_that_is_not_there(run_cli: RunCli, tmp_path: Path) -> None:
    said(run_cli("query", tmp_path / "nothing", "select 1"), 2, "nothing")
    said(run_cli("query", tmp_path, "select 1"), 2, str(tmp_path))
    said(run_cli("query", "last", "select 1", env={"XDG_STATE_HOME": str(tmp_path)}), 2, str(tmp_path))


def test_damaged_recording_says_which_file(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("run", "--record", tmp_path / "record", "--", "/bin/true").code == 0
    (damaged,) = (tmp_path / "record" / "processes").glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    result = run_cli("query", tmp_path / "record", "select count(*) from processes")
    assert str(damaged.name) in result.err and result.lines[0].startswith("tracehound: ")


# ---- tracing that fails

BROKEN = """
import sys
from tracehound import agent, cli
def fail(*_):
    raise RuntimeError("no more")
agent.Line.advance = fail
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("ends_with", "code"), [(0, 120), (7, 7)])
@pytest.mark.parametrize("form", ["table", "json"])
def test_tracing_that_fails_is_said_and_promises_nothing(ends_with: int, code: int, form: str, run_cli: RunCli) -> None:
    command = ["/bin/sh", "-c", f"sleep 0.2; exit {ends_with}"]
    prefix = [sys.executable, "-c", BROKEN]
    result = run_cli("run", "--no-record", "--format", form, "--", *command, prefix=prefix)
    assert result.code == code
    first, summary = result.lines[0], "\n".join(result.lines[1:])
    assert first == "tracehound: tracing failed, rows are missing: RuntimeError: no more"
    assert "nothing lost" not in summary
    said_so = {"table": "tracing failed, rows are missing", "json": '"failed_with": "RuntimeError: no more"'}
    assert said_so[form] in summary


# ---- strict


def test_strict_without_loss(run_cli: RunCli) -> None:
    assert run_cli("run", "--strict", "--no-record", "--", "/bin/sh", "-c", "exit 0").code == 0
    assert run_cli("run", "--strict", "--no-record", "--", "/bin/sh", "-c", "exit 7").code == 7


def test_strict_with_loss(start_cli: StartCli, python_target: Callable[..., list[str]], tmp_path: Path) -> None:
    prefix = [sys.executable, TARGETS / "stalled_cli.py"]
    command = python_target("numbered_http", tmp_path)
    running = start_cli("run", "--strict", "--no-record", "--backlog-mib", 1, "--", *command, prefix=prefix)
    (tmp_path / "b-go").touch()
    wait_for((tmp_path / "a-done").exists, what="the target")
    time.sleep(3)
    for name in ("b-stop", "c-go"):
        (tmp_path / name).touch()
    result = running.finish()
    assert result.code == 121
    assert "nothing lost" not in result.err and "lost" in result.err and "backlog_full" in result.err
