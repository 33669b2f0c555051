"""What a task raises reaches the driver as text, and is the same error there."""

import pickle
import traceback

import pytest

from lakehouse_ingest.errors import LakehouseError, SettingsRefused, SourceChanged, TryAgain
from lakehouse_ingest.stages.arrow.task_errors import raised

AROUND = """An error occurred while calling o71.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times:
 org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "task.py", line 7, in task
{said}
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


def as_spark_says(failure: Exception) -> str:
    return AROUND.format(said="".join(traceback.format_exception(failure)))


class TestErrorOfATask:
    @pytest.mark.parametrize("kind", [TryAgain, SettingsRefused, SourceChanged])
    def test_is_found_with_its_message(self, kind: type[LakehouseError]) -> None:
        sentence = "no answer from `source.brokers` at a:1: lakehouse_ingest.errors.Other: nothing; fix it"
        found = raised(as_spark_says(kind(sentence)))
        assert type(found) is kind
        assert str(found) == sentence

    def test_is_the_last_one_that_was_raised(self) -> None:
        last = SettingsRefused("last")
        last.__cause__ = TryAgain("first")
        found = raised(as_spark_says(last))
        assert type(found) is SettingsRefused
        assert str(found) == "last"

    def test_of_another_kind_is_not_ours(self) -> None:
        assert raised(as_spark_says(ValueError("lakehouse_ingest"))) is None
        assert raised("lakehouse_ingest.errors.fitted: no class\nlakehouse_ingest.errors.Nothing: x") is None

    def test_can_be_pickled(self) -> None:
        again = pickle.loads(pickle.dumps(TryAgain("x")))
        assert (type(again), str(again)) == (TryAgain, "x")
