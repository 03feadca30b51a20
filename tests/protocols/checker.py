"""The five ways in which every protocol's vectors are fed: whole, byte by byte, with more behind, cut, after a gap.

`Driver` is the smallest engine that keeps the contract of `protocols/_protocol.py`; it pairs nothing. What a vector
says is literal: bytes of both directions in the order of time, and the messages they hold.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tracehound.errors import ProtocolError
from tracehound.protocols import Protocol
from tracehound.protocols._buffer import StreamBuffer
from tracehound.protocols._protocol import (
    INTERIM,
    PREPARED_UNKNOWN,
    REQUEST,
    SWITCH,
    TRUNCATED,
    UNTIL_CLOSE,
    Request,
    Response,
)

Message = Request | Response
OTHER = {0: 1, 1: 0}
NESTED = ("redis",)  # where an element of a response looks like a response
SAID = ("position", "end", "key", "flags", "extras")  # not from __slots__: compiled classes have none
SAID_BY_REQUEST = ("operation", "resource", "statement", "statement_id", "trace")
SAID_BY_RESPONSE = ("status", "outcome", "error_type", "error_message")


@dataclass(frozen=True, slots=True)
class Step:
    """Bytes of one direction, and the messages that begin in them; positions are relative to the step's first byte."""

    direction: int
    data: bytes
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """One connection. `trailing`: what may follow, of each direction, and gives no message."""

    name: str
    steps: tuple[Step, ...]
    trailing: tuple[bytes, bytes] = (b"", b"")


@dataclass(slots=True)
class Driver:
    """Feeds one connection to a parser and keeps what it returns, per direction."""

    protocol: Protocol
    begin: int = 0
    messages: tuple[list[Message], list[Message]] = field(default_factory=lambda: ([], []))
    errors: int = 0
    gaps: int = 0
    is_switched: bool = False
    owes_nothing: bool = False  # it is certain that nothing before the next request still waits for an answer
    buffers: tuple[StreamBuffer, StreamBuffer] = field(init=False)
    synced: list[bool] = field(default_factory=lambda: [True, True])
    state: Any = field(init=False)

    def __post_init__(self) -> None:
        self.buffers = StreamBuffer(self.begin), StreamBuffer(self.begin)
        self.state = self.protocol.new_state()

    def feed(self, direction: int, piece: bytes, size: int | None = None) -> None:
        """Let `size` bytes pass, of which `piece` is captured."""
        buffer = self.buffers[direction]
        buffer.append(buffer.end, piece, len(piece) if size is None else size)
        self.run(direction)

    def lose(self, direction: int, size: int, piece: bytes) -> None:
        """Let `piece` pass after a record of `size` bytes that was lost."""
        buffer = self.buffers[direction]
        buffer.append(buffer.end + size, piece, len(piece))
        buffer.declare_lost()
        self.run(direction)

    def run(self, direction: int) -> None:
        """Parse all that can be parsed."""
        buffer, found = self.buffers[direction], False
        while not self.is_switched:
            while buffer.cursor < len(buffer.data) or buffer.settle():
                if not self.synced[direction] and not self.resync(direction):
                    break
                position = buffer.position
                try:
                    message = self.protocol.parse(buffer, direction, self.state)
                except ProtocolError:
                    self.errors += 1
                    buffer.jump()
                    self.gap(direction)
                    continue
                assert buffer.position >= position
                if message is None:
                    break
                found = True
                self.messages[direction].append(message)
                if self.owes_nothing and isinstance(message, Request):  # as the engine does
                    self.owes_nothing = False
                    if self.protocol.settle is not None:
                        self.protocol.settle(self.state)
                if message.flags & SWITCH and not message.flags & INTERIM:
                    self.is_switched = True
                    return
            if buffer.settle():
                continue
            if not buffer.cut:
                break
            bridge = self.protocol.bridge
            if self.synced[direction] and bridge is not None and bridge(buffer, direction, self.state):
                continue
            buffer.jump()
            self.gap(direction)
        if found and self.buffers[OTHER[direction]].cursor < len(self.buffers[OTHER[direction]].data):
            self.run(OTHER[direction])

    def resync(self, direction: int) -> bool:
        buffer = self.buffers[direction]
        while buffer.data:
            if self.protocol.resync(buffer, direction):
                self.synced[direction] = True
                return True
            if len(buffer.data) - buffer.cursor < 16 and not buffer.cut:
                return False
            buffer.jump()
            if self.is_between_messages(OTHER[direction]):
                self.protocol.reset(self.state)
        return False

    def is_between_messages(self, direction: int) -> bool:
        """Say whether no message of a direction is under way."""
        last = self.messages[direction][-1].end if self.messages[direction] else self.begin
        return self.buffers[direction].position == last

    def gap(self, direction: int) -> None:
        self.gaps += 1
        self.protocol.reset(self.state)
        self.synced[direction] = False
        if not self.is_between_messages(OTHER[direction]):
            self.synced[OTHER[direction]] = False


def values(message: Message, base: int = 0) -> dict[str, Any]:
    """Return all that a message says, its positions moved by `base`."""
    said = (*SAID, *(SAID_BY_REQUEST if isinstance(message, Request) else SAID_BY_RESPONSE))
    found = {name: getattr(message, name) for name in said}
    found["position"] += base
    if found["end"] != UNTIL_CLOSE:
        found["end"] += base
    return found


