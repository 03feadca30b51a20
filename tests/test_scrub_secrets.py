"""Nothing planted is left in a scrubbed tape: 1,000 generated conversations of each protocol.

Cases are gathered, many connections on one tape, as making a tape costs more than a connection on it.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import test_scrub
from tests.decode.records import CLIENT, Recorder, Socket
from tests.enrich.test_secrets import leaks, make_secret
from tests.protocols import redis_secrets, test_postgresql
from tests.sources.taped import records_of, write_tape
from tests.test_scrub import LOCAL, VERDICTS, records

from tracehound.scrub import scrub

CASES = 1_000
PER_TAPE = 50
# The name of a user stays on a tape, as a row shows it once the server has agreed
AS_USER = re.compile(rb"HELLO\s+(?:\$1\s+)?3\s+(?:\$4\s+)?AUTH\s+(?:\$8\s+)?@SECRET@")

Case = tuple[list[tuple[int, bytes]], str]


def redis_cases() -> Iterator[Case]:
    templates = [
        each for each in redis_secrets.make_templates() if not any(AS_USER.search(data) for _, data in each[0])
    ]
    for number in range(CASES):
        talk, alphabet = templates[number % len(templates)]
        secret = make_secret(random.Random(number), alphabet)
        yield [(way, redis_secrets.plant(data, secret.encode())) for way, data in talk], secret


def postgresql_cases() -> Iterator[Case]:
    for number in range(CASES):
        yield test_postgresql.plant(random.Random(number))


def http1_cases() -> Iterator[Case]:
    for number in range(CASES):
        first, second, last = test_scrub.secret_requests(number % 2 == 0)
        kind = ("length", "chunked", "events", "close")[number % 4]
        (short,), (answer,) = test_scrub.secret_responses("length"), test_scrub.secret_responses(kind)
        yield [(0, first), (1, short), (0, second), (1, answer), (0, last)], test_scrub.SECRET


KINDS = {"http1": http1_cases, "redis": redis_cases, "postgresql": postgresql_cases}


def taped(protocol: str, cases: list[Case], rolls: random.Random, is_lossy: bool) -> Recorder:
    """Return the connections of cases, their bytes cut anew; of a lossy one some records are lost."""
    recorder = Recorder()
    recorder.add("fact_clock", monotonic_ns=1, realtime_ns=10**18)
    recorder.add("fact_tick")
    for number, (steps, _) in enumerate(cases):
        client = Socket(recorder, 11 + number, CLIENT, (LOCAL, 40000 + number))
        client.verdict = VERDICTS[f"L7_{protocol.upper()}"]
        client.open()
        first = len(recorder.raw)
        for way, data in steps:
            at = 0
            while at < len(data):
                size = rolls.choice((len(data), rolls.randrange(1, 120)))
                client.move(way, data[at : at + size])
                at += size
        if is_lossy and rolls.random() < 0.5:
            recorder.lose(rolls.randrange(first, len(recorder.raw)))
        client.close()
    recorder.add("fact_tick", time_ns=recorder.time_ns + 1_000_000_000)
    return recorder


@pytest.mark.parametrize("is_lossy", [False, True], ids=["whole", "lossy"])
@pytest.mark.parametrize("protocol", sorted(KINDS))
def test_no_secret_is_left_and_the_rows_stay(protocol: str, is_lossy: bool, tmp_path: Path) -> None:
    cases = list(KINDS[protocol]())
    for at in range(0, CASES, PER_TAPE):
        some = cases[at : at + PER_TAPE]
        recorder = taped(protocol, some, random.Random(at), is_lossy)
        write_tape(tmp_path / f"{at}.tape", recorder, recorder.layout)
        report = scrub(tmp_path / f"{at}.tape", tmp_path / f"{at}.scrubbed")
        left = records(tmp_path / f"{at}.scrubbed").decode("latin-1")
        before = records(tmp_path / f"{at}.tape").decode("latin-1")
        assert len(left) == len(before) and len(records_of(left.encode("latin-1"))) > PER_TAPE
        found = [(secret, steps) for steps, secret in some if leaks(secret, left)]
        assert not found, found[:3]
        assert report.differs == (), at
