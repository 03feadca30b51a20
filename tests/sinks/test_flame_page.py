"""The flame graph in a real browser: clicks, keys, search, both themes, hostile names, many stacks."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.sinks.browser import CHROMIUM, DRIVER, Browser, browser
from tests.sinks.stack_rows import calls, frame, profile, shop, stacks
from tests.sinks.test_flame import HOSTILE

from tracehound.sinks.flame import FlameGraph, flame

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver here")
MANY: Final = 50_000
CONTRAST: Final = """\
const light = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const plain = (color) => {
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  return `rgb(${canvas.getImageData(0, 0, 1, 1).data.slice(0, 3).join()})`;
};
const behind = (element) => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if (!/, 0\\)$|transparent/.test(color)) return plain(color);
  }
  return "rgb(255,255,255)";
};
const shown = ".box.text:not(.status):not(.rest), h1, p.facts, .chip, .key, .tools button:enabled, #detail b";
return [...document.querySelectorAll(shown)].map((element) => {
  const [a, b] = [light(plain(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
  return [(a + 0.05) / (b + 0.05), element.textContent];
}).sort((x, y) => x[0] - y[0])[0];
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder)) as found:
        yield found


@pytest.fixture
def page(window: Browser, tmp_path: Path) -> Iterator[Browser]:
    (tmp_path / "shop.html").write_bytes(flame(shop("duration")))
    window.theme("light")
    window.open(tmp_path / "shop.html")
    yield window
    assert window.log() == []


def boxes(window: Browser) -> dict[str, float]:
    """Return the width of each box by its name; of one name the widest."""
    found: dict[str, float] = window.run(
        "const found = {};"
        "for (const box of document.querySelectorAll('.box')) {"
        "  const name = box.getAttribute('aria-label');"
        "  found[name] = Math.max(found[name] || 0, box.getBoundingClientRect().width);"
        "} return found;"
    )
    return found


def box(name: str) -> str:
    return f"//div[@aria-label='{name}']"


def detail(window: Browser) -> str:
    return window.text("//*[@id='detail']")


def test_boxes_are_as_wide_as_they_weigh_and_text_stays_inside(page: Browser) -> None:
    found = boxes(page)
    whole = found["all"]
    assert found["shop"] == whole
    for name, weight in (("main", 4500), ("load", 4000), ("do_sys_openat2", 500), ("[truncated]", 70)):
        assert found[name] == pytest.approx(whole * weight / 4571, abs=0.5)
    assert "[no_row]" not in found and not page.run("return document.querySelector('.box.text').textContent === ''")
    spilled = page.run(
        "return [...document.querySelectorAll('.box')].filter(b => getComputedStyle(b).overflow !== 'hidden').length"
    )
    assert spilled == 0
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_zoom_by_clicks_and_back(page: Browser) -> None:
    whole = boxes(page)["all"]
    page.click(box("shop.orders:load"))
    found = boxes(page)
    assert found["shop.orders:load"] == found["do_sys_openat2"] == found["main"] == whole
    assert "load" not in found and "[truncated]" not in found
    page.click(box("do_sys_openat2"))
    assert "10.94 % of all" in detail(page) and "100 % of what is shown" in detail(page)
    page.click("//*[@id='back']")
    page.click("//*[@id='back']")
    assert boxes(page)["main"] == pytest.approx(whole * 4500 / 4571, abs=0.5)
    assert page.run("return document.getElementById('back').disabled && document.getElementById('all').disabled")
    page.click(box("[truncated]"))
    page.click("//*[@id='all']")
    assert "shop.orders:load" in boxes(page)


def test_the_line_about_a_box(page: Browser) -> None:
    page.hover(box("main"))
    assert detail(page) == "main 4.50 µs · 98.45 % of all · 4 calls · itself 0 ns, 0.00 % · /usr/bin/shop"
    page.hover(box("do_sys_openat2"))
    assert detail(page) == "do_sys_openat2 500 ns · 10.94 % of all · 1 call · itself 500 ns, 10.94 % · kernel"
    page.hover(box("inner"))
    assert detail(page).endswith("· inlined · /usr/bin/shop · shop.c")


def test_search_counts_a_call_once_and_marks_all(page: Browser) -> None:
    page.type("/")
    page.type("load|open64")
    assert page.text("//*[@id='matched']") == "matched 99.98 %, 4.57 µs"
    marked = page.run(
        "return [...document.querySelectorAll('.box.match')].map(b => b.getAttribute('aria-label')).sort()"
    )
    assert marked == ["load", "load", "open64", "open64", "shop.orders:load"]
    page.click(box("[truncated]"))
    assert page.text("//*[@id='matched']") == "matched 100 % of what is shown, 70 ns"
    page.type("Escape")
    assert page.text("//*[@id='matched']") == "" and not page.run("return document.querySelector('.match')")
    for text, told in (
        ("[", "not a regular expression"),
        ("OPEN64", "matched 0.00 % of what is shown, 0 ns"),
        ("libc", "matched 0.00 % of what is shown, 0 ns"),
        ("SHOP.C", "matched 0.00 % of what is shown, 0 ns"),
        ("/usr/bin", "matched 100 % of what is shown, 70 ns"),
    ):
        page.click("//*[@id='search']")
        page.run("const s = document.getElementById('search'); s.value = ''; s.focus()")
        page.type(text)
        assert page.text("//*[@id='matched']") == told, text


def test_keys_alone(page: Browser) -> None:
    def label() -> str:
        return str(page.run("return document.activeElement.getAttribute('aria-label')"))

    page.run("document.getElementById('search').focus()")
    page.type("Tab")
    assert label() == "all"
    for key, expected in (
        ("Up", "shop"), ("Up", "main"), ("Right", "[truncated]"), ("Left", "main"), ("Up", "load"),
        ("Right", "shop.orders:load"), ("Down", "main"), ("Up", "load"), ("Enter", "load"),
    ):  # fmt: skip
        page.type(key)
        assert label() == expected, key
    found = boxes(page)
    assert found["load"] == found["all"] and "shop.orders:load" not in found
    page.type("Escape")
    assert "shop.orders:load" in boxes(page) and label() == "load"


def test_flame_and_icicle(page: Browser) -> None:
    def tops() -> list[float]:
        names = ("all", "main", "open64")
        return [page.run("return document.querySelector(arguments[0]).offsetTop", f"[aria-label='{n}']") for n in names]

    assert tops() == sorted(tops(), reverse=True)
    page.click("//*[@id='turn']")
    assert tops() == sorted(tops()) and page.text("//*[@id='turn']") == "Flame"
    page.click("//*[@id='turn']")
    assert tops() == sorted(tops(), reverse=True)


def test_a_status_shows_where_it_is(page: Browser) -> None:
    page.click("//button[contains(., 'truncated: 1 stack')]")
    assert page.text("//*[@id='matched']") == "matched 1.53 %, 70 ns"
    assert page.run("return document.querySelector('.box.match').getAttribute('aria-label')") == "[truncated]"


def test_both_themes_can_be_read(page: Browser, tmp_path: Path) -> None:
    """Text of every box and word stands out from what is behind it, by the contrast of WCAG 2."""
    pictures = []
    for theme in ("light", "dark"):
        page.theme(theme)
        least, what = page.run(CONTRAST)
        assert least >= 4.5, (theme, what)
        pictures.append(page.picture(tmp_path / f"{theme}.png"))
    assert pictures[0] != pictures[1]


def test_hostile_names_run_nothing(window: Browser, tmp_path: Path) -> None:
    rows = {at: [frame(name, file=name, source=name), frame("main")] for at, name in enumerate(HOSTILE)}
    tables = {"calls": calls([(at, 0) for at in rows], comm=HOSTILE[0]), "stacks": stacks(rows)}
    (tmp_path / "hostile.html").write_bytes(flame(profile("count", tables)))
    window.open(tmp_path / "hostile.html")
    found = boxes(window)
    assert set(HOSTILE[:5]) <= found.keys()
    assert window.run("return document.querySelectorAll('img, script').length") == 2
    window.hover(box(HOSTILE[2]))
    assert detail(window).startswith(HOSTILE[2])
    assert window.log() == []


def test_a_frame_of_a_notebook(window: Browser, tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(f"<!DOCTYPE html><body>{FlameGraph(shop())._repr_html_()}</body>")
    window.open(tmp_path / "notebook.html")
    window.do("POST", "/frame", id=0)
    window.wait("return document.querySelectorAll('.box').length > 5")  # it has its size a moment later
    assert boxes(window)["main"] > 100
    window.do("POST", "/frame", id=None)
    assert window.log() == []


def test_fifty_thousand_stacks_can_be_used(window: Browser, tmp_path: Path) -> None:
    """No box is narrower than can be seen, what is too narrow is one box, and a click into it shows what it holds."""
    chance = random.Random(5)
    rows = {}
    for at in range(MANY):
        numbers = [chance.randrange(1, 40) for _ in range(chance.randrange(4, 30))]
        rows[at] = [frame(f"leaf_{at}"), *(frame(f"step_{number}", number) for number in numbers), frame("main")]
    tables = {"calls": calls([(at, 0) for at in rows]), "stacks": stacks(rows)}
    (tmp_path / "many.html").write_bytes(flame(profile("count", tables)))
    window.open(tmp_path / "many.html")
    found = window.run(
        "const all = [...document.querySelectorAll('.box')], rest = document.querySelectorAll('.rest');"
        "return [all.length, rest.length, performance.now(), document.querySelector('.facts').textContent]"
    )
    assert "50,000 calls in 50,000 distinct stacks" in found[3]
    assert 50 < found[0] < 20_000 and found[1] > 0
    took_ms = window.run(
        "const before = performance.now(); const s = document.getElementById('search'); s.value = 'step_7';"
        "s.dispatchEvent(new Event('input')); document.querySelector('#graph').offsetTop;"
        "return performance.now() - before"
    )
    assert took_ms < 20_000 and window.text("//*[@id='matched']").startswith("matched ")
    widest = window.run(
        "const r = [...document.querySelectorAll('.rest')].sort((a, b) => b.box.weight - a.box.weight)[0];"
        "const hidden = r.box.rest, weight = r.box.weight; r.click();"
        "return [hidden, weight, document.querySelectorAll('.box:not(.above):not(.rest)').length]"
    )
    assert widest[0] > 1 and widest[2] > 0
    window.click("//*[@id='back']")
    assert window.log() == []


def test_it_follows_the_size_of_its_window(page: Browser) -> None:
    before = boxes(page)
    page.do("POST", "/window/rect", width=700, height=600)
    page.wait(f"return document.querySelector('.box').getBoundingClientRect().width < {before['all'] - 100}")
    after = boxes(page)
    assert after["load"] / after["all"] == pytest.approx(before["load"] / before["all"], abs=0.01)
    page.do("POST", "/window/rect", width=1280, height=800)
    page.wait(f"return document.querySelector('.box').getBoundingClientRect().width === {before['all']}")
