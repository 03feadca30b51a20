"""Stacks however their records are cut, and with anything in them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.stack_records import LEAF, MASK, MS, SP, TEXT, WHOLE, add_stack, batch_of, known, timeline

from tracehound.batch import Merge, in_parts, split
from tracehound.btf import wire_layout
from tracehound.decode.stacks import StackDecoder
from tracehound.procfs import FactWriter


def decode(facts: FactWriter) -> None:
    StackDecoder(wire_layout()).take(batch_of(facts, 99 * MS))


@pytest.mark.parametrize("seed", range(3))
def test_other_cuts_give_the_same_rows(seed: int) -> None:
    raw, layout = timeline(seed), wire_layout()
    batch = split(raw, layout)
    found = []
    for most in (1 << 20, 17, 3):
        merge, decoder, rows = Merge(layout), StackDecoder(layout), list[dict[str, Any]]()
        merge.push(batch)
        for merged in (merge.take(), merge.flush()):
            for part in in_parts(merged, most) if merged is not None else ():
                some = decoder.take(part)
                rows += [] if some is None else some.to_pylist()
        found.append((rows, decoder.stack_of(np.arange(400, dtype=np.uint64)).to_pylist()))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) > 5


ANY = st.integers(0, (1 << 32) - 1)
SMALL = st.integers(0, 6)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.fixed_dictionaries(
                {
                    "abi": st.sampled_from((0, 1, 2, 2, 2, 9)),
                    "abi_registers": st.sampled_from((MASK, 0, 448, (1 << 64) - 1)),
                    "register_count": SMALL | ANY | st.just(20),
                    "chain_count": SMALL | ANY,
                    "slot_count": SMALL | ANY,
                    "stack_size": SMALL | ANY,
                }
            ),
            st.binary(max_size=400),
        ),
        max_size=4,
    )
)
def test_nothing_in_a_record_raises(records: list[tuple[dict[str, int], bytes]]) -> None:
    facts = known()
    for call, (fields, tail) in enumerate(records):
        facts.add("call_stack", MS, fields | {"pid": 5, "call": call}, tail)
    decode(facts)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("fact_mapping", "fact_module")),
            st.dictionaries(
                st.sampled_from(
                    (
                        "pid",
                        "start_ns",
                        "inode",
                        "build_id_size",
                        "path_size",
                        "flags",
                        "protection",
                        "start",
                        "end",
                        "part",
                        "parts",
                        "content_size",
                        "device_major",
                    )
                ),
                st.sampled_from((0, 1, 2, 5, 7, TEXT, TEXT + 0x2000, (1 << 32) - 1)),
            ),
            st.binary(max_size=60),
        ),
        max_size=5,
    )
)
def test_no_fact_raises(records: list[tuple[str, dict[str, int], bytes]]) -> None:
    facts = known()
    dtypes = wire_layout().dtypes
    for kind, fields, tail in records:
        members = dtypes[kind].fields
        assert members is not None
        wide = {
            name: value & (1 << 8 * members[name][0].itemsize) - 1 for name, value in fields.items() if name in members
        }
        facts.add(kind, MS, wide, tail)
    add_stack(facts, 1, 5, (LEAF, SP, 0), WHOLE, time_ns=2 * MS)
    add_stack(facts, 2, 1, (LEAF, SP, 0), WHOLE, time_ns=2 * MS)
    decode(facts)
