"""The command line as a whole: help, mistakes in one line, exit codes, pipes."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tracehound import cli
from tracehound.cli import query
from tracehound.errors import (
    LoadError,
    PermissionDenied,
    QueryError,
    RecordingError,
    SinkError,
    TargetError,
    TracehoundError,
    UsageError,
)

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "import sys; from tracehound.cli import main; sys.exit(main())"]


def test_each_module_is_a_command_of_its_name_with_a_test_and_a_row_in_the_page() -> None:
    import importlib

    modules = {path.stem for path in (ROOT / "src/tracehound/cli").glob("[!_]*.py")}
    assert set(cli.commands()) == modules
    page = (ROOT / "docs/cli.md").read_text().split("## Exit codes")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    found = {name: importlib.import_module(f"tracehound.cli.{name}").COMMAND for name in modules}
    assert rows == {name: command.help for name, command in found.items()}
    for name, command in found.items():
        assert command.name == name
        assert "examples:\n  " in command.doc
        assert list((ROOT / "tests").glob(f"**/test_{name}.py")), f"{name} has no test"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^    {name}( |$)", text, re.MULTILINE) for name in cli.commands())
    assert cli.main([]) == 2


@pytest.mark.parametrize("name", cli.commands())
def test_help_of_a_command_is_its_docstring(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["qurey"], "no command qurey. Near: query. Help: tracehound --help"),
        (["xyz"], "no command xyz. There are: attach, call, completion, connections, doctor, flame, query"),
        (["--vresion"], "no option --vresion. Near: --version"),
        (["query"], "the following arguments are required: RECORDING, SQL. Help: tracehound query --help"),
        (["query", "last"], "the following arguments are required: SQL"),
        (["query", "last", "x", "--formta=csv"], "no option --formta. Near: --format. Help: tracehound query --help"),
        (["query", "last", "x", "--format", "jsn"], "no value of --format jsn. Near: json. Help"),
        (["query", "last", "x", "--format"], "argument --format: expected one argument"),
        (["query", "last", "x", "y"], "unexpected argument y"),
        (["doctor", "--jsno"], "no option --jsno. Near: --json"),
        (["query", "/nowhere/shop", "select 1"], "no recording /nowhere/shop"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tracehound: {line}") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (TargetError("x"), 2),
        (TargetError("x", 127), 127),
        (PermissionDenied("x"), 2),
        (LoadError("x"), 2),
        (QueryError("x"), 2),
        (SinkError("x"), 2),
        (RecordingError("x"), 1),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(query, "COMMAND", query.COMMAND._replace(run=run))
    monkeypatch.setattr(cli, "_silence", lambda stream: None)
    assert cli.main(["query", "last", "select 1"]) == code
    told = capsys.readouterr().err
    assert told == "tracehound: x\n" if isinstance(error, TracehoundError) else "Traceback" not in told
    if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
        with pytest.raises(type(error)):
            cli.main(["query", "last", "select 1", "--debug"])


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    from tests.recording.rows import FACTS, SCHEMAS, requests

    from tracehound.recording import RecordingWriter

    with RecordingWriter(tmp_path / "shop", SCHEMAS, FACTS) as recording:
        recording.append("requests", requests(0, 50_000))
    command = [*PROGRAM, "query", str(tmp_path / "shop"), "select * from requests", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"time_ns,")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("arguments", [["--help"], ["query", "--help"], []])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_is_full_is_said_in_one_line(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        told = subprocess.run(
            [*PROGRAM, *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment() | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
        )
    assert (told.returncode, told.stderr) == (1, "tracehound: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_may_be_closed(closed: str) -> None:
    command = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *PROGRAM, "--version"]
    told = subprocess.run(command, check=False, capture_output=True, env=environment(), text=True)
    assert (told.returncode, told.stderr) == (0, "")
    assert (told.stdout == "") == (">&-" in closed.split())


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src")}


def test_help_loads_nothing_heavy() -> None:
    code = "import sys\nfrom tracehound.cli import main\nmain(['--help'])\nprint('\\n', *sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], env=environment(), check=True, capture_output=True, text=True)
    assert {"pyarrow", "duckdb", "numpy"} & set(found.stdout.splitlines()[-1].split()) == set()


def test_output_that_cannot_be_written_does_not_hide_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert cli.main(["qurey"]) == 2
