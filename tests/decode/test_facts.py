"""fact_* records in, the tables that enrich reads out."""

from tests.decode.batches import batch, one

from tracehound.decode.facts import decode_facts


def test_facts() -> None:
    texts = {"exe": b"/usr/bin/python3", "argv": b"python3\0shop.py\0", "cgroup": b"/user.slice", "service": b""}
    process = {"pid": 7, "start_ns": 5, "ppid": 1, "ns_pid": 3, "uid": 1000, "comm": b"python3"}
    tables = decode_facts(
        batch(
            [
                one("fact_clock", 10, monotonic_ns=9, realtime_ns=1_700_000_000_000_000_000),
                one(
                    "fact_process",
                    11,
                    b"".join(texts.values()),
                    **process,
                    **{f"{n}_size": len(t) for n, t in texts.items()},
                ),
                one("fact_cgroup", 12, b"/user.slice", id=77, path_size=11),
                one("fact_tick", 13),
            ]
        )
    )
    assert {name: table.to_pylist() for name, table in tables.items()} == {
        "fact_clock": [{"time_ns": 10, "monotonic_ns": 9, "realtime_ns": 1_700_000_000_000_000_000}],
        "fact_process": [
            {"time_ns": 11, "pid": 7, "start_ns": 5, "ppid": 1, "ns_pid": 3, "uid": 1000, "comm": "python3"}
            | {"exe": "/usr/bin/python3", "argv": ["python3", "shop.py"], "cgroup": "/user.slice", "service": None}
        ],
        "fact_cgroup": [{"time_ns": 12, "id": 77, "path": "/user.slice"}],
    }


def test_no_facts() -> None:
    assert decode_facts(batch([one("fact_tick", 1)])) == {}
