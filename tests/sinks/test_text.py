"""Units, widths, colour."""

import io

import pytest

from tracehound.sinks._text import (
    Column,
    cut,
    duration,
    fit,
    lines,
    printable,
    short_size,
    size,
    wants_color,
    width_of,
)


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (None, ""), (0, "0 ns"), (999, "999 ns"), (1000, "1.0 µs"), (9_949, "9.9 µs"), (61_400, "61 µs"),
        (310_000, "310 µs"), (999_940, "1000 µs"), (999_960, "1.0 ms"), (3_100_000, "3.1 ms"), (22_400_000, "22.4 ms"),
        (140_000_000, "140 ms"), (999_960_000, "1.00 s"), (4_210_000_000, "4.21 s"), (42_100_000_000, "42.1 s"),
        (125_000_000_000, "2m05s"), (7_325_000_000_000, "122m05s"),
    ],
)  # fmt: skip
def test_durations(value_ns: int | None, text: str) -> None:
    assert duration(value_ns) == text


@pytest.mark.parametrize(
    ("count", "short", "long"),
    [
        (0, "0", "0 B"), (43, "43", "43 B"), (999, "999", "999 B"), (1000, "1.0k", "1.0 kB"), (1149, "1.1k", "1.1 kB"),
        (38_000, "38k", "38 kB"), (999_499, "999k", "999 kB"), (999_500, "1.0M", "1.0 MB"),
        (1_200_000, "1.2M", "1.2 MB"), (200 << 20, "210M", "210 MB"), (3 << 40, "3.3T", "3.3 TB"),
        (10**19, "10000P", "10000 PB"),
    ],
)  # fmt: skip
def test_sizes(count: int, short: str, long: str) -> None:
    assert (short_size(count), size(count)) == (short, long)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("orders", 6, "orders"), ("orders", 5, "orde…"), ("orders", 1, "…"), ("orders", 0, ""), ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"), ("日本語", 4, "日…"), ("e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"),
    ],
)  # fmt: skip
def test_cutting(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert width_of(shown) <= max(width, 0)


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert printable("GET /é 日本") == "GET /é 日本"
    assert printable("a\x1b[2J\r\n\u202e\x9b") == "a\\x1b[2J\\r\\n\\u202e\\x9b"


def test_the_least_useful_column_goes_first_then_texts_are_cut() -> None:
    def columns() -> list[Column]:
        return [
            Column("name", ["a" * 20, "b"], can_shrink=True),
            Column("n", ["1", "22"], right=True),
            Column("p50", ["33333"], rank=1),
            Column("p99", ["444444"], rank=2),
        ]

    assert [c.head for c in fit(columns(), 80)] == ["name", "n", "p50", "p99"]
    assert [c.head for c in fit(columns(), 33)] == ["name", "n", "p50"]
    assert [c.head for c in fit(columns(), 25)] == ["name", "n"]
    assert list(lines(fit(columns(), 15), color=False)) == [
        " name         n",
        " aaaaaaaaa…   1",
        " b           22",
    ]


@pytest.mark.parametrize(
    ("environ", "is_terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], is_terminal: bool, wanted: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    assert wants_color(stream) == wanted
