"""What Spark says of a disk, in a sentence that names which one, and what to do."""

from pathlib import Path

import pytest

from lakehouse_ingest.environment.spark_errors import of_disk
from lakehouse_ingest.errors import LONGEST

HADOOP = (
    "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n\tat org.apache.hadoop.fs.RawLocalFileSystem"
)
TABLES = f"""org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:785)
Caused by: java.io.IOException: No space left on device
{HADOOP}
\tat org.apache.iceberg.hadoop.HadoopStreams$HadoopPositionOutputStream.write(HadoopStreams.java:172)
\tat org.apache.spark.sql.execution.datasources.v2.WritingSparkTask.run(WriteToDataSourceV2Exec.scala:441)"""
CHECKPOINT = f"""Caused by: java.io.IOException: No space left on device
{HADOOP}
\tat org.apache.spark.sql.execution.streaming.CheckpointFileManager$RenameBasedFSDataOutputStream.close(X.scala:1)
\tat org.apache.iceberg.Nothing"""
SHUFFLE = """Caused by: java.io.FileNotFoundException: /tmp/x/blockmgr-1/0c/temp_shuffle_2 (Read-only file system)
\tat java.base/java.io.FileOutputStream.open0(Native Method)
\tat app//org.apache.spark.storage.DiskBlockObjectWriter.initialize(DiskBlockObjectWriter.scala:140)"""


@pytest.mark.parametrize("said", [CHECKPOINT, SHUFFLE], ids=["checkpoint", "shuffle"])
def test_what_spark_keeps_for_itself_lies_in_its_scratch(said: str, tmp_path: Path) -> None:
    found = str(of_disk(said, tmp_path))
    assert f"Spark's scratch in {tmp_path} can't be written (" in found
    assert found.endswith("make room there, or set TMPDIR to a folder on another disk")


def test_what_iceberg_writes_lies_in_the_warehouse(tmp_path: Path) -> None:
    found = str(of_disk(TABLES, tmp_path))
    assert found.startswith("the tables' files can't be written (No space left on device); make room in the warehouse")


def test_where_spark_says_it_in_its_own_words_first_the_frames_still_tell(tmp_path: Path) -> None:
    said = f"Query terminated: No space left on device\n\tat org.apache.spark.sql.Dataset.x(D.scala:1)\n{TABLES}"
    assert "the tables' files" in str(of_disk(said, tmp_path))


def test_without_frames_nobody_knows(tmp_path: Path) -> None:
    assert of_disk("java.io.IOException: Disk quota exceeded", tmp_path) is None


def test_however_deep_the_folder_the_sentence_is_short(tmp_path: Path) -> None:
    found = str(of_disk(CHECKPOINT, tmp_path / ("deep" * 60)))
    assert len(found) <= LONGEST
    assert "TMPDIR" in found


def test_what_is_no_disk_is_not_explained(tmp_path: Path) -> None:
    assert of_disk("java.lang.IllegalStateException: something else\n\tat org.apache.spark.X", tmp_path) is None
