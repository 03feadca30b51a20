"""The file of `call --config`: many points and the command's options, in TOML or JSON; every mistake is one line.

[options]                 # the long options of `tracehound call`; the command line goes before them
duration = 10
strict = true

[[points]]                # or a text as on the command line: points = ["libc:write[int,ptr,size_t]"]
library = "libc"
symbol = "write"          # and `offset`: in the function; `offset` alone: in the file
arguments = ["int", "buf:arg2", "size_t"]
filters = ["arg2 > 1000"] # of this point only
"""

import argparse
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracehound.cli._options import Parser, near
from tracehound.errors import UsageError

SECTIONS: Final = ("options", "points")
POINT_KEYS: Final = ("library", "symbol", "offset", "arguments", "filters", "stack")
NOT_IN_A_FILE: Final = frozenset({"help", "config", "debug"})


@dataclass(frozen=True, slots=True)
class CallConfig:
    """What a file says: points as texts, filters as texts, and options as `--NAME VALUE` words."""

    points: tuple[str, ...]
    filters: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def read_config(path: str, parser: argparse.ArgumentParser) -> CallConfig:
    """Read the file; `parser`: that of `call`, whose options there can be. Raises UsageError naming file and key."""
    content = _content(path)
    _check_keys(path, "", content, SECTIONS)
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    words = _words(path, _table(path, "options", content.get("options", {})), flags)
    given = content.get("points", [])
    if not isinstance(given, list) or not (given or words):
        raise UsageError(f"{path}: points: a list of points is needed, not {given!r}")
    points: list[str] = []
    filters: list[str] = []
    stacks = set[bool]()
    for number, each in enumerate(given, 1):
        key = f"points[{number}]"
        point = {"point": each} if isinstance(each, str) else _table(path, key, each)
        points.append(each if isinstance(each, str) else _point_text(path, key, point))
        filters += _filters(path, key, point)
        stacks.add(_flag(path, f"{key}.stack", point.get("stack", False)))
    if filters and "--filter" not in flags:
        raise UsageError(f"{path}: filters: this version has none")
    if True in stacks:
        if False in stacks or "--stack" not in flags:
            why = "all points have stacks or none has" if "--stack" in flags else "this version has none"
            raise UsageError(f"{path}: stack: {why}")
        words.append("--stack")
    return CallConfig(tuple(points), tuple(filters), tuple(words))


def apply_config(options: argparse.Namespace, add_arguments: Any) -> None:
    """Put what `options.config` says into options that the command line left as they are, and points before its own.

    `add_arguments`: that of the command. Raises UsageError.
    """
    parser = Parser(prog="tracehound call", add_help=False, allow_abbrev=False)
    add_arguments(parser)
    found = read_config(options.config, parser)
    defaults = vars(parser.parse_args([]))
    try:
        told = vars(parser.parse_args(list(found.words)))
    except UsageError as error:
        text = str(error).removesuffix(f". Help: {parser.prog} --help")
        raise UsageError(f"{options.config}: options: {text}") from error
    for name, value in told.items():
        if value != defaults[name] and getattr(options, name) == defaults[name]:
            setattr(options, name, value)
    options.points = [*found.points, *options.points]
    if found.filters:
        options.filter = [*found.filters, *(options.filter or ())]


def _content(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: it is no text in UTF-8: {error}") from error
    is_json = path.endswith(".json") or (not path.endswith(".toml") and text.lstrip()[:1] in ("{", "["))
    try:
        content = json.loads(text) if is_json else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: it is no {'JSON' if is_json else 'TOML'}: {error}") from error
    return _table(path, "the whole", content)


def _table(path: str, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {key}: {value!r} is no table of keys and values")
    return value


def _check_keys(path: str, prefix: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"{path}: {prefix}{name}: no such key{near(name, known)}")


def _flag(path: str, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{path}: {key}: true or false, not {value!r}")
    return value


def _texts(path: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{path}: {key}: a list of texts, not {value!r}")
    return value


def _words(path: str, given: Mapping[str, Any], flags: Mapping[str, argparse.Action]) -> list[str]:
    """Return options as the command line would have them."""
    known = {flag.removeprefix("--") for flag in flags if flag.startswith("--")} - NOT_IN_A_FILE
    words: list[str] = []
    for name, value in given.items():
        key = f"options.{name}"
        if name not in known:
            raise UsageError(f"{path}: {key}: no such option of call{near(name, sorted(known))}")
        action = flags[f"--{name}"]
        if action.nargs == 0:
            words += [f"--{name}"] * _flag(path, key, value)
            continue
        can_repeat = isinstance(action, argparse._AppendAction)
        values = value if isinstance(value, list) and can_repeat else [value]
        if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values):
            raise UsageError(f"{path}: {key}: a text or a number{' or a list of them' * can_repeat}, not {value!r}")
        words += [f"--{name}={each}" for each in values]
    return words


def _point_text(path: str, key: str, point: Mapping[str, Any]) -> str:
    """Return a point as it would be on the command line, once its parts are what they should be."""
    from tracehound.kernel.arguments import parse_arguments

    _check_keys(path, f"{key}.", point, POINT_KEYS)
    for name in ("library", "symbol"):
        if not isinstance(point.get(name, ""), str):
            raise UsageError(f"{path}: {key}.{name}: a text, not {point[name]!r}")
    if not point.get("library"):
        raise UsageError(f"{path}: {key}.library: it is missing")
    symbol, offset = point.get("symbol"), _offset(path, f"{key}.offset", point.get("offset"))
    if not symbol and offset is None:
        raise UsageError(f"{path}: {key}.symbol: it is missing, and so is offset")
    place = (symbol or "") + ("" if offset is None else f"{'+' * bool(symbol)}{offset:#x}")
    arguments = ",".join(_texts(path, f"{key}.arguments", point.get("arguments", [])))
    _check(path, f"{key}.arguments", parse_arguments, arguments)
    return f"{point['library']}:{place}" + f"[{arguments}]" * bool(arguments)


def _offset(path: str, key: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise UsageError(f'{path}: {key}: a number, or a text as "0x1234", not {value!r}')
    return number


def _check(path: str, key: str, parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except UsageError as error:
        raise UsageError(f"{path}: {key}: {error}") from error


def _filters(path: str, key: str, point: Mapping[str, Any]) -> list[str]:
    """Return a point's filters, each with the function's name before it."""
    from tracehound.kernel.filters import parse_filter

    symbol = point.get("symbol")
    texts = _texts(path, f"{key}.filters", point.get("filters", []))
    if texts and not symbol:
        raise UsageError(f"{path}: {key}.filters: they need a symbol")
    for text in texts:
        _check(path, f"{key}.filters", parse_filter, text)
    return [f"{symbol}:{text}" for text in texts]
