"""Names of addresses from the answers of DNS that a program gets, however it asks; the servers are not traced."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.live.conftest import TRACEHOUND, Finished, Row, Running
from tests.live.targets.dns_names import GETADDRINFO, LONG, LOOPED, PLAIN, STRANGER
from tests.sources.taped import replayed

from tracehound.recording import Recording
from tracehound.scrub import scrub
from tracehound.sources.tape import Frame, Tape

ROOT: Final = Path(__file__).parents[2]
RESOLVER: Final = {
    "resolv.conf": "nameserver 127.0.0.1\noptions timeout:10 attempts:1\n",
    "nsswitch.conf": "hosts: files dns\n",
}
# In namespaces of the test: a resolver of its own, and who answers, outside of what is traced.
SETUP: Final = """
ip link set lo up && ip addr add fd00:53::6/128 dev lo nodad || exit 99
mount --bind resolv.conf "$(readlink -f /etc/resolv.conf)" && mount --bind nsswitch.conf /etc/nsswitch.conf || exit 98
"$1" "$2" serve ready &
until [ -e ready ]; do kill -0 $! || exit 97; sleep 0.05; done
shift 2
"$@"
code=$?
kill $!
wait $!
exit $code
"""
NAMED: Final = {name: name for name in (*GETADDRINFO, *PLAIN)}
NAMELESS: Final = ("before", STRANGER, LOOPED, LONG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


@pytest.fixture(scope="module")
def finished(folder: Path, python_target: Callable[..., list[str]]) -> Finished:
    missing = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if missing or not all(map(Path.exists, map(Path, ("/etc/resolv.conf", "/etc/nsswitch.conf")))):
        pytest.skip(f"not installed: {', '.join(missing) or 'the resolver of the C library'}")
    for name, text in RESOLVER.items():
        (folder / name).write_text(text)
    server = python_target("dns_names")
    prefix = ["unshare", "--net", "--mount", "sh", "-c", SETUP, "sh", *server, *TRACEHOUND]
    options = ["--record", folder / "record", "--tape", folder / "x.tape"]
    arguments = ["run", *options, "--", *python_target("dns_names", "ask")]
    result = Running(arguments, {"PYTHONPATH": str(ROOT)}, {"prefix": prefix, "cwd": folder}).finish(120)
    assert result.code == 0, result.err
    assert "nothing lost" in result.err
    return result


def rows_of(folder: Path, table: str) -> list[Row]:
    rows: list[Row] = Recording(folder / "record").table(table).to_pylist()
    return rows


def test_requests_are_named_by_what_was_asked_for(finished: Finished, folder: Path) -> None:
    rows = rows_of(folder, "requests")
    found = {row["resource"].removeprefix("/"): (row["peer_service"], row["peer_service_inferred"]) for row in rows}
    assert found == {name: (name, True) for name in NAMED} | dict.fromkeys(NAMELESS, (None, None))
    assert {row["role"] for row in rows} == {"client"}
    assert len(rows) == len(NAMED) + len(NAMELESS) + len(GETADDRINFO)


def test_connections_are_named_too(finished: Finished, folder: Path) -> None:
    rows = [row for row in rows_of(folder, "connections") if row["transport"] == "tcp" and row["remote_port"] != 53]
    closes = [row for row in rows if row["event"] == "close"]
    assert sorted(row["remote_name"] for row in closes if row["remote_name"]) == sorted(NAMED)
    assert [row["remote_name"] for row in closes].count(None) == len(NAMELESS)
    assert [row["remote_name"] for row in rows if row["event"] == "error"] == ["plain.test"]


def test_the_summary_shows_names_beside_addresses(finished: Finished) -> None:
    assert "plain.test 127.0.0.5:9" in finished.err
    assert "→ alias.test" in finished.err and STRANGER in finished.err


def test_a_replay_and_a_scrubbed_tape_have_the_same_names(finished: Finished, folder: Path) -> None:
    report = scrub(folder / "x.tape", folder / "clean.tape")
    assert report.differs == ()
    for tape in ("x.tape", "clean.tape"):
        rows, notes = replayed(folder / tape)
        assert notes == ()
        for table in ("requests", "connections"):
            assert rows[table].equals(Recording(folder / "record").table(table)), tape
    assert b"password" not in b"".join(frame.data for frame in _frames(folder / "clean.tape"))
    assert b"password" in b"".join(frame.data for frame in _frames(folder / "x.tape"))


def _frames(path: Path) -> list[Frame]:
    with Tape(path) as tape:
        return list(tape.frames())
