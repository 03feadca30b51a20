"""Makes the golden tapes: one small scrubbed tape for each scenario that must show, and its rows beside it.

    sudo .venv/bin/python -m tests.golden.make_tapes [NAME ...]    tapes and rows, by tracing the targets of tests/live
    .venv/bin/python -m tests.golden.make_tapes --rows             the rows alone, from the tapes that are there

Make the rows anew only when a column or a row was meant to change, and look at the difference; make a tape anew only
when nothing else helps: an old tape shows that what was kept can still be read. Needs nginx, curl, nft, ip, cc,
redis-server and PostgreSQL.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
TAPES: Final = HERE / "tapes"
TARGETS: Final = HERE.parent / "live" / "targets"
FOLDER: Final = Path("/tmp/tracehound-golden")  # always the same, as it stands in the rows
PYTHON: Final = "/usr/bin/python3"
LARGEST: Final = 100 << 10
SHAPE_BYTES: Final = 4000  # of a conversation that is small enough
TRACEHOUND: Final = [sys.executable, "-c", "import sys; from tracehound.cli import main; sys.exit(main())"]


def target(name: str, *arguments: object) -> list[str]:
    """Return the command of a target; all are copied to where no path says who made the tape."""
    for path in TARGETS.glob("*.py"):
        shutil.copy(path, FOLDER)
    return [PYTHON, f"{name}.py", *map(str, arguments)]


def run(tape: Path, command: Sequence[str], *options: str, prefix: Sequence[str] = ()) -> None:
    """Trace a command."""
    line = [
        *prefix,
        *TRACEHOUND,
        "run",
        "--no-record",
        "--format",
        "none",
        *options,
        "--tape",
        str(tape),
        "--",
        *command,
    ]
    subprocess.run(line, check=True, cwd=FOLDER)


def servers(tape: Path) -> None:
    run(tape, target("http_load", "nginx", "python,curl", "mixed", 12, 3, FOLDER))


def http_server(tape: Path) -> None:
    run(tape, target("http_load", "http.server", "python", "keep-alive", 12, 3, FOLDER))


def shapes(tape: Path) -> None:
    from tests.live.test_http_shapes import SHAPES

    small = [each for each in SHAPES if len(json.dumps([each.client, each.server])) < SHAPE_BYTES]
    (FOLDER / "scenarios").write_text(json.dumps([[each.name, each.client, each.server] for each in small]))
    run(tape, target("http_pair", FOLDER / "scenarios", FOLDER / "told"))


def connection_ends(tape: Path) -> None:
    run(tape, target("connection_ends", FOLDER / "told"))


def attached(tape: Path) -> None:
    """Join a client and a server in the middle of their connection."""
    log = FOLDER / "log"
    with subprocess.Popen(target("steady_http", 20, log), cwd=FOLDER) as process:
        try:
            while not log.exists() or len(log.read_text().splitlines()) < 5:
                time.sleep(0.02)
            options = ["--no-record", "--format", "none", "--duration", "0.5", "--tape", str(tape)]
            subprocess.run([*TRACEHOUND, "attach", "--pid", str(process.pid), *options], check=True)
        finally:
            (FOLDER / "log.stop").touch()
            process.send_signal(signal.SIGTERM)


def nat(tape: Path) -> None:
    from tests.live.test_nat import CONNECT, LISTEN, RULES, SETUP

    (FOLDER / "rules").write_text(RULES)
    prefix = ["unshare", "--net", "sh", "-c", SETUP, str(FOLDER / "rules")]
    run(tape, target("nat_http", *LISTEN, "--", *CONNECT), prefix=prefix)


def names(tape: Path) -> None:
    """Resolve names by every way, and connect to their addresses; who answers is not traced."""
    from tests.live.test_names import RESOLVER, ROOT, SETUP

    for name, text in RESOLVER.items():
        (FOLDER / name).write_text(text)
    (FOLDER / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "dns.py", FOLDER / "tests")
    os.environ["PYTHONPATH"] = str(FOLDER)
    run(
        tape,
        target("dns_names", "ask"),
        prefix=["unshare", "--net", "--mount", "sh", "-c", SETUP, "sh", *target("dns_names")],
    )


def unix_udp(tape: Path) -> None:
    run(tape, target("unix_udp", FOLDER))


def processes(tape: Path) -> None:
    programs = [FOLDER / name for name in ("leader_exits", "exec_thread", "vfork_exec")]
    for program in programs:
        source = TARGETS / f"{program.name}.c"
        subprocess.run(["cc", "-O1", "-pthread", "-o", str(program), str(source)], check=True)
    run(tape, target("process_ends", FOLDER, *programs))


def files(tape: Path) -> None:
    run(tape, ["/bin/sh", "-c", "cat /etc/os-release > out; cat missing; ln -s out link; cat link"], "--files")


def redis(tape: Path) -> None:
    run(tape, target("redis_talk", FOLDER))


PSQL: Final = """
create table things (id int primary key, name text);
insert into things values (1, 'hunter2'), (2, 'other');
select name from things where id = 1 and name <> 'x';
select 1; select 2 \\; select 3;
begin; update things set name = 'hunter2' where id > 0; commit;
copy things from stdin;
3\thunter2
4\thunter2
\\.
copy (select * from things) to stdout;
insert into things values (1, 'hunter2');
select 'hunter2'::int;
selec 'hunter2';
select * from missing;
listen news;
notify news, 'hunter2';
create user bob password 'hunter2';
drop user bob;
"""
BENCH: Final = "\\set id random(1, 2)\nselect name from things where id = :id and name <> 'hunter2';\n"


def postgresql(tape: Path) -> None:
    """Speak by psql (simple queries, COPY, errors) and pgbench (extended queries)."""
    with postgresql_server() as server:
        tool = postgresql_tool(server)
        (FOLDER / "talk.sql").write_text(PSQL)
        lines = [
            f"{tool('psql')} -XAtq -f talk.sql >/dev/null 2>&1",
            *(f"{tool('pgbench')} -n -M {way} -t 2 -f bench.sql >/dev/null 2>&1" for way in ("extended", "prepared")),
        ]
        (FOLDER / "talk.sh").write_text("\n".join(lines))
        run(tape, ["/bin/sh", "talk.sh"])


def postgresql_attached(tape: Path) -> None:
    """Join a client in the middle of its session: what it prepared before is not known."""
    with postgresql_server() as server:
        server.sql(PSQL.partition("select")[0])
        line = postgresql_tool(server)("pgbench") + " -n -M prepared -R 20 -T 60 -f bench.sql"
        with subprocess.Popen(
            line.split(), cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                while sum("name <>" in text for text in server.statements()) < 5:
                    time.sleep(0.05)
                options = ["--no-record", "--format", "none", "--duration", "1", "--tape", str(tape)]
                subprocess.run([*TRACEHOUND, "attach", "--pid", str(process.pid), *options], check=True)
            finally:
                process.terminate()


@contextmanager
def postgresql_server() -> Iterator[Any]:
    from tests.live.postgresql_server import PASSWORD, running_server

    os.environ["PGPASSWORD"] = PASSWORD
    (FOLDER / "bench.sql").write_text(BENCH)
    with running_server() as server:
        yield server


def postgresql_tool(server: Any) -> Callable[[str], str]:
    """Return what makes the command line of one of PostgreSQL's tools."""
    from tests.live.postgresql_server import FOLDER as BINARIES
    from tests.live.postgresql_server import USER

    return lambda name: f"{BINARIES}/{name} -h 127.0.0.1 -p {server.port} -U {USER} postgres"


