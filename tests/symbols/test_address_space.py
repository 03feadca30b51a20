"""Spaces: what is where, whatever was mapped over what; and which of them held when."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracehound.symbols import address_space
from tracehound.symbols.address_space import EMPTY, KEPT_DEAD_NS, FileKey, Mapped, Space, Spaces, is_file


def file(name: str) -> FileKey:
    return FileKey(b"", (8, 1), 1 + ord(name[0]), name.encode())


A, B, C = file("a"), file("b"), file("c")


def at(spaces: Spaces, pid: int, time_ns: int) -> list[Mapped]:
    return list(spaces.at(pid, time_ns)[1].mapped)


def put(spaces: Spaces, pid: int, time_ns: int, start: int, of: FileKey | None = A, start_ns: int = 0) -> Mapped:
    mapped = Mapped(start, start + 100, 0, of)
    spaces.map(pid, start_ns, time_ns, mapped, True)
    return mapped


CHANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from((A, B, None, "gone"))), max_size=12
)


@given(CHANGES)
def test_each_byte_is_of_what_was_mapped_last(changes: list[tuple[int, int, FileKey | str | None]]) -> None:
    space, model = EMPTY, dict[int, tuple[FileKey | None, int]]()
    for number, (start, size, of) in enumerate(changes):
        mapped = None if isinstance(of, str) else Mapped(start, start + size, 1000 * number, of)
        space = space.with_mapping(start, start + size, mapped)
        for byte in range(start, start + size):
            model.pop(byte, None)
            if not isinstance(of, str):
                model[byte] = of, 1000 * number + byte - start
    places = space.find(np.arange(64, dtype=np.uint64)).tolist()
    found = {
        byte: (space.mapped[place].file, space.mapped[place].offset + byte - space.mapped[place].start)
        for byte, place in enumerate(places)
        if place >= 0
    }
    assert found == model
    assert all(one.end <= next_one.start for one, next_one in zip(space.mapped, space.mapped[1:], strict=False))
    assert space.ranges()["start"].tolist() == space.starts.tolist() == [one.start for one in space.mapped]


def test_what_held_when() -> None:
    spaces = Spaces()
    first, second = put(spaces, 5, 10, 0), put(spaces, 5, 20, 200)
    assert at(spaces, 5, 3) == [first]  # the first list was made for the stacks before it
    assert at(spaces, 5, 10) == at(spaces, 5, 19) == [first]
    assert at(spaces, 5, 20) == at(spaces, 5, 99) == [first, second]
    spaces.clear(5, 0, 30)
    third = put(spaces, 5, 30, 400)
    assert at(spaces, 5, 29) == [first, second]
    assert at(spaces, 5, 30) == [third]
    assert not spaces.is_steady(5)
    spaces.settle(30)
    assert spaces.is_steady(5)
    assert at(spaces, 5, 30) == at(spaces, 5, 29) == [third]  # only the newest is kept
    assert at(spaces, 6, 30) == []


def test_a_fork_has_its_parents_memory_until_it_changes() -> None:
    spaces = Spaces()
    first = put(spaces, 5, 10, 0)
    spaces.fork(5, 6, 11, 11)
    second, third = put(spaces, 5, 20, 200), put(spaces, 6, 21, 400)
    assert at(spaces, 5, 30) == [first, second]
    assert at(spaces, 6, 30) == [first, third]
    assert spaces.at(6, 12)[1] is spaces.at(5, 12)[1]  # nothing was copied
    spaces.clear(6, 11, 40)
    assert at(spaces, 6, 40) == []
    assert at(spaces, 5, 40) == [first, second]


def test_after_an_exit_for_a_while() -> None:
    spaces = Spaces()
    first = put(spaces, 5, 10, 0)
    spaces.exit(5, 20)
    spaces.settle(20)
    assert at(spaces, 5, 15) == [first]
    spaces.settle(21 + KEPT_DEAD_NS)
    assert 5 not in spaces
    assert at(spaces, 5, 15) == []


def test_a_pid_that_is_given_anew() -> None:
    spaces = Spaces()
    first = put(spaces, 5, 10, 0)
    spaces.exit(5, 20)
    second = put(spaces, 5, 30, 200, start_ns=25)
    assert at(spaces, 5, 15) == [first]
    assert at(spaces, 5, 30) == [second]
    spaces.settle(21 + KEPT_DEAD_NS)
    assert at(spaces, 5, 99) == [second]


def test_a_start_that_is_told_later_is_the_same_process() -> None:
    spaces = Spaces()
    first = put(spaces, 5, 10, 0)
    second = put(spaces, 5, 20, 200, start_ns=4)
    assert at(spaces, 5, 20) == [first, second]
    assert spaces.at(5, 20)[0] == 4


def test_uprobes_own_page_is_nowhere() -> None:
    spaces = Spaces()
    put(spaces, 5, 10, 0, FileKey(b"", (0, 0), 0, b"[uprobes]"))
    data = Mapped(500, 600, 0, A)
    spaces.map(5, 0, 10, data, False)
    spaces.map(5, 0, 10, data._replace(end=500), True)
    assert at(spaces, 5, 10) == []


@pytest.mark.parametrize(
    ("inode", "path", "is_code"),
    [
        (7, b"/bin/sh", True),
        (7, b"/bin/sh (deleted)", True),
        (7, b"/memfd:program (deleted)", True),
        (0, b"[vdso]", True),
        (7, b"/dev/zero (deleted)", False),
        (7, b"//anon", False),
        (0, b"", False),
        (0, b"[anon:jit]", False),
        (0, b"[heap]", False),
    ],
)
def test_what_is_code_of_a_file(inode: int, path: bytes, is_code: bool) -> None:
    assert is_file(inode, path) is is_code


def test_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_space, "SPACES_LIMIT", 3)
    monkeypatch.setattr(address_space, "MAPPINGS_LIMIT", 4)
    monkeypatch.setattr(address_space, "DEAD_LIMIT", 2)
    spaces = Spaces()
    for pid in range(1, 6):
        put(spaces, pid, pid, 0)
    assert sorted(spaces.pids().tolist()) == [3, 4, 5]
    for number in range(9):
        put(spaces, 5, 10, 1000 * number)
    assert len(spaces.at(5, 10)[1].mapped) == 4
    for pid in (3, 4, 5):
        spaces.exit(pid, 20)
    spaces.settle(20)
    assert sorted(spaces.pids().tolist()) == [4, 5]


def test_of_an_empty_space() -> None:
    assert Space().find(np.array([1, 2], np.uint64)).tolist() == [-1, -1]
    assert len(Space().ranges()) == 0
