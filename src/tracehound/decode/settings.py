"""What decode can be told: plain values, the same for a live trace and for a replay.

Times are nanoseconds of CLOCK_MONOTONIC. A module of its own so that every decoder can import it.
"""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """Limits of decode; each one that is hit is counted in `losses`."""

    response_timeout_ns: int = 300 * SECOND_NS  # a request without an answer ends as `no_response`
    first_call_wait_ns: int = SECOND_NS  # how long an `open` or `accept` row waits for the first call
    close_wait_ns: int = 30_000_000  # how long a `close` row waits for the protocol: a hole in a stream waits 20 ms
    loss_grace_ns: int = 200_000_000  # how much later a lower ring_seq may be stamped than a higher one
    window_bytes: int = 1 << 20  # kept of one direction of a connection while a message is incomplete
    windows_bytes: int = 64 << 20  # of all connections together; the oldest is shed
    waiting_requests: int = 1 << 16  # requests without an answer, all connections together
    payloads: bool = False  # rows of `payloads`: the captured bytes themselves
