"""The kinds of inputs that a soak makes of numbers: `KINDS[name](number)` makes one input, feeds it and checks.

The checks are those of the tests beside the source; here they get more inputs, seeded, so that a number is the input.
"""

import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.decode.records import CLIENT, FRAMED, HEAD_TAIL, SERVER, UNKNOWN, Recorder, Socket
from tests.decode.test_requests import HTTP1, decode
from tests.decode.test_streams import FRAGMENTS, MS, TALKS, other_end, test_nothing_raises_and_cuts_change_nothing
from tests.native.test_drain import (
    LENGTHS,
    test_any_bytes_in_a_ring_are_read_within_bounds,
    test_delivered_and_told_as_dropped_is_all_that_was_produced,
)
from tests.native.test_split import test_any_bytes_are_split_within_bounds
from tests.protocols.checker import Driver, Vector, check_true
from tests.protocols.test_protocol import PROTOCOLS, check_sound, damage, feed_in_pieces, vectors_of
from tests.symbols import damage as damaged_files

from tracehound import native
from tracehound.protocols import Protocol

LIMITS: Final[dict[str, Any]] = {"windows_bytes": 90_000, "waiting_requests": 3, "response_timeout_ns": 50 * MS}


@cache
def cases() -> tuple[tuple[Protocol, Vector], ...]:
    """Return every vector of every protocol."""
    return tuple((protocol, vector) for protocol in PROTOCOLS for vector in vectors_of(protocol))


def parse_damaged(number: int) -> None:
    """One connection of a vector with bytes changed, cut, lost: sound messages, no exception."""
    rolls = random.Random(number)
    protocol, vector = cases()[number % len(cases())]
    driver = Driver(protocol)
    for step in vector.steps:
        feed_in_pieces(driver, step.direction, damage(step.data, rolls), rolls)
    check_sound(driver, protocol)


def parse_recut(number: int) -> None:
    """One connection of a vector, its true bytes cut and lost in another way: only true messages."""
    rolls = random.Random(number)
    protocol, vector = cases()[number % len(cases())]
    driver = Driver(protocol)
    for step in vector.steps:
        feed_in_pieces(driver, step.direction, step.data, rolls)
    check_sound(driver, protocol)
    check_true(driver, vector, f"number {number}")


def parse_mixed(number: int) -> None:
    """One connection made of steps of several vectors: sound messages, no exception."""
    rolls = random.Random(number)
    protocol, _ = cases()[number % len(cases())]
    vectors = vectors_of(protocol)
    driver = Driver(protocol)
    for _ in range(rolls.randrange(1, 7)):
        step = rolls.choice(rolls.choice(vectors).steps)
        feed_in_pieces(driver, step.direction, damage(step.data, rolls) if rolls.random() < 0.5 else step.data, rolls)
    check_sound(driver, protocol)


def decode_damaged(number: int) -> None:
    """Records of one conversation, some lost, doubled or damaged: no exception, and cuts change nothing."""
    rolls = random.Random(number)
    recorder = Recorder()
    talk = rolls.choice(TALKS)
    client = rolls.random() < 0.5
    socket = Socket(recorder, 11, CLIENT if client else SERVER, verdict=HTTP1).open()
    socket.capture = rolls.choice((FRAMED, FRAMED, HEAD_TAIL, UNKNOWN))
    (talk if client else other_end(talk))(socket)
    for _ in range(rolls.choice((0, 1, 2, 6))):
        at = rolls.randrange(len(recorder.raw))
        match rolls.randrange(3):
            case 0 if len(recorder.raw) > 1:
                recorder.lose(at)
            case 1:
                recorder.raw[at] = scratch(recorder.raw[at], rolls)
            case _:  # a moment later, for one moment is never cut
                time_ns = recorder.times[at] + 1
                recorder.raw.insert(at + 1, time_ns.to_bytes(8, "little") + recorder.raw[at][8:])
                recorder.times.insert(at + 1, time_ns)
    check_cuts(recorder, rolls)


def scratch(raw: bytes, rolls: random.Random) -> bytes:
    """Change some bytes of a record behind its header."""
    changed = bytearray(raw)
    for _ in range(rolls.choice((1, 2, 8))):
        changed[rolls.randrange(32, len(changed))] = rolls.choice((0, 1, 255, rolls.randrange(256)))
    return bytes(changed)


