"""fork, exec and exit records in, rows of `processes` out."""

from typing import Any

import pytest
from tests.decode.batches import LAYOUT, Record, batch, cut, one, rows, whole_rows

from tracehound.decode.processes import Processes


def fork(time_ns: int, parent: int, child: int, **fields: Any) -> Record:
    values: dict[str, Any] = {
        "start_ns": time_ns - 1,
        "child_ns_pid": child % 100,
        "uid": 1000,
        "cgroup_id": 77,
        "comm": b"sh",
    }
    return one("fork", time_ns, pid=parent, tid=parent, child_pid=child, **(values | fields))


def execute(time_ns: int, pid: int, exe: bytes, argv: bytes, **fields: Any) -> Record:
    sizes: dict[str, Any] = {"exe_size": len(exe), "argv_size": len(argv)}
    values: dict[str, Any] = {
        "tid": pid,
        "ppid": 1,
        "ns_pid": pid % 100,
        "uid": 1000,
        "cgroup_id": 77,
        "comm": b"python3",
    }
    return one("exec", time_ns, exe + argv, pid=pid, **sizes, **(values | fields))


def leave(time_ns: int, pid: int, **fields: Any) -> Record:
    return one("exit", time_ns, pid=pid, **{"tid": pid, "comm": b"python3", **fields})


LIFE = [
    fork(1_000, 500, 601),
    execute(2_000, 601, b"/usr/bin/env", b"env\0python3\0", start_ns=999, ppid=500, comm=b"env"),
    execute(5_000, 601, b"/usr/bin/python3", b"python3\0\0-c\0", start_ns=999, ppid=500, uid=1001),
    leave(9_000, 601, start_ns=999, exit_code=3),
]
COMMON = {"pid": 601, "ns_pid": 1, "tid": 601, "process_start_ns": 999, "preexisting": False}
LIFE_ROWS = [
    COMMON | {"time_ns": 1_000, "comm": "sh", "event": "start", "ppid": 500, "uid": 1000, "cgroup_id": 77},
    COMMON
    | {"time_ns": 2_000, "comm": "env", "event": "exec", "ppid": 500, "uid": 1000, "cgroup_id": 77}
    | {"exe": "/usr/bin/env", "argv": ["env", "python3"]},
    COMMON
    | {"time_ns": 5_000, "comm": "python3", "event": "exec", "ppid": 500, "uid": 1001, "cgroup_id": 77}
    | {"exe": "/usr/bin/python3", "argv": ["python3", "", "-c"], "duration_ns": 3_000},
    {key: value for key, value in COMMON.items() if key != "ns_pid"}
    | {"time_ns": 9_000, "comm": "python3", "event": "exit", "ppid": 500, "uid": 1001, "cgroup_id": 77}
    | {"exit_code": 3, "reason": "none", "duration_ns": 8_001},
]


def test_a_life_in_one_batch() -> None:
    assert whole_rows(Processes(LAYOUT).decode(batch(LIFE))) == LIFE_ROWS


@pytest.mark.parametrize("watermarks", [[1_000], [2_000], [5_000], [1_000, 2_000, 5_000], [1, 2, 3_000, 8_999]])
def test_a_life_cut_anywhere(watermarks: list[int]) -> None:
    processes = Processes(LAYOUT)
    assert [row for part in cut(LIFE, watermarks) for row in whole_rows(processes.decode(part))] == LIFE_ROWS


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exit_code": 0}, (0, None, "none")),
        ({"exit_code": 255}, (255, None, "none")),
        ({"signal": 9}, (None, "SIGKILL", "none")),
        ({"signal": 9, "flags": 2}, (None, "SIGKILL", "oom_kill")),
        ({"signal": 11, "flags": 1}, (None, "SIGSEGV", "none")),
        ({"signal": 40}, (None, "SIGRTMIN+6", "none")),
    ],
)
def test_ends(fields: dict[str, int], expected: tuple[Any, ...]) -> None:
    table = Processes(LAYOUT).decode(batch([leave(50, 7, start_ns=10, **fields)]))
    assert rows(table, "exit_code", "signal", "reason", "duration_ns", "ppid") == [(*expected, 40, None)]


