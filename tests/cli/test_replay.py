"""`tracehound replay` and `query` of a tape, as a user without root types them."""

import json
from pathlib import Path

import pytest
from tests.sources.taped import frame_ends, make_tape, traffic

from tracehound.cli import main
from tracehound.recording import Recording


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "shop.tape"
    make_tape(path, traffic(), [10, 30, 60])
    return path


def test_the_summary_is_that_of_the_trace(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tape)]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(" tracehound · shop --port 1 · 4.20 s · exit 0 · 1 process\n lost 7 of ")
    assert "GET /orders/{id}" in err and "qsecretq" not in err


def test_rows_go_where_they_are_wanted(tape: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows, folder = tmp_path / "rows.jsonl", tmp_path / "kept"
    assert main(["replay", str(tape), "--format", "json", "--output", str(rows), "--record", str(folder)]) == 0
    head = json.loads(capfd.readouterr().err.splitlines()[0])
    assert (head["command"], head["requests"], head["kept"]) == ("shop --port 1", 20, str(folder))
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert sum(row["table"] == "requests" for row in found) == 20
    recording = Recording(folder)
    assert recording.table("requests").num_rows == 20
    facts = recording.manifest.facts
    assert (facts.host, facts.boot_id, facts.kernel) == ("elsewhere", "0-boot", "6.18")
    assert facts.command == ("shop", "--port", "1")

    assert main(["replay", str(tape), "--output", "-", "--where", "operation = 'POST'", "--format", "none"]) == 0
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 10 and "POST /orders/1" in out and err == ""


def test_it_says_loudly_that_secrets_are_shown(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tape), "--no-redact", "--output", "-"]) == 0
    out, err = capfd.readouterr()
    assert "qsecretq" in out and err.startswith("tracehound: --no-redact: secrets will stand in the rows\n")


def test_a_cut_tape_is_one_line_and_its_rows(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = tape.read_bytes()
    ends = frame_ends(whole)
    tape.write_bytes(whole[: ends[-5] + 7])
    assert main(["replay", str(tape), "--format", "none"]) == 0
    _, err = capfd.readouterr()
    assert err == f"tracehound: {tape} is cut at byte {ends[-5]:,}: the file ends within a frame; rows end there\n"
    assert main(["replay", str(tape), "--format", "none", "--strict"]) == 121
    capfd.readouterr()
    assert main(["query", str(tape), "select count(*) as n from requests", "--format", "csv"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "n" and int(out.splitlines()[1]) > 10
    assert "is cut at byte" in err and err.count("\n") == 1


def test_sql_over_a_tape(tape: Path, capfd: pytest.CaptureFixture[str]) -> None:
    query = "select role, count(*) as n from requests where status = 200 group by all order by all"
    assert main(["query", str(tape), query, "--format", "csv"]) == 0
    assert capfd.readouterr() == ("role,n\nclient,10\nserver,9\n", "")
    assert main(["query", str(tape), "from nothing"]) == 2
    assert "nothing" in capfd.readouterr().err


WRONG = [
    (["replay", "no.tape"], 2, "no file no.tape"),
    (["replay", "text.txt"], 2, "text.txt is neither a tape nor a packet capture (pcap, pcapng)"),
    (["replay", "."], 2, ". is a folder, not a tape or a capture"),
    (["query", "text.txt", "from requests"], 2, "text.txt is neither a tape nor a packet capture (pcap, pcapng)"),
    (["replay", "short.tape"], 1, "short.tape has lost its header: the file ends within a frame. Nothing can be read"),
    (["replay", "newer.tape"], 1, "newer.tape is of version 7; this tracehound reads up to 1"),
    (["tape", "info", "text.txt"], 1, "text.txt is not a tape"),
    (["tape", "scrub", "text.txt", "out.tape"], 1, "text.txt is not a tape"),
    (["tape", "scrub", "shop.tape", "text.txt"], 2, "text.txt is there already; a tape is a new file"),
    (["tape"], 2, "the following arguments are required: COMMAND, FILE. Help: tracehound tape --help"),
    (["tape", "scrb", "shop.tape"], 2, "no command scrb. Near: scrub. Help: tracehound tape --help"),
    (["tape", "info", "a", "b"], 2, "info takes one tape. Help: tracehound tape --help"),
    (["tape", "scrub", "shop.tape"], 2, "scrub takes a tape and the name of the one to be made. Help: "),
    (["tape", "info", "no.tape"], 1, "cannot read no.tape: No such file or directory"),
    (["tape", "scrub", "no.tape", "out.tape"], 1, "cannot read no.tape: No such file or directory"),
    (["replay", "shop.tape", "--where", "nonsense ="], 2, ""),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_files_are_one_clear_line(
    arguments: list[str],
    code: int,
    message: str,
    tape: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tape.parent)
    data = tape.read_bytes()
    Path("text.txt").write_text("hello\n" * 9)
    Path("short.tape").write_bytes(data[:40])
    Path("newer.tape").write_bytes(data[:8] + b"\7" + data[9:])
    assert main(arguments) == code
    out, err = capfd.readouterr()
    assert out == "" and err.startswith(f"tracehound: {message}")
    assert err.count("\n") == 1 or "--where" in arguments