def decode_wild(number: int) -> None:
    """Records that no kernel would write: no exception, and cuts change nothing."""
    rolls = random.Random(number)
    recorder = Recorder()
    for _ in range(rolls.randrange(1, 12)):
        cookie = rolls.randrange(4)
        if rolls.random() < 0.2:
            recorder.add(
                "connection", cookie=cookie, event=rolls.randrange(10), role=rolls.randrange(4),
                attempt=rolls.randrange(3), family=rolls.choice((0, 1, 2, 10)), bytes_sent=rolls.randrange(200),
                bytes_read=rolls.choice((rolls.randrange(200), 1 << 63)), flags=rolls.randrange(16), base_sent=7,
            )  # fmt: skip
            continue
        data = b"".join(rolls.choices(FRAGMENTS[:-1], k=rolls.randrange(5)))
        tail = rolls.randrange(min(4, len(data)) + 1)
        start = rolls.randrange(300)
        recorder.add(
            "data", data, cookie=cookie, position_end=start + rolls.choice((len(data), rolls.randrange(90_000))),
            call_size=rolls.choice((len(data), rolls.randrange(90_000))), head_size=len(data) - tail, tail_size=tail,
            offset=rolls.choice((0, rolls.randrange(300))), direction=rolls.randrange(3),
            flags=rolls.choice((0, 1, 2, 4, 32, 64)), verdict=rolls.randrange(5), strength=rolls.randrange(4),
            capture_class=rolls.randrange(5), role=rolls.randrange(3),
            time_ns=recorder.time_ns + rolls.randrange(40 * MS),
        )  # fmt: skip
    check_cuts(recorder, rolls)


def check_cuts(recorder: Recorder, rolls: random.Random) -> None:
    """Decode twice, cut differently: the same comes out."""
    cuts = sorted(rolls.randrange(1, len(recorder.raw) + 1) for _ in range(rolls.randrange(4)))
    one, other = decode(recorder, **LIMITS), decode(recorder, cuts, **LIMITS)
    assert (one.rows, one.order, one.losses) == (other.rows, other.order, other.losses)
    assert (one.orders, one.protocols_of) == (other.orders, other.protocols_of)


def drain_events(number: int) -> None:
    """Any order of writing, reading, taking and letting go: every record is delivered or told as dropped."""
    rolls = random.Random(number)
    test = test_delivered_and_told_as_dropped_is_all_that_was_produced.hypothesis.inner_test  # type: ignore[attr-defined]
    test(rolls.randbytes(rolls.randrange(40)), rolls.randrange(25))


def drain_bytes(number: int) -> None:
    """Any bytes and positions in a ring: read within bounds (the page behind it is a bus error)."""
    rolls = random.Random(number)
    test = test_any_bytes_in_a_ring_are_read_within_bounds.hypothesis.inner_test  # type: ignore[attr-defined]
    words = [
        (rolls.randrange(512), rolls.choice((rolls.randrange(200), rolls.choice(LENGTHS))))
        for _ in range(rolls.randrange(9))
    ]
    waiting = rolls.choice((rolls.randrange(513), rolls.randrange(-(1 << 61), 1 << 61)))
    test(rolls.randbytes(rolls.randrange(400)), words, rolls.randrange(1 << 10), waiting)


def by_hypothesis(test: Any) -> Callable[[int], None]:
    """Return a kind whose inputs hypothesis makes of random bytes by a test's own strategy."""
    return lambda number: test.hypothesis.fuzz_one_input(random.Random(number).randbytes(2048)) and None


# name -> (the kind, its share of all inputs)
@cache
def code_file() -> bytes:
    """Return a file of code that is there wherever this runs: our own."""
    return next(Path(native.__file__).parent.glob("_native*.so")).read_bytes()


def elf_damaged(number: int) -> None:
    """One ELF file with bytes changed or cut: all that can be asked of it has an answer, or is refused."""
    damaged_files.read_everything(damaged_files.damage(code_file(), random.Random(number)))


KINDS: Final[Mapping[str, tuple[Callable[[int], None], float]]] = {
    "parse_damaged": (parse_damaged, 0.319),
    "parse_recut": (parse_recut, 0.2),
    "parse_mixed": (parse_mixed, 0.2),
    "decode_damaged": (decode_damaged, 0.003),
    "decode_wild": (decode_wild, 0.03),
    "drain_events": (drain_events, 0.04),
    "drain_bytes": (drain_bytes, 0.191),
    "elf_damaged": (elf_damaged, 0.001),
    "hypothesis_decode": (by_hypothesis(test_nothing_raises_and_cuts_change_nothing), 0.001),
    "hypothesis_split": (by_hypothesis(test_any_bytes_are_split_within_bounds), 0.015),
}
