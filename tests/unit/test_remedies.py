"""What is done about each failure, by its type: it is tried again, or ends the stream. `errors` says it in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from errno import ENOSPC
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

import catalog
from catalog.errors import CatalogError
from lakehouse_ingest import errors
from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, Superseded, TableChanged, TryAgain
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.effects import RealWorld
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.retry import Retry, RetryBudget
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Connection
from lakehouse_ingest.tables.errors import explained
from telemetry import OFF

LIMIT_S, MANY = 600.0, 4


class Remedy(Enum):
    RETRY = auto()
    STOP = auto()


OURS: Mapping[type[LakehouseError], Remedy] = {
    errors.SettingsRefused: Remedy.STOP,
    errors.NeedsOperator: Remedy.STOP,
    errors.LedgerUnclear: Remedy.STOP,
    errors.SourceChanged: Remedy.STOP,
    errors.TableChanged: Remedy.STOP,
    errors.BadRecord: Remedy.STOP,
    errors.Superseded: Remedy.STOP,
    errors.TryAgain: Remedy.RETRY,
}
# Those of a commit come here only where the catalog, looked at again, could not settle them.
CATALOGS: Mapping[type[CatalogError], type[LakehouseError]] = {
    catalog.Unreachable: TryAgain,
    catalog.FilesUnreachable: TryAgain,
    catalog.FilesUnwritable: TryAgain,
    catalog.ClocksDiffer: TryAgain,
    catalog.OutcomeUnknown: TryAgain,
    catalog.Conflict: TryAgain,
    catalog.BranchGone: Superseded,
    catalog.BranchExists: TryAgain,
    catalog.Denied: SettingsRefused,
    catalog.NotLetIn: SettingsRefused,  # unless another token can be had: see `tables`
    catalog.FilesDenied: SettingsRefused,
    catalog.TableMissing: TableChanged,
    catalog.NamespaceMissing: NeedsOperator,
    catalog.NamespaceRefused: NeedsOperator,  # at a start of the settings: see `tables`
    catalog.RequestRefused: NeedsOperator,
    catalog.CodeRefused: NeedsOperator,
    catalog.BranchesRefused: SettingsRefused,
    catalog.MetadataMissing: NeedsOperator,
    catalog.FilesUnfit: TryAgain,  # the next start holds the table against the settings
    catalog.LayoutMoved: TryAgain,  # likewise
    catalog.FenceMoved: TryAgain,  # the next look at the table says whether a newer start has moved it
    catalog.TableReplaced: TableChanged,
    catalog.FormatUnwritable: NeedsOperator,
}
FOUND = {catalog.FileMissing}  # by who looks for it: an answer, not a failure
OTHERS: tuple[Exception, ...] = (
    PySparkException("x"),
    AnalysisException("x"),
    StreamingQueryException("x"),
    Py4JError("x"),
    Py4JNetworkError("x"),
    ConnectionError("x"),
    ConnectionResetError("x"),
    OSError(ENOSPC, "x"),
)


def below(kind: type[Any]) -> Iterator[type[Any]]:
    """Those of the same module; a test or a command may have more of its own."""
    for each in kind.__subclasses__():
        if each.__module__ == kind.__module__:
            yield each
            yield from below(each)


@dataclass
class Failing(Stream):
    """Its first start fails; the second one finds nothing to do."""

    failure: Exception = field(default_factory=TryAgain)
    starts: int = 0

    def start_once(self, budget: RetryBudget) -> bool:
        del budget
        self.starts += 1
        if self.starts == 1:
            raise self.failure
        self.stop.set()
        return False


def failing(scratch: Path, limit: float, failure: Exception) -> Failing:
    retry = {"first": 0.001, "limit": limit}
    settings = Settings.model_validate({"name": "t", "streams": [{"topics": ["t"]}], "retry": retry})
    spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None)))
    watch = Watch("t", OFF)
    world = RealWorld(Connection("http://127.0.0.1:9"), watch)
    return Failing(settings, settings.streams[0], spark, world, watch, scratch, RunOptions(), Event(), failure=failure)


class TestRetryBudget:
    """Its clock is the test's."""

    now = 0.0

    def budget(self) -> RetryBudget:
        return RetryBudget(1, LIMIT_S, lambda: self.now)

    def test_time_in_which_a_start_was_up_is_no_trying_in_vain(self) -> None:
        """A quiet topic whose broker is away for a moment now and then is not given up."""
        budget = self.budget()
        for _ in range(MANY):
            budget.begins()
            budget.is_up()
            self.now += 0.9 * LIMIT_S
            assert budget.failed(landed=False)

    def test_waits_grow_up_to_a_minute_and_end_with_the_limit(self) -> None:
        budget, waits = self.budget(), []
        while retry := budget.failed(landed=False):
            waits.append(retry.wait_s)
            self.now += retry.wait_s
            budget.begins()
            assert retry.attempt == len(waits) < 100
        assert waits[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert sum(waits) > LIMIT_S

    def test_a_batch_that_landed_begins_anew(self) -> None:
        budget = self.budget()
        for _ in range(3):
            assert budget.failed(landed=False)
        assert budget.failed(landed=True) == Retry(1, 1)
        assert budget.failed(landed=False) == Retry(2, 2)


def starts_after(failure: Exception, scratch: Path) -> int:
    """How often a stream starts; raises what ends it."""
    stream = failing(scratch, 5, failure)
    try:
        stream.run()
    finally:
        assert stream.starts <= 2
    return stream.starts


class TestFailure:
    def test_of_every_type_has_a_remedy(self) -> None:
        assert set(OURS) == set(below(LakehouseError))
        assert set(CATALOGS) | FOUND == set(below(CatalogError))

    @pytest.mark.parametrize("kind", OURS)
    def test_of_ours_is_retried_or_stops_the_stream(self, kind: type[LakehouseError], tmp_path: Path) -> None:
        if OURS[kind] is Remedy.RETRY:
            assert starts_after(kind("why"), tmp_path) == 2
        else:
            with pytest.raises(kind, match="why"):
                starts_after(kind("why"), tmp_path)

    @pytest.mark.parametrize("kind", CATALOGS)
    def test_of_a_catalog_becomes_one_of_ours(self, kind: type[CatalogError]) -> None:
        with pytest.raises(LakehouseError, match="why") as raised, explained():
            raise kind("why")
        assert isinstance(raised.value, CATALOGS[kind])
        assert OURS[CATALOGS[kind]] is (Remedy.RETRY if isinstance(raised.value, TryAgain) else Remedy.STOP)

    @pytest.mark.parametrize("failure", OTHERS, ids=lambda failure: type(failure).__name__)
    def test_of_spark_or_a_socket_is_retried(self, failure: Exception, tmp_path: Path) -> None:
        assert starts_after(failure, tmp_path) == 2

    def test_that_is_a_bug_is_not_retried(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError):
            starts_after(KeyError("why"), tmp_path)
