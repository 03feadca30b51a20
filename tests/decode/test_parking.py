"""Connections parked whenever they can be, between any two records: the same rows, losses and orders as without."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.decode.records import CLIENT, PREEXISTING, SERVER, Recorder, Socket
from tests.decode.test_requests import HTTP1, LAYOUT, Decoded, client, decode, detect, get, head, reply
from tests.decode.test_streams import TALKS, overlapping, recorded
from tests.protocols.checker import Driver, Step
from tests.protocols.test_postgresql import FLUSH, parse, query, startup

from tracehound.decode import parking, requests, streams
from tracehound.decode.exchange import Connection
from tracehound.decode.parking import IDLE_NS, IDLE_OF_MANY_NS, MANY
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.protocols import load_protocols

SECOND = 1_000_000_000
Talk = Callable[[Socket], None]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Park before each record; the list says of each attempt whether it was done."""
    attempts: list[bool] = []

    def noted(connection: Connection) -> bool:
        attempts.append(parking.park(connection))
        return attempts[-1]

    monkeypatch.setattr(streams, "MANY", -1)
    monkeypatch.setattr(streams, "IDLE_OF_MANY_NS", -(1 << 62))
    monkeypatch.setattr(requests, "SWEEP_NS", 1)
    monkeypatch.setattr("tracehound.decode.streams.park", noted)
    yield attempts


def plainly(recorder: Recorder, cuts: list[int]) -> Decoded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "MANY", 1 << 62)
        return decode(recorder, cuts)


@pytest.mark.parametrize("role", [CLIENT, SERVER])
@pytest.mark.parametrize("talk", TALKS)
def test_nothing_changes(talk: Talk, role: int, eager: list[bool]) -> None:
    recorder = recorded(talk, role)
    assert decode(recorder) == plainly(recorder, [])
    assert any(eager) or talk is overlapping, "nothing was parked"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), talk=st.sampled_from(TALKS), role=st.sampled_from([CLIENT, SERVER]))
def test_nothing_changes_with_losses_and_cuts(data: st.DataObject, talk: Talk, role: int, eager: list[bool]) -> None:
    recorder = recorded(talk, role)
    for _ in range(data.draw(st.integers(0, 3))):
        recorder.lose(data.draw(st.integers(0, len(recorder.raw) - 1)))
    cuts = data.draw(st.lists(st.integers(1, len(recorder.raw)), max_size=4))
    assert decode(recorder, cuts) == plainly(recorder, cuts)


def spoken(protocol: str, steps: Sequence[Step], role: int, joined_at: int) -> Recorder:
    """Return the records of a connection, each step one call, seen from the step `joined_at` on."""
    recorder = Recorder()
    verdict = LAYOUT.enum("l7_protocol")[f"L7_{protocol.upper()}"]
    if joined_at:
        socket = Socket(recorder, 11, role, verdict=verdict, flags=PREEXISTING, position=[1000, 5000])
    else:
        socket = Socket(recorder, 11, role, verdict=verdict).open()
    for step in steps[joined_at:]:
        socket.move(step.direction if role == CLIENT else 1 - step.direction, step.data)
        recorder.add("fact_tick")
    return recorder


@pytest.mark.parametrize("role", [CLIENT, SERVER])
@pytest.mark.parametrize("protocol", ["redis", "postgresql"])
def test_nothing_that_a_protocol_knows_is_lost(protocol: str, role: int, eager: list[bool]) -> None:
    """Every conversation of its test, seen from the beginning or from any of its steps on."""
    vectors = import_module(f"tests.protocols.test_{protocol}").VECTORS
    for vector in vectors:
        for joined_at in range(len(vector.steps)):
            recorder = spoken(protocol, vector.steps, role, joined_at)
            assert decode(recorder) == plainly(recorder, []), (vector.name, joined_at)
    assert eager.count(True) > len(vectors)


@pytest.mark.parametrize("name", ["redis", "postgresql"])
def test_a_state_is_thrown_away_only_if_it_knows_nothing(name: str) -> None:
    """After one plain exchange it is; after what is to be known later it is not."""
    protocol = next(each for each in load_protocols() if each.name == name)
    assert protocol.is_fresh is not None
    fresh, kept = IDLE_TALKS[name]
    for talk, is_fresh in [(fresh, True), *((talk, False) for talk in kept)]:
        driver = Driver(protocol)
        for direction, data in enumerate(talk):
            driver.feed(direction, data)
        assert driver.messages[0] and protocol.is_fresh(driver.state) is is_fresh, talk


