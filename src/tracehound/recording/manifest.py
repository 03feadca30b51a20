"""The manifest of a recording: what it is of, the tables' schemas, what was lost; `manifest.json`, replaced whole.

Left out: which files there are. The folders say that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracehound.errors import RecordingError
from tracehound.recording.files import Files
from tracehound.tables import TYPES, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "tracehound recording"
VERSION: Final = 1
NAME: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a recording is of, as its writer is told.

    `clock_anchors` are pairs (CLOCK_MONOTONIC, CLOCK_REALTIME) in nanoseconds; `switches` name -> on or off.
    """

    host: str
    boot_id: str
    version: str
    command: tuple[str, ...] = ()
    switches: Mapping[str, bool] = field(default_factory=dict)
    clock_anchors: tuple[tuple[int, int], ...] = ()
    kernel: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says; times are ISO 8601 in UTC, `ended` is None while it is written or if it was killed."""

    facts: Facts
    schemas: "Mapping[str, pa.Schema]"
    started: str
    ended: str | None = None
    losses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # stage -> counter -> how many

    def to_json(self) -> str:
        """Return the text of `manifest.json`."""
        facts = self.facts
        content = {
            "format": FORMAT,
            "version": VERSION,
            "tracehound": facts.version,
            "host": facts.host,
            "boot_id": facts.boot_id,
            "kernel": facts.kernel,
            "command": list(facts.command),
            "switches": dict(facts.switches),
            "notes": dict(facts.notes),
            "clock_anchors": [list(anchor) for anchor in facts.clock_anchors],
            "started": self.started,
            "ended": self.ended,
            "losses": {stage: dict(counters) for stage, counters in self.losses.items()},
            "tables": {name: _words(schema) for name, schema in self.schemas.items()},
        }
        return json.dumps(content, indent=1) + "\n"


def now() -> str:
    """Return the present moment as a manifest writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write(directory: Path, manifest: Manifest, files: Files | None = None) -> None:
    """Replace the manifest in `directory`, whole or not at all; raises OSError."""
    with (files or Files()).whole(directory / NAME) as file:
        file.write(manifest.to_json().encode())


def read(directory: Path) -> Manifest:
    """Read the manifest in `directory`; raises RecordingError naming the file."""
    path = directory / NAME
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        if content["version"] > VERSION:
            raise RecordingError(f"{path} is of version {content['version']}; this tracehound reads up to {VERSION}")
        return _from_content(content)
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path} is damaged or no manifest of a recording: {error}") from error


def _from_content(content: dict[str, Any]) -> Manifest:
    facts = Facts(
        host=content["host"],
        boot_id=content["boot_id"],
        version=content["tracehound"],
        command=tuple(content["command"]),
        switches=content["switches"],
        clock_anchors=tuple((anchor[0], anchor[1]) for anchor in content["clock_anchors"]),
        kernel=content["kernel"],
        notes=content["notes"],
    )
    schemas = {name: _schema(words) for name, words in content["tables"].items()}
    return Manifest(facts, schemas, content["started"], content["ended"], content["losses"])


@cache
def _word_of() -> "dict[pa.DataType, str]":
    return {arrow_type(word): word for word in TYPES}


def _words(schema: "pa.Schema") -> dict[str, str]:
    return {column.name: _word_of()[column.type] for column in schema}


def _schema(words: dict[str, str]) -> "pa.Schema":
    import pyarrow as pa

    unknown = sorted({word for word in words.values() if word not in TYPES})
    if unknown:
        raise ValueError(f"column types {', '.join(unknown)} are unknown; a newer tracehound may read it")
    return pa.schema([pa.field(name, arrow_type(word)) for name, word in words.items()])
