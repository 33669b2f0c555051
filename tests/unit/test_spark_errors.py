"""What Spark says of a disk, in a sentence that says what to do."""

from errno import ENOENT, ENOSPC
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from lakehouse_ingest.environment.spark_errors import of_disk, of_worker
from lakehouse_ingest.errors import LONGEST

FAILURE = Py4JError("the text is beside it")
HADOOP = (
    "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n\tat org.apache.hadoop.fs.RawLocalFileSystem"
)
CHECKPOINT = f"""Caused by: java.io.IOException: No space left on device
{HADOOP}
\tat org.apache.spark.sql.execution.streaming.CheckpointFileManager$RenameBasedFSDataOutputStream.close(X.scala:1)
\tat org.apache.iceberg.Nothing"""
SHUFFLE = """Caused by: java.io.FileNotFoundException: /tmp/x/blockmgr-1/0c/temp_shuffle_2 (Read-only file system)
\tat java.base/java.io.FileOutputStream.open0(Native Method)
\tat app//org.apache.spark.storage.DiskBlockObjectWriter.initialize(DiskBlockObjectWriter.scala:140)"""


@pytest.mark.parametrize("said", [CHECKPOINT, SHUFFLE], ids=["checkpoint", "shuffle"])
def test_what_spark_keeps_for_itself_lies_in_its_scratch(said: str, tmp_path: Path) -> None:
    found = str(of_disk(FAILURE, said, tmp_path))
    assert f"Spark's scratch in {tmp_path} can't be written (" in found
    assert found.endswith("make room there, or set TMPDIR to a folder on another disk")


def test_our_own_files_for_spark_lie_there_too(tmp_path: Path) -> None:
    full = OSError(ENOSPC, "No space left on device")
    assert f"Spark's scratch in {tmp_path} can't be written (No space left" in str(of_disk(full, str(full), tmp_path))
    gone = FileNotFoundError(ENOENT, "No such file or directory")
    assert of_disk(gone, str(gone), tmp_path) is None


def test_without_frames_nobody_knows(tmp_path: Path) -> None:
    assert of_disk(FAILURE, "java.io.IOException: Disk quota exceeded", tmp_path) is None


def test_however_deep_the_folder_the_sentence_is_short(tmp_path: Path) -> None:
    found = str(of_disk(FAILURE, CHECKPOINT, tmp_path / ("deep" * 60)))
    assert len(found) <= LONGEST
    assert "TMPDIR" in found


def test_what_is_no_disk_is_not_explained(tmp_path: Path) -> None:
    assert (
        of_disk(FAILURE, "java.lang.IllegalStateException: something else\n\tat org.apache.spark.X", tmp_path) is None
    )


def test_a_worker_that_is_gone_is_told_with_what_to_do() -> None:
    said = "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting"
    assert "ended in the middle of its work" in str(of_worker(said))
    assert "`max_records`" in str(of_worker(said))
    assert len(str(of_worker(said))) <= LONGEST
    assert of_worker("java.lang.IllegalStateException: something else") is None
