"""Keys in, the same keys without what may be a secret out."""

import random
import time

import pytest

from tracehound.enrich import keys
from tracehound.enrich.keys import clean_key, clean_keys

UUID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    ("key", "cleaned"),
    [
        ("cart:17", "cart:17"),
        ("", ""),
        ("17", "17"),
        ("user:1001:followers", "user:1001:followers"),
        ("{tenant-7}:orders/2026-12-01", "{tenant-7}:orders/2026-12-01"),
        (f"order:{UUID}:lines", f"order:{UUID}:lines"),
        ("schlüssel:a b", "schlüssel:a b"),
        ("session:abc", "session:?"),
        (f"session:{UUID}", "session:?"),
        ("sess:17", "sess:?"),
        ("spring:session:sessions:expires:abc", "spring:session:?"),
        ("sessions:17", "sessions:?"),
        ("token_17", "token_?"),
        ("auth-token:17:tries", "auth-?"),
        ("resetPassword:abc", "resetPassword:?"),
        ("password", "password"),
        ("user:bob@example.com:cart", "user:?:cart"),
        ("http://bob:pw@host/x", "http://bob:?@host/x"),
        ("cache:0cc175b9c0f1b6a831c399e269772661", "cache:?"),
        ("cache:dGhpcyBpcyBhIHNlY3JldCE", "cache:?"),
        ("django.contrib.sessions.cacheab12", "django.contrib.sessions.?"),
        ("key:000000000123", "key:000000000123"),
        ("tweet:1234567890123456789", "tweet:1234567890123456789"),
        ("card:4111111111111111", "card:?"),
        ("ghp_0123456789abcdefghij", "?"),
        ("internationalization", "internationalization"),
    ],
)
def test_key(key: str, cleaned: str) -> None:
    assert clean_key(key) == cleaned
    assert clean_key(cleaned) == cleaned


@pytest.mark.parametrize(
    ("statement", "cleaned"),
    [
        ("SET cart:17 ?", "SET cart:17 ?"),
        ("MGET session:a cart:17 ...", "MGET session:? cart:17 ..."),
        ('GET "session:a b"', 'GET "session:?"'),
        ('GET "a \\"b\\"" x', 'GET "a \\"b\\"" x'),
        ("message bob@example.com ?", "message ? ?"),
        ("AUTH ?", "AUTH ?"),
    ],
)
def test_statement(statement: str, cleaned: str) -> None:
    assert clean_keys(statement) == cleaned


def test_what_is_remembered_is_bounded_and_changes_nothing() -> None:
    rolls = random.Random(3)
    words = ["cart", "session", "a", "token", "user", "x" * 70]
    for number in range(6_000):
        key = ":".join(rolls.choices(words, k=3)) + f":{number}:" * rolls.randrange(2) + str(number)
        assert clean_key(key) == keys._clean(key), key
    assert len(keys._heads) <= keys.HEADS_KEPT


@pytest.mark.parametrize(
    "text", ["a" * 65_536, ":" * 65_536, '"' * 65_536, "a:" * 32_768, "-1" * 32_768, "aB1" * 20_000]
)
def test_takes_linear_time(text: str) -> None:
    began = time.thread_time()
    clean_key(text)
    clean_keys(text)
    assert time.thread_time() - began < 1
