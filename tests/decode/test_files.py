"""open records in, rows of `files` out."""

from typing import Any

import pytest
from tests.decode.batches import LAYOUT, Record, batch, one, rows, whole_rows

from tracehound.decode.files import Files, flag_names

FLAGS = LAYOUT.enum("open_flag")
TRUNCATED, FAULT = FLAGS["OPEN_PATH_TRUNCATED"], FLAGS["OPEN_PATH_FAULT"]
RESOLVED, UNKNOWN = FLAGS["OPEN_RESOLVED"], FLAGS["OPEN_PLACE_UNKNOWN"]


def opened(time_ns: int, place: bytes, path: bytes, **fields: Any) -> Record:
    sizes: dict[str, Any] = {"place_size": len(place), "path_size": len(path)}
    return one("open", time_ns, place + path, **{"pid": 7, "tid": 8, "duration_ns": 1_200, **sizes, **fields})


def test_an_open_that_succeeded_and_one_that_did_not() -> None:
    records = [
        opened(1_000, b"/srv/shop/orders", b"link", result=3, flags=RESOLVED, open_flags=0o2000101, mode=0o100644),
        opened(2_000, b"/srv/shop", b"orders/17", result=-2, open_flags=0o2000000, mode=0o777),
    ]
    common = {"pid": 7, "tid": 8, "preexisting": False, "path_truncated": False, "duration_ns": 1_200}
    assert whole_rows(Files(LAYOUT).decode(batch(records))) == [
        common
        | {"time_ns": 1_000, "path": "link", "resolved_path": "/srv/shop/orders", "fd": 3, "mode": 0o644}
        | {"flags": ["O_WRONLY", "O_CREAT", "O_CLOEXEC"]},
        common
        | {"time_ns": 2_000, "path": "orders/17", "resolved_path": "/srv/shop/orders/17", "errno": "ENOENT"}
        | {"flags": ["O_RDONLY", "O_CLOEXEC"]},
    ]


@pytest.mark.parametrize(
    ("place", "path", "fields", "expected"),
    [
        (b"/", b"/", {"result": 3, "flags": RESOLVED}, ("/", "/", False)),
        (b"", b"x", {"result": -2}, ("x", "/x", False)),  # in the root directory
        (b"", b"/no/x", {"result": -2}, ("/no/x", "/no/x", False)),
        (b"", b"/no/x", {"result": 3, "flags": UNKNOWN}, ("/no/x", "/no/x", False)),
        (b"", b"x", {"result": -9, "flags": UNKNOWN}, ("x", None, False)),
        (b"/a", b"", {"result": -14, "flags": FAULT}, (None, None, False)),
        (b"/a/b", b"", {"result": 4, "flags": FAULT | RESOLVED}, (None, "/a/b", False)),
        (b"/a", b"x" * 4096, {"result": -36, "flags": TRUNCATED}, ("x" * 4096, "/a/" + "x" * 4096, True)),
        (b"/a", b"\xff", {"result": -2}, ("\\xff", "/a/\\xff", False)),
    ],
)
def test_paths(place: bytes, path: bytes, fields: dict[str, int], expected: tuple[Any, ...]) -> None:
    table = Files(LAYOUT).decode(batch([opened(1, place, path, **fields)]))
    assert rows(table, "path", "resolved_path", "path_truncated") == [expected]


@pytest.mark.parametrize(
    ("result", "expected"),
    [(0, (0, None)), (-13, (None, "EACCES")), (-512, (None, "EINTR")), (-514, (None, "EINTR")), (-300, (None, "300"))],
)
def test_results(result: int, expected: tuple[Any, ...]) -> None:
    assert rows(Files(LAYOUT).decode(batch([opened(1, b"", b"/x", result=result)])), "fd", "errno") == [expected]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (0, "O_RDONLY"),
        (0o1102, "O_RDWR O_CREAT O_TRUNC"),
        (0o4010000, "O_RDONLY O_SYNC"),
        (0o10000, "O_RDONLY O_DSYNC"),
        (0o20200002, "O_RDWR O_TMPFILE"),
        (0o200000, "O_RDONLY O_DIRECTORY"),
        (0o12400000, "O_RDONLY O_NOFOLLOW O_CLOEXEC O_PATH"),
        (0o7, "O_ACCMODE 0o4"),
    ],
)
def test_flags(flags: int, expected: str) -> None:
    assert flag_names(flags) == expected.split()


def test_mode_and_duration_are_null_where_they_say_nothing() -> None:
    records = [
        opened(1, b"", b"/x", mode=0o644, duration_ns=0),
        opened(2, b"", b"/x", mode=0o644, open_flags=0o20200001),
    ]
    assert rows(Files(LAYOUT).decode(batch(records)), "mode", "duration_ns") == [(None, None), (0o644, 1_200)]


def test_nothing() -> None:
    assert Files(LAYOUT).decode(batch([])) is None


def test_bad_sizes_stay_in_their_record() -> None:
    records = [
        one("open", 1, b"/x", place_size=999_999, path_size=4_000_000_000, flags=RESOLVED),
        opened(2, b"/a", b"y", result=-2),
    ]
    assert rows(Files(LAYOUT).decode(batch(records)), "path", "resolved_path") == [(None, "/x"), ("y", "/a/y")]
