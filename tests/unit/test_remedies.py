"""What is done about each failure, by its type: it is tried again, or ends the stream. `errors` says it in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

import catalog
from catalog.errors import CatalogError
from lakehouse_ingest import errors
from lakehouse_ingest.errors import LakehouseError, NeedsOperator, SettingsRefused, Superseded, TableChanged, TryAgain
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline import stream as streams
from lakehouse_ingest.pipeline.stream import Stream
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import Connection
from lakehouse_ingest.tables.errors import explained
from telemetry import OFF

LIMIT_S, MANY = 600.0, 4
Some = TypeVar("Some", bound=Stream)


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
    catalog.Refused: NeedsOperator,
    catalog.CodeRefused: NeedsOperator,
    catalog.BranchesRefused: SettingsRefused,
    catalog.MetadataMissing: NeedsOperator,
    catalog.FilesUnfit: TryAgain,  # the next start holds the table against the settings
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

    def _one_start(self) -> bool:
        self.starts += 1
        if self.starts == 1:
            raise self.failure
        self.stop.set()
        return False


@dataclass
class Standing(Stream):
    """Each start stands for most of the limit, and then something is away for a moment."""

    now: float = 0.0
    starts: int = 0

    def _one_start(self) -> bool:
        self.starts += 1
        if self.starts > MANY:
            self.stop.set()
            return False
        self._stands = self.now
        self.now += 0.9 * LIMIT_S
        raise TryAgain("away")


def stream_of(kind: type[Some], scratch: Path, limit: float, **more: Any) -> Some:
    retry = {"first": 0.001, "limit": limit}
    settings = Settings.model_validate({"name": "t", "streams": [{"topics": ["t"]}], "retry": retry})
    spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None)))
    return kind(
        settings,
        settings.streams[0],
        spark,
        Connection("http://127.0.0.1:9"),
        Watch("t", OFF),
        scratch,
        drain=False,
        accept_changes=False,
        stop=Event(),
        **more,
    )


def test_what_a_start_has_stood_is_no_trying_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet topic whose broker is away for a moment now and then is not given up."""
    stream = stream_of(Standing, tmp_path, LIMIT_S)
    monkeypatch.setattr(streams, "monotonic", lambda: stream.now)
    stream.run()
    assert stream.starts == MANY + 1


def starts_after(failure: Exception, scratch: Path) -> int:
    """How often a stream starts; raises what ends it."""
    stream = stream_of(Failing, scratch, 5, failure=failure)
    try:
        stream.run()
    finally:
        assert stream.starts <= 2
    return stream.starts


def test_no_type_is_forgotten() -> None:
    assert set(OURS) == set(below(LakehouseError))
    assert set(CATALOGS) | FOUND == set(below(CatalogError))


@pytest.mark.parametrize("kind", OURS)
def test_our_own(kind: type[LakehouseError], tmp_path: Path) -> None:
    if OURS[kind] is Remedy.RETRY:
        assert starts_after(kind("why"), tmp_path) == 2
    else:
        with pytest.raises(kind, match="why"):
            starts_after(kind("why"), tmp_path)


@pytest.mark.parametrize("kind", CATALOGS)
def test_a_catalogs(kind: type[CatalogError]) -> None:
    with pytest.raises(LakehouseError, match="why") as raised, explained():
        raise kind("why")
    assert isinstance(raised.value, CATALOGS[kind])
    assert OURS[CATALOGS[kind]] is (Remedy.RETRY if isinstance(raised.value, TryAgain) else Remedy.STOP)


@pytest.mark.parametrize("failure", OTHERS, ids=lambda failure: type(failure).__name__)
def test_what_spark_and_sockets_raise_is_tried_again(failure: Exception, tmp_path: Path) -> None:
    assert starts_after(failure, tmp_path) == 2


def test_a_bug_is_nobodys_weather(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        starts_after(KeyError("why"), tmp_path)
