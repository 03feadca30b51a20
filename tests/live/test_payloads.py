"""Rows of `payloads`: the bytes of a talk, put together again, are those that were sent; kept nowhere but there."""

import json
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.live.conftest import Row, RunCli, Traced, rows

from tracehound.recording import Recording

ROLLS: Final = random.Random(7)
BODY: Final = "".join(chr(ROLLS.randrange(256)) for _ in range(50_000))
BINARY: Final = "\x01\x02" + "".join(chr(ROLLS.randrange(256)) for _ in range(900))
SECRET: Final = "Hunter2Geheim"
POST: Final = f"POST /login?password={SECRET} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
ANSWER: Final = f"HTTP/1.1 200 OK\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY[::-1]}"
TALKS: Final = {  # name -> what the client sends, what the server answers, size of pieces
    "http": (POST, ANSWER, 0),
    "http in pieces": (POST, ANSWER, 1777),
    "of no known protocol": (BINARY, BINARY[::-1], 100),
}


def scenarios() -> str:
    steps = [
        [
            name,
            [["send", sent, cuts], ["receive", len(answer), cuts], ["close"]],
            [["receive", len(sent), cuts], ["send", answer, cuts], ["eof"], ["close"]],
        ]
        for name, (sent, answer, cuts) in TALKS.items()
    ]
    return json.dumps(steps)


def stream(pieces: list[Row], direction: str) -> bytes:
    """Put the pieces of one direction together; each stands where its position says, and none has a hole before it."""
    found = b""
    for piece in sorted((row for row in pieces if row["direction"] == direction), key=lambda row: row["position"]):
        assert piece["position"] == len(found) and piece["captured_bytes"] == len(piece["bytes"])
        found += piece["bytes"]
    return found


def test_bytes_are_those_that_were_sent(
    traced: Traced, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "scenarios").write_text(scenarios())
    target = python_target("http_pair", tmp_path / "scenarios", tmp_path / "result")
    trace = traced(target, payloads=True, record=tmp_path / "record")
    assert trace.exit_code == 0 and rows(trace.losses) == []
    told = json.loads((tmp_path / "result").read_text())
    opened = [row for row in rows(trace.connections) if row["event"] in ("open", "accept")]
    payloads = rows(trace.payloads)
    for name, (sent, answer, _) in TALKS.items():
        port = told["ports"][name]
        ends = {
            row["role"]: [piece for piece in payloads if piece["connection"] == row["connection"]]
            for row in opened
            if port in (row["local_port"], row["remote_port"])
        }
        assert set(ends) == {"client", "server"}
        for role, pieces in ends.items():
            out, back = ("send", "receive") if role == "client" else ("receive", "send")
            assert stream(pieces, out) == sent.encode("latin-1"), (name, role)
            assert stream(pieces, back) == answer.encode("latin-1"), (name, role)
    assert Recording(tmp_path / "record").manifest.facts.notes["redacted"] == "false"
    assert stat.S_IMODE((tmp_path / "record").stat().st_mode) == 0o700


@pytest.mark.parametrize("is_on", [True, False])
def test_bytes_are_in_the_recording_only_and_only_if_wanted(
    is_on: bool, run_cli: RunCli, python_target: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "scenarios").write_text(scenarios())
    record, shown = tmp_path / "record", tmp_path / "shown"
    target = python_target("http_pair", tmp_path / "scenarios", tmp_path / "result")
    options = ["--payloads"] if is_on else []
    result = run_cli("run", *options, "--format", "json", "--output", shown, "--record", record, "--", *target)
    assert result.code == 0
    assert ("nothing redacts them" in result.err) == is_on
    counted = int(run_cli("query", record, "select count(*) from payloads", "--format", "csv").out.split()[-1])
    assert (counted > 20) == is_on
    assert '"requests"' in shown.read_text() and "payloads" not in shown.read_text()
    assert SECRET not in shown.read_text() + result.err


def test_they_need_a_recording(run_cli: RunCli) -> None:
    result = run_cli("run", "--payloads", "--no-record", "--", "true")
    assert result.code == 2 and "--payloads" in result.lines[-1] and "--no-record" in result.lines[-1]
