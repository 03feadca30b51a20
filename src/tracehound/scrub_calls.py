"""Records of calls on a tape without the secrets in their arguments; `scrub` rewrites a tape with it.

What is a secret is told as in rows: by its name, and by what it looks like. What belongs to no known point, and to
system calls, is zero, and told as what could not be read.
"""

import json
from typing import Any, Final

import numpy as np

from tracehound.decode.call_arguments import PIECE_FAULT, PIECE_SIZE
from tracehound.enrich.fillers import FILLER, fill, fill_arguments
from tracehound.enrich.secrets import is_secret_name

KINDS: Final = ("call_entry", "call_return")
WORD: Final = 4


class CallScrubber:
    """Learns points from their facts; cleans records in place."""

    def __init__(self) -> None:
        self._points: dict[int, list[dict[str, Any]]] = {}

    def learn(self, record: np.void, text: bytes) -> None:
        """Take a fact of a point; one that is damaged is none."""
        try:
            self._points[int(record["point"])] = list(json.loads(text[: int(record["text_size"])])["arguments"])
        except (ValueError, KeyError, TypeError):
            self._points.pop(int(record["point"]), None)

    def clean(self, kind: str, record: np.ndarray[Any, np.dtype[np.void]], tail: bytes) -> bytes:
        """Return what a record's tail becomes; registers of secrets are cleared in the record itself."""
        is_exit = kind == "call_return"
        arguments = self._points.get(int(record["point"][0]), [])
        if not is_exit:
            for each in arguments:
                if "register" in each and is_secret_name(str(each["name"])):
                    record["arguments"][0, int(each["register"])] = 0
        mine = [each for each in arguments if "piece" in each and bool(each["exit"]) is is_exit]
        count = int(record["pieces"][0])
        if count != len(mine) or len(tail) < WORD * count:
            unread = np.full(min(count, len(tail) // WORD), PIECE_FAULT, "<u4").tobytes()
            return unread + bytes(len(tail) - len(unread))
        sizes = np.frombuffer(tail, "<u4", count)
        made, at = tail[: WORD * count], WORD * count
        for size, argument in zip(sizes.tolist(), sorted(mine, key=lambda each: int(each["piece"])), strict=True):
            if not size & PIECE_FAULT:
                raw = tail[at : at + (size & PIECE_SIZE)]
                made += _cleaned(argument, raw)
                at += len(raw)
        return made + bytes(len(tail) - at)


def _cleaned(argument: dict[str, Any], raw: bytes) -> bytes:
    """Return the bytes of one value, as many, without a secret."""
    form = argument["form"]
    if is_secret_name(str(argument["name"])):
        return FILLER.encode() * len(raw)
    if form == "strings":
        words = raw.split(b"\0")
        return b"\0".join([*fill_arguments(words[:-1]), words[-1]])
    return fill("text", raw) if form in ("str", "std", "buf") else raw
