"""Which protocol a stream speaks: the kernel's verdict, our own on joined pieces by the same C, and proof by parsing.

A strong verdict is believed; a weak or ambiguous one holds if a message begins there. What is found stays. A connection
without a verdict after as many bytes or calls as the kernel looks at is given up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tracehound.decode.exchange import Connection, Piece, Stream
from tracehound.decode.pairing import Pairing
from tracehound.decode.parsing import SHORTEST_HEAD, Parsing, find_start
from tracehound.protocols._protocol import CAPTURE_FRAMED, REQUEST, RESPONSE, Protocol

LONGEST_HEAD: Final = 4096  # more is not kept while no protocol is known
UNKNOWN_BYTES: Final = 65536  # of one direction, without a verdict: the kernel gives up, and so do we
UNKNOWN_CALLS: Final = 256

# enum capture_class, enum connection_role, enum l7_match: fixed by wire.h and the generated l7.h
CAPTURE_UNKNOWN: Final = 0
ROLE_CLIENT: Final = 1
MATCH_WEAK: Final = 1
MATCH_STRONG: Final = 2

Detect = Callable[[bytes, int, int, int], tuple[int, int]]


@final
class Detection:
    """Looks for the protocol of connections that have none yet."""

    def __init__(
        self,
        protocols: Sequence[Protocol],
        verdicts: Mapping[str, int],
        pairing: Pairing,
        parsing: Parsing,
        detect: Detect,
    ) -> None:
        """`verdicts`: protocol name -> its number in `enum l7_protocol`."""
        self._protocols = tuple(protocols)
        self._by_verdict = {verdicts[one.name]: one for one in protocols if one.name in verdicts}
        self._pairing = pairing
        self._parsing = parsing
        self._detect = detect

    def feed(self, connection: Connection, stream: Stream, piece: Piece) -> None:
        """Add a record to a stream whose protocol is not known, and look for one."""
        buffer = stream.buffer
        buffer.append(piece.start, piece.head, piece.tail_start - piece.start)
        if piece.tail:
            buffer.append(piece.tail_start, piece.tail, piece.stop - piece.tail_start)
        buffer.settle()
        stream.start, stream.time_ns, stream.who = piece.start, piece.time_ns, piece.who
        stream.calls += 1
        connection.why = connection.why or piece.unread
        window = buffer.data[buffer.cursor :]
        strength, candidates = self._judge(connection, piece, window)
        for protocol in candidates:
            if self._try(connection, stream, protocol, piece, strength):
                break
        else:
            self._pass_unknown(connection, stream, piece, bool(candidates))
            if connection.given_up:
                return
        if stream.boundary < piece.stop:
            stream.remember(piece.stop)

    def _judge(self, connection: Connection, piece: Piece, window: bytes) -> tuple[int, tuple[Protocol, ...]]:
        """Return how sure it is, and which protocols the window may be: the kernel's verdict, else our own."""
        verdict, strength = piece.verdict, piece.strength
        if connection.redetected:  # the kernel's verdict is on what was spoken before
            verdict = 0
        if (
            not verdict
            and window
            and (len(window) > len(piece.head) or len(window) < SHORTEST_HEAD or connection.redetected)
        ):
            server_port = connection.ports[connection.side == ROLE_CLIENT]
            head = window[:LONGEST_HEAD]
            verdict, strength = self._detect(head, piece.direction, piece.transport, server_port)
        if not verdict:
            return 0, ()
        known = self._by_verdict.get(verdict)
        if known is not None:
            return strength, (known,)
        return MATCH_WEAK, self._protocols  # ambiguous, or one that this build does not parse: each is tried

    def _try(self, connection: Connection, stream: Stream, protocol: Protocol, piece: Piece, strength: int) -> bool:
        """Adopt a protocol if a message of it begins in the window; a strong verdict is believed."""
        streams = connection.streams
        assert streams is not None
        other = streams[1 - stream.direction]
        kinds = (stream.kind,) if connection.side else (REQUEST, RESPONSE)
        first = stream.buffer.cursor
        found = next((kind for kind in kinds if find_start(protocol, stream, kind)), None)
        stream.skipped += stream.buffer.cursor - first
        if found is None:
            if strength < MATCH_STRONG:
                return False
            found = stream.kind
        stream.kind, other.kind = found, 1 - found
        connection.protocol = protocol
        connection.state = protocol.new_state()
        connection.change_facts()
        self._parsing.protocols_of[connection.id] = (protocol.name, None)
        if (stream.skipped or other.skipped) and not connection.joined:
            self._pairing.trials.join(connection, piece.time_ns)
        for one in (stream, other):
            one.synced = one.synced and not one.skipped
            one.capture = CAPTURE_FRAMED
        if piece.capture_class == CAPTURE_UNKNOWN and not (piece.verdict and piece.strength == MATCH_STRONG):
            self._parsing.order(connection)
        for one in (stream, other) if found == REQUEST else (other, stream):
            if connection.protocol is protocol and one.boundary >= 0:
                self._parsing.drive(connection, one)
        return connection.protocol is not None

    def _pass_unknown(self, connection: Connection, stream: Stream, piece: Piece, is_candidate: bool) -> None:
        """Keep a short or promising window, drop any other; give up where the kernel does."""
        buffer = stream.buffer
        window = len(buffer.data) - buffer.cursor
        if buffer.cut or window >= (LONGEST_HEAD if is_candidate else SHORTEST_HEAD):
            while buffer.jump():
                pass
            stream.skipped += buffer.end - max(stream.boundary, 0)
            stream.boundary = buffer.end
            stream.forget(buffer.end)
        if stream.skipped >= UNKNOWN_BYTES or stream.calls >= UNKNOWN_CALLS:
            connection.why = connection.why or "no known protocol in its bytes"
            self._parsing.give_up(connection)
