"""The rules of layout that DESIGN's table and style state, and that generated pages and documents are true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tracehound"
BPF = ROOT / "bpf"
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "base", "manager", "misc"}
PROGRAM = re.compile(r'^SEC\("(?!license|maps|\.)[^"]+"\)\s*(?:int\s+)?(?:BPF_PROG\(\s*)?(\w+)', re.MULTILINE)


FOLDERS = ("src", "tests", "bench", "demo", "docs", "release")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")


def python_files() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py"))


def c_files() -> list[Path]:
    native = [path for path in SOURCE.glob("native/*.[ch]") if path.name != "_native.c"]
    return sorted([*BPF.glob("**/*.[ch]"), *native])


def test_generated_pages_are_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    found = subprocess.run(check, check=False, capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("", 0)


def test_a_protocol_is_four_files_of_one_name() -> None:
    names = {path.stem for path in SOURCE.glob("protocols/*.py") if not path.name.startswith("_")}
    assert names == {path.stem for path in BPF.glob("l7/*.h")}
    tests = {path.stem.removeprefix("test_") for path in ROOT.glob("tests/protocols/test_*.py")}
    shared = {path.stem.strip("_") for path in SOURCE.glob("protocols/_*.py")}
    assert names == tests - shared
    table, _, _ = (ROOT / "docs" / "protocols.md").read_text().partition("\n## ")
    assert names == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_no_file_has_a_name_that_says_nothing() -> None:
    files = (*python_files(), *c_files())
    assert [str(path) for path in files if path.name.split(".")[0].strip("_") in EMPTY_NAMES] == []


@pytest.mark.parametrize("path", python_files() + c_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_opens_by_saying_what_it_holds_and_is_not_a_book(path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".py":
        assert not text or text.startswith(('"""', 'r"""')), "no module docstring"
    assert text.count("\n") <= 800, "twice the soft limit of 400 lines a file"


@pytest.mark.parametrize("path", sorted(BPF.glob("*.bpf.c")), ids=lambda path: path.name)
def test_bpf_programs_are_named_after_their_event_and_carry_the_licence(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"SPDX-License-Identifier: GPL-2\.0(-only)? OR BSD-2-Clause", text)
    programs = PROGRAM.findall(text)
    assert [name for name in programs if not name.startswith("on_")] == []
    assert text.count("SEC(") >= len(programs)
    if programs:
        assert re.search(r'SEC\("license"\) = "[^"]*GPL', text), "the kernel lets it use nothing that is GPL only"
    assert "uretprobe" not in text


def test_every_bpf_object_is_shipped() -> None:
    sources = {path.name.removesuffix(".c") for path in BPF.glob("*.bpf.c")}
    assert sources == {path.name.removesuffix(".o") for path in SOURCE.glob("bpf/*.bpf.o")}


def test_every_folder_of_python_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.glob("**/*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_paths_that_the_documents_name_exist() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        for path in re.findall(r"`((?:src|bpf|tests|docs|bench|demo|release|\.ci)/[\w./-]*\w)`", text):
            invented = Path(path).stem in ("x", "test_x")
            assert invented or (ROOT / path).exists(), f"{page}: {path}"


def test_every_make_target_that_the_documents_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)", (ROOT / page).read_text()))
        assert named - targets == set(), page


def test_the_licences_that_pyproject_names_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"[\w.-]+", project["license"])) - {"AND", "OR"}
    assert {name for name in named if not (ROOT / "LICENSES" / f"{name}.txt").exists()} == set()


def test_the_drawing_of_layers_is_what_is_enforced() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    _, _, rest = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Layers\n")
    drawn = re.findall(r"^```\n(.*?)^```", rest, re.MULTILINE | re.DOTALL)[0]
    assert [line.split() for line in drawn.splitlines()] == [layer.split(" | ") for layer in contract["layers"]]
