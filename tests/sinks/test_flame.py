"""The flame graph's page: what its data, head and policy say; how it looks and acts is `test_flame_page.py`."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest
from tests.recording.rows import FACTS
from tests.sinks.stack_rows import SOURCE, calls, frame, profile, shop, stacks

from tracehound.sinks import flame as flames
from tracehound.sinks import kind
from tracehound.sinks.flame import FlameGraph, flame

HOSTILE: Final = (
    "</script><script>alert(1)</script>", "<!--", "<img src=x onerror=alert(2)>", '"><b>', "a&lt;b", "x\u2028y\u202ez",
    "'; alert(3); '", "\x00\x1b[31m", "{title}", "ends in \\",
)  # fmt: skip


class Page(HTMLParser):
    """What a browser would see of a page: its elements, the text of each, and attributes."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    @property
    def data(self) -> Any:
        return json.loads(self.texts["script"][0])


def tree(data: Any) -> list[tuple[int, str, int]]:
    """Return depth, name and weight of each node in the order of the walk."""
    names = [data["functions"][number][0] for number in data["name"]]
    return list(zip(data["depth"], names, data["weight"], strict=True))


def test_a_shop_as_a_tree() -> None:
    data = Page(flame(shop("duration"))).data
    assert tree(data) == [
        (0, "all", 4571), (1, "shop", 4571), (2, "main", 4500), (3, "load", 4000), (4, "open64", 4000),
        (3, "shop.orders:load", 500), (4, "open64", 500), (5, "do_sys_openat2", 500),
        (2, "[truncated]", 70), (3, "shop+0x512", 70), (4, "load", 70), (5, "inner", 70), (2, "[no_row]", 1),
    ]  # fmt: skip
    assert (data["unit"], data["rows"]) == ("ns", [6, 6, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1])
    kinds = {name: data["kinds"][kind] for name, kind, *_ in data["functions"]}
    assert kinds["do_sys_openat2"] == "kernel" and kinds["shop.orders:load"] == "python"
    assert kinds["[truncated]"] == "status" and kinds["shop"] == "process"
    inner = next(each for each in data["functions"] if each[0] == "inner")
    assert [data["paths"][number] for number in inner[2:4]] == ["/usr/bin/shop", "shop.c"] and inner[4] == 1


def test_one_function_in_two_files_is_two() -> None:
    rows = {1: [frame("init"), frame("main")], 2: [frame("init", file="/lib/b.so"), frame("main")]}
    data = Page(flame(profile("count", {"calls": calls([(1, 0), (2, 0)]), "stacks": stacks(rows)}))).data
    assert tree(data)[3:] == [(3, "init", 1), (3, "init", 1)] and data["rows"] is None


def test_what_the_head_says() -> None:
    page = Page(flame(shop("duration")))
    said = " ".join(" ".join(texts) for tag, texts in page.texts.items() if tag not in ("script", "style"))
    for words in (
        "python shop.py", "6 calls in 4 distinct stacks",
        "width: duration", "box, Linux 6.18", "2023-11-14 22:13:20 UTC",
        "lost: ring_full 4", "complete: 2 stacks, 98.4 %", "truncated: 1 stack, 1.5 %", "no_row: 1 stack, 0.0 %",
        "calls without a stack: 1", "calls without duration, which weigh nothing: 1", "kernel", "Python", "inlined",
    ):  # fmt: skip
        assert words in said
    searches = [values["data-search"] for tag, values in page.elements if tag == "button" and "data-search" in values]
    assert searches == [r"^\[truncated\]$", r"^\[no_row\]$"]


def test_it_needs_nothing_else_and_allows_only_its_own_script_and_style() -> None:
    text = flame(shop()).decode()
    page = Page(text.encode())
    assert not re.search(r"""(?:src|href|url|import|fetch|XMLHttp)\s*[=(]|https?:""", text)
    policy = next(v["content"] for t, v in page.elements if t == "meta" and v.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy

    def hashed(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert f"style-src {hashed(page.texts['style'][0])};" in policy
    assert f"script-src {hashed(page.texts['script'][1])};" in policy
    assert all(
        "style" not in values and not any(name.startswith("on") for name in values) for _, values in page.elements
    )


def test_hostile_names_stay_text() -> None:
    usual = Page(flame(shop()))
    rows = {at: [frame(name, file=name, source=name), frame("main")] for at, name in enumerate(HOSTILE)}
    batch = stacks(rows, s1="</p><script>")
    found = profile("count", {"calls": calls([(at, 0) for at in rows], comm=HOSTILE[0]), "stacks": batch})
    hostile = found.about.__class__(*(HOSTILE[0], HOSTILE[2], HOSTILE[3], "1", 0, {HOSTILE[0]: 1}, "calls", "count"))
    page = Page(flame(found.__class__(found.functions, found.places, found.stacks, hostile)))
    count = [tag for tag, _ in page.elements].count
    assert count("script") == 2 and count("img") == count("b") == 0
    assert page.texts["h1"] == [HOSTILE[0]]
    assert page.texts["script"][1] == usual.texts["script"][1]
    names = {name for name, *_ in page.data["functions"]}
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2], "{title}", r"x\u2028y\u202ez", r"\x00\x1b[31m"} <= names


def test_many_stacks_are_drawn_from_their_heaviest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flames, "NODES_MAX", 6)
    rows = {at: [frame(f"f{at}"), frame("main")] for at in range(10)}
    durations = [(at, at + 1) for at in range(10)]
    found = profile("duration", {"calls": calls(durations), "stacks": stacks(rows)})
    page = Page(flame(found))
    assert tree(page.data) == [
        (0, "all", 55), (1, "shop", 55), (2, "main", 55), (3, "f9", 10), (3, "f8", 9), (3, "f7", 8),
    ]  # fmt: skip
    assert "7 lightest boxes left out" in "".join(page.texts["span"])


def test_nothing_at_all_is_a_page_too() -> None:
    page = Page(flame(profile("count")))
    assert tree(page.data) == [(0, "all", 0)]
    assert "0 calls in 0 distinct stacks" in "".join(page.texts["p"])


def test_a_notebook_shows_it_in_a_frame_that_reaches_nothing(tmp_path: Path) -> None:
    graph = FlameGraph(shop())
    frames = [values for tag, values in Page(graph._repr_html_().encode()).elements]
    assert len(frames) == 1 and frames[0]["sandbox"] == "allow-scripts" and frames[0]["srcdoc"] == str(graph)


def test_written_while_tracing(tmp_path: Path) -> None:
    path = tmp_path / "flame.html"
    sink = kind("flame").open(str(path), SOURCE)
    sink.write({"calls": calls([(1, 0), (1, 0)])})
    sink.write({"stacks": stacks({1: [frame("main")]})})
    sink.close()
    assert tree(Page(path.read_bytes()).data)[-1] == (2, "main", 2)
    assert FACTS.command == ("python", "shop.py")
