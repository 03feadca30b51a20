"""The layout of the records against tests/golden/wire.txt: a change of a record is always a change of that file."""

import re
import runpy
from pathlib import Path

from tracehound.btf import wire_layout

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "wire.txt"


def test_records_are_those_of_the_golden_file() -> None:
    found = runpy.run_path(str(ROOT / "docs" / "generate.py"))["wire_golden"](wire_layout())
    assert found == GOLDEN.read_text(), "if the change is meant: .venv/bin/python docs/generate.py --golden"


def test_every_kind_has_its_struct_and_a_header_first() -> None:
    layout = wire_layout()
    records = {name for name in layout.btf.struct_names() if name.endswith("_record")}
    assert records == {f"{name}_record" for name in layout.kinds.values()}
    for name in layout.kinds.values():
        dtype = layout.btf.dtype(f"{name}_record")
        assert dtype.names is not None and dtype.fields is not None
        assert dtype.names[0] == "header" and dtype.fields["header"][1] == 0
        assert dtype.itemsize % 8 == 0
        assert (layout.dtypes[name].names or ())[:7] == ("time_ns", "pid", "tid", "size", "kind", "cpu", "ring_seq")


def test_the_ring_of_a_kind_is_its_high_byte() -> None:
    layout = wire_layout()
    rings = layout.enum("ring_id")
    facts = {name for kind, name in layout.kinds.items() if kind >> 8 == rings["RING_FACT"]}
    assert {kind >> 8 for kind in layout.kinds} == set(rings.values())
    assert facts == {name for name in layout.kinds.values() if name.startswith("fact_")}


def test_every_enum_of_wire_h_is_in_the_object() -> None:
    layout = wire_layout()
    text = (ROOT / "bpf" / "include" / "wire.h").read_text()
    for name, body in re.findall(r"^enum (\w+) \{(.*?)\};", text, re.MULTILINE | re.DOTALL):
        written = re.findall(r"^\t([A-Z]\w+)", body, re.MULTILINE)
        assert list(layout.enum(name)) == written, name
