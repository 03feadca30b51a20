"""Real traffic of Redis and PostgreSQL, taped and scrubbed: the same rows, nothing left of what was planted."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.postgresql_server import FOLDER, PASSWORD, Server, running_server

from tracehound.scrub import scrub
from tracehound.sources.tape import RECORDS, Tape

PythonTarget = Callable[..., list[str]]
TRACEHOUND = [sys.executable, "-c", "import sys; from tracehound.cli import main; sys.exit(main())"]
TABLE = "drop table if exists things; create table things (id int primary key, name text)"
needs_redis = pytest.mark.skipif(
    not (shutil.which("redis-server") and shutil.which("redis-benchmark")), reason="redis-server is not installed"
)
needs_postgresql = pytest.mark.skipif(FOLDER is None, reason="no server of PostgreSQL is installed")


def bytes_of(path: Path) -> bytes:
    with Tape(path) as tape:
        assert tape.cut is None
        return b"".join(frame.data for frame in tape.frames() if frame.type == RECORDS)


def check(command: list[str], folder: Path, secrets: list[bytes]) -> None:
    """Trace a command onto a tape, scrub it, and look for the secrets before and after."""
    raw, clean = folder / "raw.tape", folder / "clean.tape"
    options = ["run", "--no-record", "--format", "none", "--tape", str(raw), "--"]
    subprocess.run([*TRACEHOUND, *options, *command], check=True, timeout=120, cwd=folder)
    report = scrub(raw, clean)
    assert (report.differs, report.notes) == ((), ())
    before, after = bytes_of(raw), bytes_of(clean)
    assert len(before) == len(after)
    assert [secret for secret in secrets if secret not in before] == []
    assert [secret for secret in secrets if secret in after] == []


@needs_redis
def test_redis_in_every_way_of_speaking(python_target: PythonTarget, tmp_path: Path) -> None:
    check(python_target("redis_target", "talk", tmp_path), tmp_path, [b"secret", b"hunter2"])


@needs_redis
def test_redis_benchmark(python_target: PythonTarget, tmp_path: Path) -> None:
    what = ("set,get,lpush,lrange_100,mset,hset", "2000")
    check(python_target("redis_target", "benchmark", tmp_path, *what), tmp_path, [])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@needs_postgresql
@pytest.mark.parametrize("way", ["psycopg", "pipeline", "asyncpg", "errors", "copy", "listen"])
def test_postgresql(way: str, server: Server, python_target: PythonTarget, tmp_path: Path) -> None:
    server.sql(TABLE)
    command = python_target("postgresql_load", way, server.url(), 20)
    check(command, tmp_path, [b"hunter2-planted", PASSWORD.encode()])


@needs_postgresql
@pytest.mark.parametrize("way", ["simple", "extended", "prepared"])
def test_pgbench(way: str, server: Server, tmp_path: Path) -> None:
    assert FOLDER is not None
    command = [str(FOLDER / "pgbench"), server.url()]
    subprocess.run([*command, "-i", "-q"], check=True, capture_output=True, timeout=60)
    check([*command, "-n", "-c", "2", "-t", "20", "-M", way], tmp_path, [PASSWORD.encode()])
