"""Tapes of other versions: what they lack is zero or null and named, what only they know is left out."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.decode.records import Recorder
from tests.sources.other_versions import Editor, rewritten
from tests.sources.taped import Rows, make_tape, replayed, traffic, write_tape

from tracehound.batch import split
from tracehound.btf import STRUCT, Layout, wire_layout
from tracehound.errors import LayoutError, RecordingError
from tracehound.protocols import load_protocols
from tracehound.sources.versions import COLUMNS, ENUMS, Versions
from tracehound.tables import TABLES, requests_columns

# Members whose absence changes more than the columns that only they fill: which records are of one connection ...
WIDER = {
    "connection.role", "connection.local_port", "connection.remote_port", "connection.started_ns",
    "connection.established_ns", "connection.local_address", "connection.remote_address", "exec.exe_size",
    "exec.argv_size", "exec.ns_pid", "fork.child_ns_pid", "exit.start_ns", "open.place_size", "exec.comm", "fork.comm",
    "fact_process.service_size", "connection.bytes_sent",
}  # fmt: skip


def edited(edit: Callable[[Editor], None]) -> Layout:
    editor = Editor(wire_layout().btf)
    edit(editor)
    return editor.layout()


def without(member: str) -> Layout:
    kind, _, name = member.partition(".")
    dtype = wire_layout().dtypes[kind]
    assert dtype.fields is not None
    return edited(lambda editor: editor.remove_member(f"{kind}_record", name, dtype.fields[name][0].itemsize))  # type: ignore[index]


def taped(path: Path, theirs: Layout) -> None:
    """Write the tape that the other version would have written of the same traffic."""
    recorder = traffic()
    raw = [rewritten(record, wire_layout(), theirs) for record in recorder.raw]
    other = Recorder(theirs)
    other.raw = [record for record in raw if record is not None]
    other.time_ns = recorder.time_ns
    write_tape(path, other, theirs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return make_tape(tmp_path_factory.mktemp("tapes") / "whole.tape", traffic(), [10, 20, 50])


def test_the_editor_changes_nothing_by_itself() -> None:
    theirs = edited(lambda _: None)
    assert theirs.dtypes == wire_layout().dtypes and theirs.kinds == wire_layout().kinds
    versions = Versions(theirs, wire_layout())
    assert (versions.missing_members, versions.null_columns, versions.missing_kinds, versions.unknown_kinds) == (
        (),
    ) * 4


def test_every_member_and_column_that_is_named_is_there() -> None:
    layout = wire_layout()
    for kind, member in (*COLUMNS, *ENUMS):
        assert member in (layout.dtypes[kind].names or ()), (kind, member)
    extras = [column for p in load_protocols() for column in (*p.request_extras, *p.response_extras)]
    tables = dict(TABLES) | {"requests": requests_columns(extras)}
    for columns in COLUMNS.values():
        for column in columns:
            table, _, name = column.partition(".")
            assert name in {each.name for each in tables[table]}, column


@pytest.mark.parametrize("member", [".".join(key) for key in COLUMNS])
def test_a_member_that_is_missing_makes_its_columns_null(member: str, whole: Rows, tmp_path: Path) -> None:
    path = tmp_path / "older.tape"
    taped(path, without(member))
    found, notes = replayed(path)
    columns = COLUMNS[tuple(member.split("."))]  # type: ignore[index]
    line = f"this tape lacks {member}" + (f": columns {', '.join(columns)} are null" if columns else "")
    assert notes == (line,)
    for column in columns:
        table, _, name = column.partition(".")
        if table in found:
            assert found[table][name].null_count == found[table].num_rows, column
    if member in WIDER:
        return
    assert found.keys() == whole.keys()
    for table, rows in whole.items():
        same = [name for name in rows.column_names if f"{table}.{name}" not in columns]
        assert found[table].select(same).equals(rows.select(same)), table


def test_a_kind_that_is_not_known_is_left_out_and_not_lost(whole: Rows, tmp_path: Path) -> None:
    theirs = edited(lambda editor: editor.add_kind("whisper", 0x1FE, "release"))
    path = tmp_path / "newer.tape"
    write_tape(path, with_whispers(theirs), theirs)
    found, notes = replayed(path)
    assert notes == ("this tape has records of kinds that this version does not know, left out: whisper",)
    losses = [row for row in found["losses"].to_pylist() if row["counter"] == "ring_full"]
    wanted = [row for row in whole["losses"].to_pylist() if row["counter"] == "ring_full"]
    assert [row["count"] for row in losses] == [row["count"] for row in wanted]
    assert found["requests"].num_rows == whole["requests"].num_rows


def with_whispers(theirs: Layout) -> Recorder:
    """Return the traffic with records of the kind `whisper` among those of the lifecycle ring."""

    class Whispering(Recorder):
        def add(self, kind: str, tail: bytes = b"", **fields: object) -> None:
            super().add(kind, tail, **fields)  # type: ignore[arg-type]
            if kind == "connection":
                super().add("whisper", pid=1, tid=1, first=1, last=2)

    return traffic(Whispering(theirs))


def test_kinds_and_values_are_told_apart_by_name(whole: Rows, tmp_path: Path) -> None:
    def change(editor: Editor) -> None:
        editor.renumber("record_kind", lambda number: number & 0xFF00 | (number & 0xFF) + 40)
        editor.renumber("l7_protocol", lambda number: number and number + 7)
        editor.renumber("connection_event", lambda number: number + 20)

    theirs = edited(change)
    path = tmp_path / "renumbered.tape"
    write_tape(path, renumbered(theirs), theirs)
    found, notes = replayed(path)
    assert notes == ()
    for name, rows in whole.items():
        assert found[name].equals(rows), name


def renumbered(theirs: Layout) -> Recorder:
    ours, other, recorder = wire_layout(), Recorder(theirs), traffic()
    for record in recorder.raw:
        made = rewritten(record, ours, theirs)
        assert made is not None
        kind = theirs.kinds[int.from_bytes(made[20:22], "little")]
        dtype = theirs.dtypes[kind]
        fixed = np.frombuffer(made, dtype, 1).copy()
        for (of, member), enum in ENUMS.items():
            if of == kind and enum in ("l7_protocol", "connection_event"):
                name = {number: name for name, number in ours.enum(enum).items()}.get(int(fixed[member][0]))
                fixed[member] = theirs.enum(enum)[name] if name else 0
        other.raw.append(fixed.tobytes() + made[dtype.itemsize :])
    other.time_ns = recorder.time_ns
    return other


def test_a_verdict_that_is_not_known_is_none(tmp_path: Path) -> None:
    theirs = edited(lambda editor: editor.add_enumerator("l7_protocol", "L7_WHISPER", 77))
    versions = Versions(theirs, wire_layout())
    recorder = Recorder(theirs)
    recorder.add("data", b"", cookie=1, verdict=77)
    recorder.add("data", b"", cookie=1, verdict=wire_layout().enum("l7_protocol")["L7_HTTP1"])
    batch = versions.convert(split(b"".join(recorder.raw), theirs))
    assert batch.records["data"].fixed["verdict"].tolist() == [0, wire_layout().enum("l7_protocol")["L7_HTTP1"]]


def test_a_kind_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "older.tape"
    taped(path, edited(lambda editor: editor.remove_kind("open")))
    found, notes = replayed(path)
    assert notes == ("this tape lacks records of open",)
    assert "files" not in found


def test_another_header_is_an_error(tmp_path: Path) -> None:
    theirs = edited(lambda editor: editor.remove_member("record_header", "cpu", 2))
    with pytest.raises(LayoutError, match="header"):
        Versions(theirs, wire_layout())
    write_tape(tmp_path / "x.tape", traffic(), theirs)
    with pytest.raises(RecordingError, match="cannot be replayed: its records begin with another header"):
        replayed(tmp_path / "x.tape")


def test_a_member_of_another_sort_is_missing() -> None:
    def change(editor: Editor) -> None:
        found, other = editor.find(STRUCT, "connection_record"), editor.find(STRUCT, "exec_record")
        members = {editor.name(found[at]): at for at in range(3, len(found), 3)}
        comm = next(at for at in range(3, len(other), 3) if editor.name(other[at]) == "comm")
        found[members["local_address"] + 1] = other[comm + 1]  # a text in place of bytes

    versions = Versions(edited(change), wire_layout())
    assert versions.missing_members == ("connection.local_address",)
