"""The heads of a stream's tables: which tables there are, and whether each of their files is there, once."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import MARK, TOKEN
from lakehouse_ingest.operations.verify.findings import FindingKind, Findings
from lakehouse_ingest.operations.verify.row_scan import AT_ONCE, BOUNDS, ScannedTable
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.tables import FileMissing, HeadFile, Known, Pinned, PipelineTables, Registered


@dataclass(frozen=True)
class TableNames:
    """The namespace, and its tables that hold no events."""

    namespace: str
    batch_log: str
    dead: str


@dataclass(frozen=True)
class TableHeads:
    """What was there at one moment. The batch log was pinned before the tables that it speaks of."""

    batch_log: Pinned | None
    tables: Mapping[str, Pinned | None]  # None: dropped
    registered: Mapping[str, Registered]
    unread: Mapping[str, str] = field(default_factory=dict)  # tables that can't be read and may be of this stream: why

    @property
    def there(self) -> list[Pinned]:
        return [each for each in self.tables.values() if each]


def heads(lake: PipelineTables, names: TableNames) -> TableHeads:
    """The tables that the batch log has registered. If it is gone: all tables with a mark of this stream."""
    batch_log = lake.pin(names.batch_log)
    known = Known(lake.registered(names.batch_log) if batch_log else {})
    if not known.tables and lake.has_namespace(names.namespace):
        known = lake.known_in(names.namespace)
    registered = {name: each for name, each in known.tables.items() if name != names.batch_log}
    unread = {name: str(failure) for name, failure in known.unread.items()}
    return TableHeads(batch_log, {name: lake.pin(name) for name in sorted(registered)}, registered, unread)


@dataclass
class HeadInspector:
    """Looks at one set of heads, and adds what is wrong with them to the findings."""

    lake: PipelineTables
    pipeline: str
    names: TableNames
    heads: TableHeads
    findings: Findings
    blind: bool = False  # a table could not be read

    def tables(self) -> list[ScannedTable]:
        for name, pinned in self.heads.tables.items():
            if not self.heads.registered[name].uuid:
                continue  # a person has decided to take the table as it is
            if pinned is None or pinned.state.uuid != self.heads.registered[name].uuid:
                what = "was replaced by another one of its name" if pinned else "was dropped"
                self.findings.add(
                    FindingKind.TABLE_GONE,
                    f"the table {name}, which this pipeline fed, {what}; restore it, or see `lakehouse-ingest recover`",
                    tables=(name,),
                )
        for name, why in self.heads.unread.items():
            self.blind = True
            said = f"{name} can't be read, and may hold rows of this pipeline: {why}"
            self.findings.add(FindingKind.UNKNOWN, said, tables=(name,))
        found = []
        for pinned in self.heads.there:
            try:
                found.append(self._scanned(pinned))
            except FileMissing as missing:  # it is a manifest; the files that it lists may still be there
                self.blind = True
                self.missing(pinned, missing.path)
            except NeedsOperator as failure:
                self.unread(pinned, str(failure))
        return found

    def _scanned(self, pinned: Pinned) -> ScannedTable:
        """The table with the files that may hold our rows. Files that another pipeline committed hold none."""
        name, snapshots = pinned.state.name, pinned.state.snapshots
        files = self.lake.files_of(pinned, BOUNDS)
        self._twice(name, files)
        own: list[HeadFile] = []
        others: list[HeadFile] = []
        for file in files:
            token = snapshots[file.snapshot].summary.get(TOKEN, "") if file.snapshot in snapshots else ""
            (own if not token or token.rsplit("/", 3)[0] == self.pipeline else others).append(file)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            there = threads.map(lambda file: self.lake.has_file(pinned, file.path), others)
            for file in (file for file, is_there in zip(others, there, strict=True) if not is_there):
                self.missing(pinned, file.path, file)
        return ScannedTable(pinned, own, self.pipeline if name == self.names.dead else None)

    def _twice(self, name: str, files: list[HeadFile]) -> None:
        found: dict[str, list[HeadFile]] = {}
        for file in files:
            found.setdefault(file.path, []).append(file)
        for path, references in found.items():
            if len(references) > 1:
                self.findings.add(
                    FindingKind.FILE_TWICE,
                    f"{name} refers to one data file {len(references)} times, and its rows are read as often; roll the"
                    " commit back that added it again",
                    tables=(name,),
                    count=references[0].rows * (len(references) - 1),
                    snapshots=tuple(dict.fromkeys(each.snapshot for each in references)),
                    files=(path,),
                )

    def missing(self, pinned: Pinned, path: str, file: HeadFile | None = None) -> None:
        """Reports a file that the store lacks, unless another writer has replaced it since the table was pinned."""
        name = pinned.state.name
        rows, snapshots = (file.rows, (file.snapshot,)) if file else (0, ())
        if self._needs(name, pinned, path):
            self.findings.add(
                FindingKind.FILE_MISSING,
                f"{name} refers to a file that its store does not have; restore it from a copy, or fill a new"
                " table under another `name`",
                tables=(name,),
                count=rows,
                snapshots=snapshots,
                files=(path,),
            )
            return
        self.blind = True
        self.findings.add(
            FindingKind.UNKNOWN,
            f"{name} was rewritten while it was read, so a file of it is gone, which it no longer needs; verify again",
            tables=(name,),
            count=rows,
            snapshots=snapshots,
            files=(path,),
        )

    def _needs(self, name: str, pinned: Pinned, path: str) -> bool:
        now = self.lake.pin(name)
        if now is None or now.state.main == pinned.state.main:
            return True
        try:
            return any(file.path == path for file in self.lake.files_of(now, ()))
        except FileMissing:
            return True

    def unread(self, pinned: Pinned, why: str, file: HeadFile | None = None) -> None:
        self.blind |= pinned is not self.heads.batch_log
        self.findings.add(
            FindingKind.UNKNOWN,
            f"{pinned.state.name} can't be read completely, so its rows can't be counted: {why}",
            tables=(pinned.state.name,),
            snapshots=(file.snapshot,) if file else (),
            files=(file.path,) if file else (),
        )

    def is_shared(self, name: str, ours: Offsets) -> bool:
        """Whether another pipeline feeds the table from partitions of ours, by commits that were expired."""
        pinned = self.heads.tables.get(name)
        if pinned is None or name == self.names.dead:
            return False
        carried = self.lake.seen(pinned.state).carried
        others = [key.removeprefix(MARK) for key in carried if key.startswith(MARK)]
        marks = [ledger.from_summary(carried, other) for other in others if other != self.pipeline]
        return not pinned.state.history_complete() and any(mark and ours.keys() & mark.next.keys() for mark in marks)