def expected(vector: Vector, begin: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the values of a vector's messages, per direction, at their places in the stream."""
    said: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    places = [begin, begin]
    for step in vector.steps:
        said[step.direction].extend(values(message, places[step.direction]) for message in step.messages)
        places[step.direction] += len(step.data)
    return said


def found(driver: Driver) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the values of the messages that a driver got, per direction."""
    return [values(message) for message in driver.messages[0]], [values(message) for message in driver.messages[1]]


def check_whole(protocol: Protocol, vector: Vector) -> None:
    """Every step is one piece."""
    driver = Driver(protocol)
    for step in vector.steps:
        driver.feed(step.direction, step.data)
    assert found(driver) == expected(vector)
    assert (driver.errors, driver.gaps) == (0, 0)


def check_bytes(protocol: Protocol, vector: Vector) -> None:
    """Every byte is one piece."""
    driver = Driver(protocol)
    for step in vector.steps:
        for at in range(len(step.data)):
            driver.feed(step.direction, step.data[at : at + 1])
    assert found(driver) == expected(vector)
    assert (driver.errors, driver.gaps) == (0, 0)


def check_trailing(protocol: Protocol, vector: Vector) -> None:
    """More bytes stand behind the last step of each direction, in the same piece."""
    driver = Driver(protocol)
    last = {step.direction: at for at, step in enumerate(vector.steps)}
    for at, step in enumerate(vector.steps):
        more = vector.trailing[step.direction] if last[step.direction] == at else b""
        driver.feed(step.direction, step.data + more)
    assert found(driver) == expected(vector)
    assert (driver.errors, driver.gaps) == (0, 0)


def check_cut(protocol: Protocol, vector: Vector) -> None:
    """Of one step only the first bytes are captured: every length of every step."""
    for at, step in enumerate(vector.steps):
        for length in range(len(step.data)):
            driver = Driver(protocol)
            for number, other in enumerate(vector.steps):
                driver.feed(other.direction, other.data[:length] if number == at else other.data, len(other.data))
            check_true(driver, vector, f"step {at} cut at {length}")


def check_after_gap(protocol: Protocol, vector: Vector) -> None:
    """One step is lost, or all before one; what is found then is what is there."""
    for at, step in enumerate(vector.steps):
        lost: dict[int, int] = {step.direction: len(step.data)}
        driver = Driver(protocol)
        for number, other in enumerate(vector.steps):
            if number != at:
                driver.lose(other.direction, lost.pop(other.direction, 0), other.data) if number > at else driver.feed(
                    other.direction, other.data
                )
        check_true(driver, vector, f"step {at} lost")
    driver = Driver(protocol, begin=5000)
    driver.synced = [False, False]
    for direction in (0, 1):
        driver.feed(direction, bytes(16))
    driver.owes_nothing = True
    for step in vector.steps:
        driver.feed(step.direction, step.data)
    assert found(driver) == expected(vector, 5016), "joined in the middle"


def check_places(messages: list[Message], what: str) -> None:
    """Assert that messages are in order and no two at one place, but for answers that have no bytes of their own."""
    places = [message.position for message in messages]
    assert places == sorted(places), f"{what}: out of order"
    places = [message.position for message in messages if message.end != message.position]
    assert len(places) == len(set(places)), f"{what}: a message twice"


def check_true(driver: Driver, vector: Vector, how: str) -> None:
    """Assert that each message found is one of the vector's; what says `truncated` may say less, an extra nothing."""
    for direction, messages in enumerate(driver.messages):
        there = {(said["position"], said["end"] == said["position"]): said for said in expected(vector)[direction]}
        check_places(messages, f"{vector.name}, {how}")
        for message in messages:
            got = values(message)
            said = there.get((message.position, got["end"] == got["position"]))
            begun_late = said is None and (direction != REQUEST or bool(message.flags & PREPARED_UNKNOWN))
            if begun_late:  # its first parts were lost: an answer that no request waits for, or without its Parse
                said = next((one for one in there.values() if one["end"] == got["end"]), None)
            assert said is not None, f"{vector.name}, {how}: no message is at {message.position}: {got}"
            may_differ = {"flags", "end"} if direction != REQUEST else {"flags"}
            may_differ |= {"position", "extras"} if begun_late else set()  # no request waits for it
            if message.flags & TRUNCATED:
                may_differ |= {"extras", "trace", "end"}
            if message.end == UNTIL_CLOSE or (direction != REQUEST and got["end"] != said["end"]):
                may_differ |= {"end", "extras"}  # under way, or without its body: what its extras count is not whole
            got["extras"] = known_extras(got["extras"], said["extras"])
            if message.flags & PREPARED_UNKNOWN:  # its Parse was lost
                may_differ |= {"operation", "resource", "statement", "statement_id", "position", "trace"}
            wrong = {name: got[name] for name in got if name not in may_differ and got[name] != said[name]}
            assert not wrong, f"{vector.name}, {how}: {wrong} instead of {said}"


def is_element(message: Message, of: Iterable[dict[str, Any]]) -> bool:
    """Say whether a response lies within a true one: the rest of a reply whose beginning was lost.

    The engine pairs none of them: it first makes sure that no answer is owed.
    """
    return isinstance(message, Response) and any(
        said["position"] < message.position and message.end <= said["end"] for said in of
    )


def known_extras(got: tuple[Any, ...], said: tuple[Any, ...]) -> tuple[Any, ...]:
    """Take over what is not told: after a gap it is not known what lasted on the connection before."""
    if len(got) != len(said):
        return got
    return tuple(whole if one is None else one for one, whole in zip(got, said, strict=True))


WAYS: tuple[Callable[[Protocol, Vector], None], ...] = (
    check_whole,
    check_bytes,
    check_trailing,
    check_cut,
    check_after_gap,
)


def cases(vectors: Iterable[Vector]) -> list[tuple[Vector, Callable[[Protocol, Vector], None]]]:
    """Return every vector with every way."""
    return [(vector, way) for vector in vectors for way in WAYS]
