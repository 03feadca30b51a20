"""What holds for every protocol: the registry, and that no input makes a parser raise, invent, hoard or dawdle.

`FUZZED` inputs a protocol come from its own vectors, seeded; hypothesis adds garbage.
"""

import random
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocols.checker import Driver, Vector, check_places, check_true

from tracehound import protocols
from tracehound.protocols import Protocol, load_protocols
from tracehound.protocols._buffer import WAITING_PIECES, WINDOW_BYTES
from tracehound.protocols._protocol import BY_ID, IN_ORDER, PUSH, UNTIL_CLOSE, Request, Response
from tracehound.tables import requests_columns

PROTOCOLS = load_protocols()
FUZZED = {"damaged": 20_000, "recut": 20_000}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)


def vectors_of(protocol: Protocol) -> tuple[Vector, ...]:
    found = import_module(f"tests.protocols.test_{protocol.name}").VECTORS
    assert found
    return tuple(found)


def test_directory_is_the_registry() -> None:
    modules = {path.stem for path in Path(protocols.__path__[0]).glob("*.py") if not path.stem.startswith("_")}
    assert [protocol.name for protocol in PROTOCOLS] == sorted(modules)
    assert load_protocols() is PROTOCOLS


@each_protocol
def test_declares_what_the_engine_needs(protocol: Protocol) -> None:
    assert protocol.pairing in (IN_ORDER, BY_ID)
    columns = requests_columns((*protocol.request_extras, *protocol.response_extras))
    assert {column for column, _ in protocol.secrets} <= {column.name for column in columns}


@each_protocol
@pytest.mark.parametrize("kind", sorted(FUZZED))
def test_vectors_damaged_or_cut_anew(kind: str, protocol: Protocol) -> None:
    """`damaged`: bytes changed, anything may come out but an exception. `recut`: true bytes, so only true messages."""
    vectors, inputs = vectors_of(protocol), 0
    for seed in range(FUZZED[kind]):
        rolls = random.Random(seed)
        vector = vectors[seed % len(vectors)]
        driver = Driver(protocol)
        for step in vector.steps:
            data = damage(step.data, rolls) if kind == "damaged" else step.data
            feed_in_pieces(driver, step.direction, data, rolls)
        inputs += 1
        check_sound(driver, protocol)
        if kind == "recut":
            check_true(driver, vector, f"seed {seed}")
    assert inputs == FUZZED[kind]


def damage(data: bytes, rolls: random.Random) -> bytes:
    """Change, drop, repeat or insert some bytes."""
    changed = bytearray(data)
    for _ in range(rolls.choice((0, 1, 1, 2, 5))):
        at = rolls.randrange(len(changed) + 1)
        size = rolls.choice((1, 1, 2, 9))
        match rolls.randrange(4):
            case 0:
                changed[at : at + size] = rolls.randbytes(size)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[max(at - size * 3, 0) : at]
            case _:
                changed[at:at] = rolls.choice(
                    (b"\r\n", b"\n", b" ", b"\0", b":", b"0", b"-1", b"\r\n\r\n", b"\xff" * 8)
                )
    return bytes(changed)


def feed_in_pieces(driver: Driver, direction: int, data: bytes, rolls: random.Random) -> None:
    """Feed bytes in pieces, a few of them seen twice, captured in part, or lost."""
    at, lost = 0, 0
    while at < len(data):
        size = rolls.choice((1, 5, 30, len(data)))
        piece = data[at : at + size]
        at += size
        roll = rolls.random()
        if roll < 0.02:
            lost += len(piece)
        elif lost:
            driver.lose(direction, lost, piece)
            lost = 0
        elif roll < 0.05:
            driver.feed(direction, piece[: rolls.randrange(len(piece) + 1)], len(piece))
        else:
            buffer = driver.buffers[direction]
            if roll < 0.1:
                buffer.append(buffer.end, piece, len(piece))  # as a peek: the same bytes come again
                buffer.append(buffer.end - len(piece), piece, len(piece))
                driver.run(direction)
            else:
                driver.feed(direction, piece)
    if lost:
        driver.lose(direction, lost, b"")


def check_sound(driver: Driver, protocol: Protocol) -> None:
    """Whatever was fed: messages are in order and well formed, and what is kept is bounded."""
    for direction, (buffer, messages) in enumerate(zip(driver.buffers, driver.messages, strict=True)):
        assert buffer.held_bytes() <= WINDOW_BYTES + WAITING_PIECES * 16384
        check_places(messages, protocol.name)
        for message in messages:
            assert message.end == UNTIL_CLOSE or message.end >= message.position
            is_push = isinstance(message, Request) and bool(message.flags & PUSH)
            assert is_push or isinstance(message, Response if direction else Request)
            extras = protocol.response_extras if direction and not is_push else protocol.request_extras
            assert len(message.extras) == len(extras)


@each_protocol
@settings(max_examples=5_000)
@given(data=st.data())
def test_garbage_raises_nothing(protocol: Protocol, data: st.DataObject) -> None:
    driver = Driver(protocol)
    words = [bytes(step.data[:40]) for vector in vectors_of(protocol) for step in vector.steps]
    pieces = st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=60) | st.sampled_from(words)), max_size=12)
    for direction, piece in data.draw(pieces):
        driver.feed(direction, piece)
    check_sound(driver, protocol)


HOSTILE: dict[str, Callable[[bytes, int], bytes]] = {
    "endless line": lambda start, size: (start + b"a" * size)[:size],
    "line ends": lambda start, size: b"\r\n" * (size // 2),
    "bare line feeds": lambda start, size: start + b"\n" * size,
    "zeros": lambda start, size: bytes(size),
    "digits": lambda start, size: start + b"0" * size,
    "colons": lambda start, size: start + b":\n" * (size // 2),
    "again and again": lambda start, size: (start * (size // len(start) + 1))[:size],
}


@each_protocol
@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize(("piece", "size"), [(1, 30_000), (16384, 2_000_000)])
def test_hostile_input_takes_bounded_time(name: str, piece: int, size: int, protocol: Protocol) -> None:
    """Single bytes: at most 100 us each (measured: 1 to 6); large pieces: at most 1 us a byte."""
    starts = {step.direction: step.data for step in reversed(vectors_of(protocol)[0].steps)}
    for direction, start in starts.items():
        data = HOSTILE[name](start[: len(start) // 2], size)
        driver = Driver(protocol)
        began = time.thread_time()
        for at in range(0, len(data), piece):
            driver.feed(direction, data[at : at + piece])
        assert time.thread_time() - began < (100e-6 * len(data) if piece == 1 else 1e-6 * len(data))
        check_sound(driver, protocol)