SCENARIOS: Final[dict[str, Callable[[Path], None]]] = {
    "attached": attached,
    "connection_ends": connection_ends,
    "files": files,
    "http_server": http_server,
    "names": names,
    "nat": nat,
    "postgresql": postgresql,
    "postgresql_attached": postgresql_attached,
    "processes": processes,
    "redis": redis,
    "servers": servers,
    "shapes": shapes,
    "unix_udp": unix_udp,
}


def make(name: str) -> None:
    """Trace one scenario, scrub its tape, and take the names of this machine out of its header."""
    from tracehound.scrub import scrub
    from tracehound.sources import tape as tapes

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o755)
    raw, clean, kept = FOLDER / "raw.tape", FOLDER / "clean.tape", TAPES / f"{name}.tape"
    SCENARIOS[name](raw)
    report = scrub(raw, clean)
    assert not report.differs, f"{name}: {report.notes}"
    with tapes.Tape(clean) as tape:
        facts = replace(tape.facts, host="golden", boot_id="golden", kernel=".".join(tape.facts.kernel.split(".")[:2]))
        start = tapes.start_of(facts, tape.redacted, tape.layout.btf.data)
        kept.write_bytes(start + b"".join(tapes.pack(frame.type, frame.data, frame.ring) for frame in tape.frames()))
    assert kept.stat().st_size <= LARGEST, f"{name}: {kept.stat().st_size} bytes"
    shutil.rmtree(FOLDER)


def rows_of(path: Path) -> str:
    """Return the rows of a tape as JSON lines, table by table; before them, which columns each table had."""
    from tests.sources.taped import Collected

    from tracehound.replay import open_replay
    from tracehound.sinks._encode import json_lines

    kept = Collected()
    with open_replay(path) as replay:
        end = replay.run([kept])
    told = [note for note in end.notes if not note.startswith("this tape lacks records of ")]  # kinds came later
    assert not told, told
    lines = [json.dumps({name: table.column_names for name, table in sorted(kept.rows.items())}) + "\n"]
    for name, table in sorted(kept.rows.items()):
        lines += [json_lines(name, batch).decode() for batch in table.combine_chunks().to_batches()]
    return "".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Make what is asked for."""
    names = [name for name in arguments if not name.startswith("-")] or list(SCENARIOS)
    for name in names:
        if "--rows" not in arguments:
            make(name)
        path = TAPES / f"{name}.tape"
        (TAPES / f"{name}.jsonl").write_text(rows_of(path))
        print(f"{name}: {path.stat().st_size:,} bytes, {(TAPES / f'{name}.jsonl').read_text().count(chr(10)) - 1} rows")


if __name__ == "__main__":
    os.umask(0o022)
    main(sys.argv[1:])
