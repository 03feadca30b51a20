"""Answers of DNS in a capture name the addresses that its connections go to."""

from pathlib import Path

from tests import dns
from tests.sources import packets as p

RESOLVER = bytes((10, 0, 0, 53))
MANY = 300  # more than are looked at while a protocol is not known


def datagrams(client_port: int, *messages: bytes) -> list[bytes]:
    """Return a question and its answer, again and again."""
    found = []
    for number, message in enumerate(messages):
        asks = p.udp(client_port, 53, dns.query("any.test"))
        found.append(p.ip(p.CLIENT4, RESOLVER, 17, asks, 2 * number))
        found.append(p.ip(RESOLVER, p.CLIENT4, 17, p.udp(53, client_port, message), 2 * number + 1))
    return found


def answer(name: str, address: bytes) -> bytes:
    type_ = dns.A if len(address) == 4 else dns.AAAA
    return dns.response(name, [(dns.ASKED, type_, address)], type_)


def test_names_by_udp_and_tcp(tmp_path: Path) -> None:
    third = bytes((10, 0, 0, 3))
    nothing = dns.response("nothing.test", [])
    udp = [
        *datagrams(5000, answer("web.test", p.SERVER4), answer("six.test", p.SERVER6)),
        *datagrams(5001, *[nothing] * MANY, answer("late.test", third)),
    ]
    timed = [(p.START_NS + at * p.STEP_NS, packet) for at, packet in enumerate(udp)]
    before = p.Talk(client=(p.CLIENT4, 39999), time_ns=p.START_NS - 10**9).open().exchange("/before").close()
    talk = p.Talk((p.CLIENT4, 5003), (RESOLVER, 53), time_ns=p.START_NS + 10**9).open()
    message = answer("tcp.test", bytes((10, 0, 0, 4)))
    talk.send(1, len(message).to_bytes(2) + message, size=20).close()
    talks = [before, talk]
    for number, server in enumerate((p.SERVER4, p.SERVER6, third, bytes((10, 0, 0, 4)), bytes((10, 0, 0, 5)))):
        client = p.CLIENT4 if len(server) == 4 else p.CLIENT6
        begin = p.START_NS + (2 + number) * 10**9
        talks.append(
            p.Talk((client, 40000 + number), (server, 80), time_ns=begin).open().exchange(f"/{number}").close()
        )
    found = p.rows_of(tmp_path, p.pcap(sorted([*timed, *(packet for talk in talks for packet in talk.packets)])))
    assert found.error is None
    assert found.columns("requests", "resource", "peer_service", "peer_service_inferred") == [
        ("/before", None, None), ("/0", "web.test", True), ("/1", "six.test", True), ("/2", "late.test", True),
        ("/3", "tcp.test", True), ("/4", None, None),
    ]  # fmt: skip
    opens = [row for row in found.of("connections") if row["event"] == "open" and row["remote_port"] == 80]
    assert [row["remote_name"] for row in opens] == [None, "web.test", "six.test", "late.test", "tcp.test", None]


def test_an_answer_that_is_cut_off_names_nothing(tmp_path: Path) -> None:
    timed = [(p.START_NS, packet) for packet in datagrams(5000, answer("web.test", p.SERVER4))]
    talk = p.Talk(time_ns=p.START_NS + 10**9).open().exchange("/").close()
    for snap, expected in ((1 << 16, "web.test"), (14 + 20 + 8 + 40, None)):
        found = p.rows_of(tmp_path, p.pcap([*timed, *talk.packets], snap=snap))
        opens = [row["remote_name"] for row in found.of("connections") if row["event"] == "open"]
        assert opens == [None, expected]
