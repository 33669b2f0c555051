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


class TestDiskError:
    @pytest.mark.parametrize("said", [CHECKPOINT, SHUFFLE], ids=["checkpoint", "shuffle"])
    def test_of_spark_names_its_scratch_folder_and_the_remedy(self, said: str, tmp_path: Path) -> None:
        found = str(of_disk(FAILURE, said, tmp_path))
        assert f"Spark's scratch in {tmp_path} can't be written (" in found
        assert found.endswith("make room there, or set TMPDIR to a folder on another disk")

    def test_of_our_own_files_names_the_scratch_folder(self, tmp_path: Path) -> None:
        full = OSError(ENOSPC, "No space left on device")
        assert f"Spark's scratch in {tmp_path} can't be written (No space left" in str(
            of_disk(full, str(full), tmp_path)
        )
        gone = FileNotFoundError(ENOENT, "No such file or directory")
        assert of_disk(gone, str(gone), tmp_path) is None

    def test_without_a_stack_is_not_explained(self, tmp_path: Path) -> None:
        assert of_disk(FAILURE, "java.io.IOException: Disk quota exceeded", tmp_path) is None

    def test_of_a_deep_folder_stays_short(self, tmp_path: Path) -> None:
        found = str(of_disk(FAILURE, CHECKPOINT, tmp_path / ("deep" * 60)))
        assert len(found) <= LONGEST
        assert "TMPDIR" in found

    def test_is_not_suspected_behind_other_errors(self, tmp_path: Path) -> None:
        assert (
            of_disk(FAILURE, "java.lang.IllegalStateException: something else\n\tat org.apache.spark.X", tmp_path)
            is None
        )


class TestWorkerError:
    def test_of_a_worker_that_died_says_what_to_do(self) -> None:
        said = (
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting"
        )
        assert "ended in the middle of its work" in str(of_worker(said))
        assert "`max_records`" in str(of_worker(said))
        assert len(str(of_worker(said))) <= LONGEST
        assert of_worker("java.lang.IllegalStateException: something else") is None
