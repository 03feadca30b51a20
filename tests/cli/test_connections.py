"""`tracehound connections`: its table, its JSON, and what it refuses; live: tests/live/test_attach.py."""

import json

import pytest

from tracehound.cli import connections, main

ROW = {
    "service": "web", "comm": "python", "pid": 42, "fd": 7, "role": "server", "local_ip": "127.0.0.1", "local_port": 80,
    "transport": "tcp", "local_path": None, "remote_path": None,
    "remote_ip": "::1", "remote_port": 40000, "state": "ESTABLISHED", "bytes_sent": 1500, "bytes_received": None,
    "srtt_us": 250, "connection": 1, "event": "snapshot",
}  # fmt: skip
ENDS = ("127.0.0.1:80", "[::1]:40000", "ESTABLISHED", "1.5", "kB")
OTHER = ROW | {"service": None, "fd": None, "role": "client", "srtt_us": None, "bytes_received": 3}


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "open_connections", lambda target, btf: [ROW, OTHER])
    monkeypatch.setenv("COLUMNS", "200")


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connections", "--all"]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == list(connections.SHOWN)
    assert first.split() == [
        "web[42]",
        "7",
        "server",
        "127.0.0.1:80",
        "[::1]:40000",
        "ESTABLISHED",
        "1.5",
        "kB",
        "250",
        "µs",
    ]
    assert second.split() == [
        "python[42]",
        "client",
        "127.0.0.1:80",
        "[::1]:40000",
        "ESTABLISHED",
        "1.5",
        "kB",
        "3",
        "B",
    ]


def test_a_narrow_terminal_leaves_out_the_last_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["connections", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["process", "fd", "role", "local", "remote"] and max(map(len, lines)) <= 60


def test_json_and_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connections", "--all", "--role", "client", "--format", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == OTHER


def test_wrong_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connections"]) == 2
    assert "nothing to trace. Name one of: --pid" in capsys.readouterr().err


def test_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert connections.table_of([]) == "no open connections\n"


@pytest.mark.parametrize(
    ("changed", "local", "remote", "state"),
    [
        ({"transport": "unix", "local_path": "/run/x", "state": None}, "/run/x", "unix", "unix"),
        ({"transport": "unix", "remote_path": "@x", "state": None}, "unix", "@x", "unix"),
        ({"transport": "udp", "remote_port": None, "remote_ip": None, "state": None}, "127.0.0.1:80", "udp", "udp"),
    ],
)
def test_udp_and_unix_sockets(changed: dict[str, object], local: str, remote: str, state: str) -> None:
    text = connections.table_of([ROW | changed]).splitlines()[1]
    assert text.split()[3:6] == [local, remote, state]
