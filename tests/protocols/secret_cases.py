"""A planted secret is in no row: conversations of a protocol with one at every place where real ones stand.

A protocol's test gives `check_no_leak` its templates: what passes, as (direction, bytes), with `SECRET` where one
stands. Each case plants another secret, cuts the bytes anew, decodes them as one end saw them, and looks at all columns
of all rows behind enrichers and redactor.
"""

import random
import string
from collections.abc import Callable, Sequence

from tests.decode.records import CLIENT, SERVER, Recorder, Socket
from tests.enrich.test_secrets import leaks, make_secret

from tracehound import native
from tracehound.btf import wire_layout
from tracehound.decode.requests import Requests
from tracehound.decode.settings import DecodeSettings
from tracehound.enrich import make_enrichers
from tracehound.protocols import Protocol, load_protocols
from tracehound.protocols._protocol import REQUEST

SECRET = b"@SECRET@"
CASES = 1_000
WORDS = string.ascii_letters + string.digits

Talk = tuple[tuple[int, bytes], ...]
# (what passes, the alphabet of the secret)
Template = tuple[Talk, str]
Plant = Callable[[bytes, bytes], bytes]  # (bytes with SECRET in them, a secret) -> what passes


def move_all(socket: Socket, talk: Talk, rolls: random.Random) -> None:
    """Let a socket send and receive what passes, in pieces."""
    for direction, data in talk:
        at = 0
        while at < len(data):
            size = rolls.choice((len(data), len(data), rolls.randrange(1, 200)))
            socket.move(direction if socket.role == CLIENT else 1 - direction, data[at : at + size])
            at += size


def texts_of(protocol: Protocol, talk: Talk, rolls: random.Random) -> tuple[int, str]:
    """Return the number of rows of a talk, and all that they say; all of it is read without a loss."""
    layout, recorder = wire_layout(), Recorder()
    verdict = layout.enum("l7_protocol")[f"L7_{protocol.name.upper()}"]
    role = rolls.choice((CLIENT, SERVER))
    move_all(Socket(recorder, 11, role, verdict=verdict).open(), talk, rolls)
    requests = Requests(layout, load_protocols(), DecodeSettings(), native.detect)
    results = [*map(requests.decode, recorder.batches()), requests.finish(recorder.time_ns + 1)]
    assert [loss for result in results for loss in result.losses] == [], talk
    enrichers, rows = make_enrichers(load_protocols()), []
    for result in results:
        if result.requests is None:
            continue
        tables = {"requests": result.requests}
        for enricher in enrichers:
            tables = enricher.add(tables)
        rows += tables["requests"].to_pylist()
    return len(rows), "\0".join(str(value) for row in rows for value in row.values())


def plant_as_it_is(data: bytes, secret: bytes) -> bytes:
    """Put the secret where SECRET stands."""
    return data.replace(SECRET, secret)


def check_no_leak(
    protocol: Protocol, templates: Sequence[Template], plant: Plant = plant_as_it_is, cases: int = CASES
) -> None:
    """Assert that `cases` generated conversations give rows, and that no six characters of a secret are in any."""
    leaking, rows = [], 0
    for number in range(cases):
        rolls = random.Random(number)
        talk, alphabet = templates[number % len(templates)]
        secret = make_secret(rolls, alphabet)
        planted = tuple((direction, plant(data, secret.encode())) for direction, data in talk)
        assert any(secret.encode() in data for _, data in planted), talk
        count, texts = texts_of(protocol, planted, rolls)
        assert count >= sum(direction == REQUEST for direction, _ in talk), planted
        rows += count
        if leaks(secret, texts):
            leaking.append((secret, planted, texts))
    assert not leaking, leaking[:3]
    assert rows >= cases
