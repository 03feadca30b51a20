"""Process events and facts in, names in the columns of other rows out."""

import time
from typing import Any

import pytest
from tests.enrich.rows import column, table

from tracehound.enrich.process import ENDED_KEPT, ProcessNames, service_name


@pytest.mark.parametrize(
    ("exe", "argv", "service"),
    [
        ("/usr/sbin/nginx", "nginx -g daemon", "nginx"),
        ("/usr/bin/python3.11", "python3 shop.py --port 1", "shop"),
        ("/usr/bin/python3.11", "python3 -u -W error /srv/my.shop.py x", "my.shop"),
        ("/usr/bin/python3.11", "python3 -m http.server 8000", "http.server"),
        ("/usr/bin/python3.11", "python3 -muvicorn app:app", "uvicorn"),
        ("/usr/bin/python3.11", "python3 /usr/bin/uvicorn app:app", "uvicorn"),
        ("/usr/bin/python3.11", "python3 /srv/shop/__main__.py", "shop"),
        ("/usr/bin/python3.11", "python3 -c print(1) x.py", "python3.11"),
        ("/usr/bin/python3.11", "python3 -Ic print(1)", "python3.11"),
        ("/usr/bin/python3.11", "python3 -- x.py", "x"),
        ("/usr/bin/python3.11", "python3", "python3.11"),
        ("/usr/bin/python3.11", "python3 -", "python3.11"),
        ("/usr/bin/node", "node -r ./trace.js server.js", "server"),
        ("/usr/bin/node", "node -e 1", "node"),
        ("/usr/bin/dash", "sh -c true", "dash"),
        ("/usr/bin/bash", "/bin/bash -x ./run.sh now", "run"),
        ("/usr/bin/bash", "-bash", "bash"),
        ("/usr/bin/bash", "bash -euo pipefail -c true", "bash"),
        ("/usr/bin/bash", "bash -eo pipefail ./run.sh", "run"),
        ("/usr/lib/jvm/bin/java", "java -Xmx1g -jar /srv/orders-1.2.jar", "orders-1.2"),
        ("/usr/lib/jvm/bin/java", "java -cp a.jar:b.jar com.shop.Main x", "Main"),
        ("/usr/bin/ruby3.1", "ruby -Ilib app.rb", "app"),
        ("/usr/bin/perl", "perl -e 1", "perl"),
        ("/usr/bin/perl", "perl -ne print", "perl"),
        ("/usr/bin/ruby3.1", "ruby -ne print", "ruby3.1"),
        ("/usr/bin/php8.2", "php -d x=1 -f index.php", "index"),
        ("/srv/app (deleted)", "app", "app"),
        ("/usr/bin/pythonic", "pythonic x.py", "pythonic"),
        (None, "/usr/bin/tool x", "tool"),
        (None, "", None),
    ],
)
def test_service_name(exe: str | None, argv: str, service: str | None) -> None:
    assert service_name(exe, argv.split()) == service