def test_reused_pid_starts_anew() -> None:
    records = [
        execute(10, 7, b"/a", b"a\0", start_ns=5, ppid=2),
        leave(20, 7, start_ns=5),
        fork(30, 3, 7, start_ns=29),
        execute(40, 7, b"/b", b"b\0", start_ns=29, ppid=3),
        leave(50, 7, start_ns=29),
    ]
    expected = [("exec", 2, None), ("exit", 2, 15), ("start", 3, None), ("exec", 3, None), ("exit", 3, 21)]
    for watermarks in ([], [10, 20, 30, 40], [25]):
        processes = Processes(LAYOUT)
        tables = [processes.decode(part) for part in cut(records, watermarks)]
        assert [row for table in tables for row in rows(table, "event", "ppid", "duration_ns")] == expected


def test_the_state_of_ended_processes_is_dropped() -> None:
    processes = Processes(LAYOUT)
    for number in range(20):
        at = number * 10
        processes.decode(batch([fork(at + 1, 1, 100 + number, start_ns=at), leave(at + 5, 100 + number, start_ns=at)]))
    assert len(processes._live) == 0


def test_bad_sizes_and_bytes_stay_in_their_record() -> None:
    table = Processes(LAYOUT).decode(
        batch(
            [
                one("exec", 1, b"/x\xff", pid=1, exe_size=999_999, argv_size=4_000_000_000),
                execute(2, 2, b"", b"", start_ns=1),
                execute(3, 3, b"/y", b"y\0\xfe\0cut of", start_ns=1),
            ]
        )
    )
    assert rows(table, "exe", "argv") == [("/x\\xff", []), (None, []), ("/y", ["y", "\\xfe", "cut of"])]


def test_nothing() -> None:
    assert Processes(LAYOUT).decode(batch([])) is None


def seed(time_ns: int, pid: int, **fields: Any) -> Record:
    return execute(
        time_ns, pid, b"/usr/bin/app", b"app\0-x\0", flags=LAYOUT.enum("exec_flag")["EXEC_PREEXISTING"], **fields
    )


BEFORE = [
    seed(3_000, 601, start_ns=999, ppid=500),
    execute(5_000, 601, b"/usr/bin/python3", b"python3\0", start_ns=999, ppid=500),
    leave(9_000, 601, start_ns=999, exit_code=3),
]


@pytest.mark.parametrize("watermarks", [[], [3_000], [5_000], [3_000, 5_000]])
def test_a_process_that_was_there_before_has_a_start_row_that_says_so(watermarks: list[int]) -> None:
    processes = Processes(LAYOUT)
    names = ("event", "preexisting", "exe", "argv", "ppid", "duration_ns")
    assert [row for part in cut(BEFORE, watermarks) for row in rows(processes.decode(part), *names)] == [
        ("start", True, "/usr/bin/app", ["app", "-x"], 500, None),
        ("exec", False, "/usr/bin/python3", ["python3"], 500, None),
        ("exit", False, None, None, 500, 8_001),
    ]


@pytest.mark.parametrize("watermarks", [[], [1_000], [2_000], [1_000, 2_000, 3_000]])
@pytest.mark.parametrize(("fork_ns", "seed_ns", "preexisting"), [(1_000, 2_000, False), (2_000, 1_000, True)])
def test_a_process_seen_both_ways_has_one_start_row(
    fork_ns: int, seed_ns: int, preexisting: bool, watermarks: list[int]
) -> None:
    records = [fork(fork_ns, 500, 601, start_ns=990), seed(seed_ns, 601, start_ns=990), leave(3_000, 601, start_ns=990)]
    again = [fork(4_000, 500, 601, start_ns=3_990)]  # the pid comes back: another process
    processes = Processes(LAYOUT)
    records.sort(key=lambda record: record.time_ns)
    parts = cut([*records, *again], watermarks)
    found = [row for part in parts for row in rows(processes.decode(part), "event", "preexisting")]
    assert found == [("start", preexisting), ("exit", False), ("start", False)]
