"""A recording: a folder of Parquet files with a manifest, one folder per table; written, read and queried here.

    DIR/manifest.json            version, host, boot id, clock anchors, switches, schemas, loss totals, `ended`
    DIR/requests/1.parquet       rows of one part, written whole: temporary file, fsync, rename
    DIR/requests/2-5.parquet     parts 2 to 5 made one at the end; what it covers may still lie beside it after a crash
    DIR/requests/6.arrows        rows not yet in part 6: an Arrow stream that grows with each flush

A reader takes `.parquet` before `.arrows` of the same number, and the wider of two files. Left out: tapes, which hold
records and not rows.
"""

from tracehound.recording.files import loss_counter
from tracehound.recording.manifest import Facts, Manifest
from tracehound.recording.owner import Owner
from tracehound.recording.reader import Recording
from tracehound.recording.state import StateRecording, new_state_recording, resolve, state_folder
from tracehound.recording.writer import RecordingWriter

__all__ = [
    "Facts",
    "Manifest",
    "Owner",
    "Recording",
    "RecordingWriter",
    "StateRecording",
    "loss_counter",
    "new_state_recording",
    "resolve",
    "state_folder",
]