@pytest.mark.parametrize(
    ("exe", "argv", "comm", "service"),
    [
        # called by a link, which the kernel tells by comm, and the caller by the first argument
        ("/usr/bin/redis-check-rdb", ["redis-server", "--port", "1"], "redis-server", "redis-server"),
        ("/usr/bin/redis-check-rdb", ["/usr/bin/redis-server 127.0.0.1:6379"], "redis-server", "redis-server"),
        ("/usr/bin/redis-check-rdb", ["/usr/bin/redis-check-aof", "x"], "redis-check-aof", "redis-check-aof"),
        ("/bin/busybox", ["httpd", "-f"], "httpd", "httpd"),
        ("/bin/busybox", ["/bin/sh", "/srv/run.sh"], "sh", "run"),
        ("/bin/busybox", ["sh", "-c", "x"], "sh", "sh"),
        ("/bin/busybox", ["busybox", "httpd"], "busybox", "busybox"),
        ("/opt/store-2.1/store-2.1", ["/usr/local/bin/store"], "store", "store"),
        ("/usr/bin/mawk", ["awk", "1"], "awk", "awk"),
        ("/opt/x/a-name-that-is-long-2", ["a-name-that-is-long"], "a-name-that-is-", "a-name-that-is-long"),
        # interpreters: the script, and their own name only if there is none
        ("/usr/bin/python3.11", ["/srv/.venv/bin/python", "shop.py"], "python", "shop"),
        ("/usr/bin/python3.11", ["/srv/.venv/bin/python", "-m", "shop"], "python", "shop"),
        ("/usr/bin/python3.11", ["/srv/.venv/bin/python3", "/srv/.venv/bin/celery"], "celery", "celery"),
        ("/usr/bin/python3.11", ["/srv/.venv/bin/python", "-c", "x"], "python", "python3.11"),
        ("/usr/bin/dash", ["sh", "-c", "true"], "sh", "dash"),
        # one of the two says something else: titles, names given to a thread, a first argument that is made up
        ("/usr/sbin/nginx", ["nginx: master process /usr/sbin/nginx"], "nginx", "nginx"),
        ("/usr/lib/postgresql/15/bin/postgres", ["postgres: checkpointer "], "postgres", "postgres"),
        ("/usr/bin/mysqld", ["/usr/sbin/other"], "mysqld", "mysqld"),
        ("/usr/bin/store", ["store"], "worker-1", "store"),
        ("/memfd:store (deleted)", ["runner"], "3", "memfd:store"),
        ("/usr/bin/store", [], "store", "store"),
    ],
)
def test_service_name_of_a_file_with_several_names(exe: str, argv: list[str], comm: str, service: str) -> None:
    assert service_name(exe, argv, comm) == service


def start(time_ns: int, pid: int, ppid: int, comm: str = "sh") -> dict[str, Any]:
    return {
        "time_ns": time_ns,
        "event": "start",
        "pid": pid,
        "ppid": ppid,
        "ns_pid": pid - 90,
        "comm": comm,
        "process_start_ns": time_ns,
    }


def execute(time_ns: int, pid: int, born_ns: int, argv: str, **fields: Any) -> dict[str, Any]:
    words = argv.split()
    row = {"time_ns": time_ns, "event": "exec", "pid": pid, "process_start_ns": born_ns, "exe": words[0], "argv": words}
    return row | {"comm": words[0].rpartition("/")[2]} | fields


def leave(time_ns: int, pid: int, born_ns: int) -> dict[str, Any]:
    return {"time_ns": time_ns, "event": "exit", "pid": pid, "process_start_ns": born_ns, "comm": "x"}


FILLED = ("ns_pid", "process_start_ns", "comm", "service")


