"""The recording as an output."""

from pathlib import Path

from tests.sinks.rows import shop
from tests.sinks.test_jsonl import SOURCE

from tracehound.recording import Recording
from tracehound.sinks import kind


def test_rows_of_known_tables_are_kept_and_others_passed_over(tmp_path: Path) -> None:
    sink = kind("parquet").open(str(tmp_path / "shop"), SOURCE)
    tables = shop()
    sink.write(tables | {"fact_process": tables["processes"]})
    sink.flush()
    recording = Recording(tmp_path / "shop")
    assert recording.table("requests").num_rows == tables["requests"].num_rows
    sink.close()
    sink.close()
    assert sink.take_losses() is None
    assert recording.table("connections").to_batches()[0].equals(tables["connections"])
    assert "fact_process" not in recording.tables