READY = b"C\0\0\0\rSELECT 1\0Z\0\0\0\x05I"
IDLE_TALKS = {
    "redis": (
        (b"GET a\r\n", b"$1\r\nx\r\n"),
        [
            (b"GET a\r\n", b""),
            (b"SELECT 2\r\n", b"+OK\r\n"),
            (b"AUTH bob x\r\n", b"+OK\r\n"),
            (b"MULTI\r\nSELECT 2\r\n", b"+OK\r\n+QUEUED\r\n"),
            (b"SUBSCRIBE a\r\n", b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
            (b"MONITOR\r\n", b"+OK\r\n"),
            (b"GET a\r\nCLIENT REPLY OFF\r\n", b"$-1\r\n"),
            (b"GET a\r\nGET b\r\n", b"$-1\r\n$-1\r\n"),
        ],
    ),
    "postgresql": (
        (query(b"select 1"), READY),
        [
            (query(b"select 1"), b""),
            (startup(b"user", b"bob"), b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"),
            (parse(b"select 1", b"s") + FLUSH, b"1\0\0\0\x04"),
            (query(b"select 1"), b"S\0\0\0#standard_conforming_strings\0off\0" + READY),
        ],
    ),
}


def test_joined_in_the_middle(eager: list[bool]) -> None:
    """A direction that has not been seen yet is parked without a place."""
    recorder = Recorder()
    socket = Socket(recorder, 11, CLIENT, verdict=HTTP1, flags=PREEXISTING, position=[1000, 5000])
    socket.receive(head(204))
    recorder.time_ns += 10 * SECOND
    socket.send(get("/1"))
    socket.receive(reply(211, b"x"))
    decoded = decode(recorder)
    assert decoded == plainly(recorder, [])
    assert decoded.brief("resource", "status", "request_position") == [("/1", 211, 1000)]
    assert eager[0], "not parked while it was idle"


# ---- when ------------------------------------------------------------------------------------------------------------


def idle(count: int, idle_ns: int) -> tuple[Requests, list[Connection]]:
    """Return a decoder, and its connections after each had one request and then nothing for so long."""
    recorder = Recorder()
    for number in range(count):
        socket = Socket(recorder, 100 + number, CLIENT, verdict=HTTP1).open()
        socket.send(get("/"), time_ns=SECOND)
        socket.receive(reply(200), time_ns=SECOND)
    recorder.add("fact_tick", time_ns=SECOND + idle_ns)
    decoder = Requests(LAYOUT, load_protocols(), DecodeSettings(), detect)
    decoder.decode(recorder.batch())
    return decoder, list(decoder._streams.connections.values())


@pytest.mark.parametrize(
    ("count", "idle_ns", "is_parked"),
    [
        (1, IDLE_NS, False),
        (1, IDLE_NS + 1, True),
        (MANY, IDLE_OF_MANY_NS + SECOND, False),
        (MANY + 1, IDLE_OF_MANY_NS, False),
        (MANY + 1, IDLE_OF_MANY_NS + 1, True),
    ],
)
def test_is_parked_after_some_time_and_sooner_if_many_are(count: int, idle_ns: int, is_parked: bool) -> None:
    _, connections = idle(count, idle_ns)
    assert len(connections) == count
    assert {connection.streams is None for connection in connections} == {is_parked}
    assert all(connection.state is None for connection in connections) == is_parked


def unfinished(socket: Socket) -> None:
    socket.send(get("/")[:-2])


def unanswered(socket: Socket) -> None:
    socket.send(get("/"))


def half_answered(socket: Socket) -> None:
    socket.send(get("/"))
    socket.receive(reply(200, b"x" * 100)[:-1])


def behind_a_hole(socket: Socket) -> None:
    socket.send(get("/"))
    socket.receive(reply(200))
    socket.position[0] += 10
    socket.send(b"lost")


def of_no_protocol(socket: Socket) -> None:
    socket.verdict = 0
    socket.send(b"what is this?")


@pytest.mark.parametrize("talk", [unfinished, unanswered, half_answered, behind_a_hole, of_no_protocol])
def test_what_is_under_way_is_not_parked(talk: Talk, eager: list[bool]) -> None:
    recorder = Recorder()
    talk(client(recorder))
    decoder = Requests(LAYOUT, load_protocols(), DecodeSettings(), detect)
    decoder.decode(recorder.batch())
    (connection,) = decoder._streams.connections.values()
    assert connection.streams is not None and connection.parked is None
    decoder.finish(recorder.time_ns)


def test_one_that_is_given_up_sheds_all(eager: list[bool]) -> None:
    recorder = Recorder()
    socket = client(recorder)
    socket.verdict = 0
    for _ in range(20):
        socket.send(b"\x16\x03" * 2000)
    socket.close()
    decoder = Requests(LAYOUT, load_protocols(), DecodeSettings(), detect)
    decoder.decode(recorder.batch(0, len(recorder.raw) - 1))
    (connection,) = decoder._streams.connections.values()
    assert connection.given_up and connection.streams is None
    why: Any = decoder.protocols_of[connection.id]
    decoder.decode(recorder.batch(len(recorder.raw) - 1))
    assert not decoder._streams.connections and decoder.protocols_of[connection.id] == why


def test_parked_ones_end_with_the_trace_or_their_socket() -> None:
    decoder, connections = idle(3, IDLE_NS + SECOND)
    assert all(connection.parked for connection in connections)
    recorder = Recorder(time_ns=100 * SECOND)
    Socket(recorder, 100, CLIENT, position=[len(get("/")), len(reply(200))]).close()
    decoder.decode(recorder.batch())
    assert len(decoder._streams.connections) == 2
    assert decoder.finish(200 * SECOND) == (None, [])