def test_names_change_with_exec_and_are_inherited_by_fork() -> None:
    names = ProcessNames()
    events = table(
        "processes",
        start(1_000, 100, 50),
        execute(2_000, 100, 1_000, "/usr/bin/python3 shop.py"),
        start(3_000, 101, 100, "python3"),
        execute(4_000, 101, 3_000, "/usr/bin/redis-server"),
        leave(9_000, 101, 3_000),
    )
    wanted = [
        (100, 1_500),
        (100, 2_000),
        (101, 3_500),
        (101, 8_000),
        (101, 9_500),
        (100, 500),
        (77, 5_000),
        (None, 5_000),
    ]
    requests = table("requests", *({"pid": pid, "time_ns": at} for pid, at in wanted))
    found = names.add({"processes": events, "requests": requests})
    assert column(found, "requests", *FILLED) == [
        (10, 1_000, "sh", None),
        (10, 1_000, "python3", "shop"),
        (11, 3_000, "python3", "shop"),
        (11, 3_000, "redis-server", "redis-server"),
        (11, 3_000, "redis-server", "redis-server"),
        (None, None, None, None),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert column(found, "processes", "ns_pid", "service") == [
        (10, None),
        (10, "shop"),
        (11, "shop"),
        (11, "redis-server"),
        (11, "redis-server"),
    ]
    later = names.add({"requests": table("requests", {"pid": 101, "time_ns": 3_500})})
    assert column(later, "requests", "service") == ["shop"]


def test_otel_service_name_wins() -> None:
    facts = table(
        "fact_process",
        {"time_ns": 2_000, "pid": 100, "start_ns": 1_000, "ns_pid": 1, "comm": "python3", "service": "orders"},
    )
    events = table("processes", execute(2_000, 100, 1_000, "/usr/bin/python3 shop.py"))
    found = ProcessNames().add({"fact_process": facts, "processes": events})
    assert column(found, "processes", *FILLED) == [(1, 1_000, "python3", "orders")]


def test_a_process_known_from_facts_alone() -> None:
    fact = {
        "time_ns": 10,
        "pid": 7,
        "start_ns": 5,
        "ns_pid": 1,
        "comm": "python3",
        "exe": "/usr/bin/python3",
        "argv": ["python3", "web.py"],
    }
    requests = table("requests", {"pid": 7, "time_ns": 9}, {"pid": 7, "time_ns": 10})
    found = ProcessNames().add({"fact_process": table("fact_process", fact), "requests": requests})
    assert column(found, "requests", *FILLED) == [(None,) * 4, (1, 5, "python3", "web")]
    assert found["fact_process"].num_rows == 1


def test_an_accept_may_be_older_than_the_process_that_serves_it() -> None:
    events = table("processes", start(2_000, 101, 100, "worker"))
    rows = table(
        "connections",
        {"event": "accept", "pid": 101, "time_ns": 1_000},
        {"event": "open", "pid": 101, "time_ns": 1_000},
    )
    assert column(ProcessNames().add({"processes": events, "connections": rows}), "connections", "comm") == [
        "worker",
        None,
    ]


def test_reused_pid() -> None:
    events = table(
        "processes",
        execute(10, 7, 5, "/bin/a"),
        leave(20, 7, 5),
        start(900_000_000, 7, 3),
        execute(900_000_010, 7, 900_000_000, "/bin/b"),
    )
    rows = table(
        "requests", {"pid": 7, "time_ns": 25}, {"pid": 7, "time_ns": 900_000_005}, {"pid": 7, "time_ns": 900_000_020}
    )
    found = ProcessNames().add({"processes": events, "requests": rows})
    assert column(found, "requests", "service", "process_start_ns") == [
        ("a", 5),
        (None, 900_000_000),
        ("b", 900_000_000),
    ]


def test_cut_anywhere_gives_the_same_names() -> None:
    events = [
        start(10, 100, 50),
        execute(20, 100, 10, "/bin/a"),
        start(30, 101, 100),
        execute(40, 101, 30, "/bin/b"),
        execute(50, 100, 10, "/bin/c"),
    ]
    times = [(pid, at) for at in range(5, 60, 5) for pid in (100, 101)]
    expected = names_of(events, times, [])
    assert names_of(events, times, [20]) == names_of(events, times, [10, 20, 30, 40, 50]) == expected


def names_of(events: list[dict[str, Any]], times: list[tuple[int, int]], cuts: list[int]) -> list[Any]:
    names, found, since = ProcessNames(), [], 0
    for until in (*cuts, 1_000):
        part = {
            "processes": table("processes", *(row for row in events if since < row["time_ns"] <= until)),
            "requests": table("requests", *({"pid": pid, "time_ns": at} for pid, at in times if since < at <= until)),
        }
        found += column(names.add(part), "requests", "pid", *FILLED)
        since = until
    return found


def test_ended_processes_are_forgotten_at_last() -> None:
    names = ProcessNames()
    for first in range(0, 3 * ENDED_KEPT, ENDED_KEPT // 2):
        rows = [leave(pid, pid, pid) for pid in range(first, first + ENDED_KEPT // 2)]
        names.add({"processes": table("processes", *rows)})
    assert len(names._histories) == ENDED_KEPT


def test_many_rows_are_columns() -> None:
    names = ProcessNames()
    names.add({"processes": table("processes", *(execute(1, pid, 1, "/bin/a") for pid in range(200)))})
    rows = table("requests", *({"pid": at % 200, "time_ns": at + 1} for at in range(20_000)))
    started = time.process_time()
    assert set(column(names.add({"requests": rows}), "requests", "service")) == {"a"}
    assert time.process_time() - started < 1
