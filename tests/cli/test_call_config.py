"""`tracehound call --config`: the same points and options from TOML, JSON and the command line; mistakes by key."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tracehound.cli import main
from tracehound.cli._call_config import apply_config
from tracehound.cli._options import Parser
from tracehound.cli.call import add_arguments
from tracehound.errors import UsageError

TOML = """
[options]
pid = [4242, 4243]
duration = 2.5
strict = true
payloads = false
format = "json"

[[points]]
library = "libc"
symbol = "write"
arguments = ["int", "buf:arg2", "size_t"]

[[points]]
library = "/usr/bin/shop"
symbol = "handle_*"
offset = 0x10

[[points]]
library = "shop"
offset = "0x1234"
"""
POINTS = ["libc:write[int,buf:arg2,size_t]", "/usr/bin/shop:handle_*+0x10", "shop:0x1234"]
CONTENT: dict[str, Any] = {
    "options": {"pid": [4242, 4243], "duration": 2.5, "strict": True, "payloads": False, "format": "json"},
    "points": [
        {"library": "libc", "symbol": "write", "arguments": ["int", "buf:arg2", "size_t"]},
        {"library": "/usr/bin/shop", "symbol": "handle_*", "offset": 16},
        "shop:0x1234",
    ],
}


def applied(path: Path, *words: str) -> argparse.Namespace:
    """Return the options of `call` with a file."""
    parser = Parser(prog="tracehound call")
    add_arguments(parser)
    options = parser.parse_args(["--config", str(path), *words])
    apply_config(options, add_arguments)
    return options


@pytest.mark.parametrize(
    ("name", "text"), [("p.toml", TOML), ("p.json", json.dumps(CONTENT)), ("p", json.dumps(CONTENT))]
)
def test_points_and_options(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    options = applied(tmp_path / name)
    assert options.points == POINTS
    assert (options.pid, options.duration, options.format) == ([4242, 4243], 2.5, "json")
    assert (options.strict, options.payloads, options.weight) == (True, False, "count")


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(TOML)
    options = applied(tmp_path / "p.toml", "--duration", "9", "--pid", "1", "libc:read", "--", "ls")
    assert (options.duration, options.pid, options.format) == (9.0, [1], "json")
    assert options.points == [*POINTS, "libc:read", "--", "ls"]


def test_a_file_of_options_only(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("options.duration = 3")
    options = applied(tmp_path / "p.toml", "libc:read")
    assert (options.duration, options.points) == (3.0, ["libc:read"])


def test_filters_are_of_their_point_and_stacks_of_all(tmp_path: Path) -> None:
    point = {"library": "libc", "symbol": "write", "filters": ["arg2 > 10", "arg0 == 1"], "stack": True}
    (tmp_path / "p.json").write_text(json.dumps({"points": [point]}))
    options = applied(tmp_path / "p.json", "--filter", "arg0 != 2")
    assert options.filter == ["write:arg2 > 10", "write:arg0 == 1", "arg0 != 2"] and options.stack
    (tmp_path / "p.json").write_text(json.dumps({"points": [point, "libc:read"]}))
    with pytest.raises(UsageError, match=r"p\.json: stack: all points have stacks or none has"):
        applied(tmp_path / "p.json")


POINT: dict[str, Any] = {"library": "libc", "symbol": "write"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"point": []}, "point: no such key. Near: points"),
        ({}, "points: a list of points is needed, not []"),
        ({"points": "libc:write"}, "points: a list of points is needed, not 'libc:write'"),
        ({"points": [7]}, "points[1]: 7 is no table of keys and values"),
        ({"points": [POINT, POINT | {"symbols": "x"}]}, "points[2].symbols: no such key. Near: symbol"),
        ({"points": [{"symbol": "write"}]}, "points[1].library: it is missing"),
        ({"points": [{"library": "libc"}]}, "points[1].symbol: it is missing, and so is offset"),
        ({"points": [{"library": 1, "symbol": "x"}]}, "points[1].library: a text, not 1"),
        ({"points": [POINT | {"offset": "x1"}]}, "points[1].offset: a number, or a text as \"0x1234\", not 'x1'"),
        ({"points": [POINT | {"offset": True}]}, 'points[1].offset: a number, or a text as "0x1234", not True'),
        ({"points": [POINT | {"arguments": "int"}]}, "points[1].arguments: a list of texts, not 'int'"),
        ({"points": [POINT | {"arguments": ["intt"]}]}, "points[1].arguments: no type "),
        ({"points": [{"library": "c", "offset": 1, "filters": ["a > 1"]}]}, "points[1].filters: they need a symbol"),
        ({"points": [POINT | {"filters": ["arg0 = 1"]}]}, "points[1].filters: 'arg0 = 1': = is no operator"),
        ({"points": [POINT | {"filters": ["arg0"]}]}, "points[1].filters: 'arg0' is no filter"),
        ({"points": [POINT | {"stack": 1}]}, "points[1].stack: true or false, not 1"),
        ({"options": 3, "points": [POINT]}, "options: 3 is no table of keys and values"),
        ({"options": {"durations": 3}, "points": [POINT]}, "options.durations: no such option of call. Near: duration"),
        ({"options": {"config": "x"}, "points": [POINT]}, "options.config: no such option of call"),
        ({"options": {"strict": "yes"}, "points": [POINT]}, "options.strict: true or false, not 'yes'"),
        ({"options": {"duration": [1]}, "points": [POINT]}, "options.duration: a text or a number, not [1]"),
        ({"options": {"duration": "long"}, "points": [POINT]}, "options: argument --duration: invalid float"),
        ({"options": {"format": "jsn"}, "points": [POINT]}, "options: no value of --format jsn. Near: json"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_file_and_key(
    tmp_path: Path, content: dict[str, Any], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    assert main(["call", "--config", str(path), "--", "true"]) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"tracehound: {path}: {told}") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.toml", b"[[points]\n", "it is no TOML: Expected ']]' at the end of an array declaration (at line 1"),
        ("p.json", b"{", "it is no JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("p.json", b"[" * 100_000, "it is no JSON: "),
        ("p.json", b"[]", "the whole: [] is no table"),
        ("p.toml", b"\xff", "it is no text in UTF-8: "),
        ("p.toml", None, "cannot be read: No such file or directory"),
    ],
)
def test_files_that_are_none(
    tmp_path: Path, name: str, content: bytes | None, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert main(["call", "--config", str(path), "--", "true"]) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"tracehound: {path}: {told}") and err.count("\n") == 1
