"""Lines and inlined functions of stacks: as the source has them, and nothing where the file is not here."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.symbols.sampled import sample
from tests.symbols.stopped import FOLDER, compile_program, needs_x86, waiting

from tracehound.decode.stack_lines import add_lines
from tracehound.tables import TABLES, arrow_schema

SOURCE = (FOLDER / "calls.c").read_text().splitlines()
SCHEMA = arrow_schema(TABLES["stacks"])


def text_of(frame: dict[str, object]) -> str:
    """Return the line of the source that a frame is at."""
    assert str(frame["source"]).endswith("programs/calls.c")
    assert isinstance(frame["line"], int)
    return SOURCE[frame["line"] - 1].strip()


@needs_x86
def test_each_frame_is_at_its_line(tmp_path: Path) -> None:
    program = compile_program(tmp_path, "calls.c", "-O2", "-fno-optimize-sibling-calls")
    with waiting(program, "alloca") as (pid, tid):
        row = sample(pid, tid, with_gdb=False).row
    plain = pa.Table.from_pylist([row], SCHEMA)
    (found,) = add_lines(plain).to_pylist()
    own = [frame for frame in found["frames"] if frame["file"] == str(program)]
    assert [(frame["symbol"], frame["inlined"]) for frame in own[:2]] == [("wait_here", True), ("stop", False)]
    assert [text_of(frame) for frame in own[:2]] == ["pause();", "wait_here();"]
    assert own[0]["symbol_offset"] is None
    assert own[0]["file_offset"] == own[1]["file_offset"]
    chain = [(frame["symbol"], text_of(frame)) for frame in own[2:-1]]
    assert chain == [
        ("recurse", "stop();"),
        *[("recurse", "return recurse(depth - 1) + pad[0];")] * 3,
        ("with_alloca", "return recurse(3) + room[size - 1];"),
        ("main", "return with_alloca(argc * 100) + sink;"),
    ]
    assert len(found["frames"]) == row["depth"] + 1 == found["depth"] + 1
    assert add_lines(plain).schema == SCHEMA


@pytest.mark.parametrize("build_id", [None, "11" * 20])
def test_a_file_that_is_not_here_has_none(build_id: str | None) -> None:
    frame = {"kind": "native", "build_id": build_id, "file": "/bin/true", "file_offset": 64, "inlined": False}
    row = {"stack_id": 1, "status": "complete", "depth": 1, "frames": [frame]}
    plain = pa.Table.from_pylist([row, {"stack_id": 2}], SCHEMA)
    assert add_lines(plain).equals(plain)
