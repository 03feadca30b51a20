"""What may be shown of a key of a store (Redis, memcached), which may hold personal data or be a secret itself.

A key is shown but for: what `secrets.py` knows in any text (e-mails, well-known tokens, `name=value` of a secret);
all that stands behind a name of a secret (`session:`, `auth_token-`), as sessions are kept under their secret; and
words that look random, 16 characters and more. UUIDs stay unless behind such a name: they are ids.
"""

import re
from typing import Final

from tracehound.enrich.secrets import BLANK, clean_text, is_secret_name

HEADS_KEPT: Final = 4096
RANDOM_SIZE: Final = 16  # of a word with digits and letters, or with capitals among small letters
LONG_SIZE: Final = 24  # of any word that is no number
NUMBER_SIZE: Final = 12  # of an id; a longer one may be that of a card

_WORD: Final = re.compile(r"[^\W_]+")
_UUID: Final = re.compile(r"(?<![^\W_])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![^\W_])")
_RUN: Final = re.compile(r"[^\W_]{16,}")
_SWITCH: Final = re.compile(r"[a-z][A-Z]|[A-Z][a-z]")
_QUOTED_OR_NOT: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|[^\s\"]+")
_SHORT_NAMES: Final = frozenset(("sess", "jti", "csrf", "xsrf", "nonce", "mfa", "totp", "pwreset", "jwks"))
_DIGITS: Final = "0123456789"
_heads: dict[str, bool] = {}  # beginnings of keys, and whether they are shown with a number behind them


def clean_key(key: str) -> str:
    """Return a key with what may be a secret blanked."""
    head = key.rstrip(_DIGITS)
    if len(key) - len(head) <= NUMBER_SIZE and not head[-1:].isalnum():
        known = _heads.get(head)
        if known is None:
            known = _clean(head + "0") == head + "0"
            if len(_heads) < HEADS_KEPT and len(head) <= 64:
                _heads[head] = known
        if known:
            return key
    return _clean(key)


def clean_keys(statement: str) -> str:
    """Clean every word of a statement that may be a key."""
    return _QUOTED_OR_NOT.sub(_clean_word, statement)


def _clean_word(found: re.Match[str]) -> str:
    word = found[0]
    return f'"{clean_key(word[1:-1])}"' if word[:1] == '"' else clean_key(word)


def _clean(key: str) -> str:
    key = clean_text(key)
    for found in _WORD.finditer(key):
        if found.end() < len(key) and _is_secret_word(found[0]):
            return key[: found.end() + 1] + BLANK
    uuids = [found.span() for found in _UUID.finditer(key)] if "-" in key else []
    return _RUN.sub(lambda found: _clean_run(found, uuids), key)


def _is_secret_word(word: str) -> bool:
    lower = word.lower()
    return lower in _SHORT_NAMES or is_secret_name(word) or is_secret_name(lower.rstrip("s"))


def _clean_run(found: re.Match[str], uuids: list[tuple[int, int]]) -> str:
    run = found[0]
    if any(start <= found.start() < end for start, end in uuids):
        return run
    if run.isdigit():
        return BLANK if 13 <= len(run) <= 19 and _is_card(run) else run
    has_digits = sum(character.isdigit() for character in run) > 1
    is_random = has_digits or len(_SWITCH.findall(run)) > 5 or len(run) >= LONG_SIZE
    return BLANK if is_random and len(run) >= RANDOM_SIZE else run


def _is_card(digits: str) -> bool:
    """Say whether the check digit of a payment card fits (ISO/IEC 7812, Luhn)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0
