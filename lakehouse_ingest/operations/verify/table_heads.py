"""The heads of a stream's tables: which there are, and whether every file is referred to once and is there."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.ledger import marks as ledger
from lakehouse_ingest.ledger.keys import MARK, TOKEN
from lakehouse_ingest.operations.verify.findings import Findings, Kind
from lakehouse_ingest.operations.verify.row_scan import AT_ONCE, BOUNDS, Holder
from lakehouse_ingest.records import Offsets
from lakehouse_ingest.tables import FileMissing, HeadFile, Known, Lake, Pinned, Registered


@dataclass(frozen=True)
class Names:
    """The namespace, and the tables in it that are none of events."""

    namespace: str
    record: str
    dead: str


@dataclass(frozen=True)
class Heads:
    """What was there at one moment; the record was pinned before the tables that it speaks of."""

    record: Pinned | None
    tables: Mapping[str, Pinned | None]  # None: dropped
    registered: Mapping[str, Registered]
    unread: Mapping[str, str] = field(default_factory=dict)  # that may be of them, and why nobody can tell

    @property
    def there(self) -> list[Pinned]:
        return [each for each in self.tables.values() if each]


def heads(lake: Lake, names: Names) -> Heads:
    """Those that the batch record has registered; where it is gone, all that bear a mark of this stream."""
    record = lake.pin(names.record)
    known = Known(lake.registered(names.record) if record else {})
    if not known.tables and lake.has_namespace(names.namespace):
        known = lake.known_in(names.namespace)
    registered = {name: each for name, each in known.tables.items() if name != names.record}
    unread = {name: str(failure) for name, failure in known.unread.items()}
    return Heads(record, {name: lake.pin(name) for name in sorted(registered)}, registered, unread)


@dataclass
class Inspector:
    """Looks at one set of heads, and tells what is wrong with them."""

    lake: Lake
    pipeline: str
    names: Names
    heads: Heads
    findings: Findings
    blind: bool = False  # what a table holds could not be told

    def holders(self) -> list[Holder]:
        for name, pinned in self.heads.tables.items():
            if not self.heads.registered[name].uuid:
                continue  # somebody has said that it is to be taken as it is
            if pinned is None or pinned.state.uuid != self.heads.registered[name].uuid:
                what = "was replaced by another of its name" if pinned else "was dropped"
                self.findings.add(
                    Kind.TABLE_GONE,
                    f"the table {name}, which this pipeline fed, {what}; restore it, or see `lakehouse-ingest recover`",
                    tables=(name,),
                )
        for name, why in self.heads.unread.items():
            self.blind = True
            said = f"{name} can't be read, and may hold rows of this pipeline: {why}"
            self.findings.add(Kind.UNKNOWN, said, tables=(name,))
        found = []
        for pinned in self.heads.there:
            try:
                found.append(self._holder(pinned))
            except FileMissing as missing:  # a manifest: what it refers to may be there
                self.blind = True
                self.missing(pinned, missing.path)
            except NeedsOperator as failure:
                self.unread(pinned, str(failure))
        return found

    def _holder(self, pinned: Pinned) -> Holder:
        """With the files that may hold rows of ours: what another pipeline's landing added is its own."""
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
        return Holder(pinned, own, self.pipeline if name == self.names.dead else None)

    def _twice(self, name: str, files: list[HeadFile]) -> None:
        found: dict[str, list[HeadFile]] = {}
        for file in files:
            found.setdefault(file.path, []).append(file)
        for path, references in found.items():
            if len(references) > 1:
                self.findings.add(
                    Kind.FILE_TWICE,
                    f"{name} refers to one data file {len(references)} times, and its rows are read as often; roll the"
                    " commit back that added it again",
                    tables=(name,),
                    count=references[0].rows * (len(references) - 1),
                    snapshots=tuple(dict.fromkeys(each.snapshot for each in references)),
                    files=(path,),
                )

    def missing(self, pinned: Pinned, path: str, file: HeadFile | None = None) -> None:
        """A file that the store does not have. Somebody may have rewritten the table since it was pinned."""
        name = pinned.state.name
        rows, snapshots = (file.rows, (file.snapshot,)) if file else (0, ())
        if self._needs(name, pinned, path):
            self.findings.add(
                Kind.FILE_MISSING,
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
            Kind.UNKNOWN,
            f"{name} was rewritten while it was read, and a file is gone that it needs no more; verify again",
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
        self.blind |= pinned is not self.heads.record
        self.findings.add(
            Kind.UNKNOWN,
            f"{pinned.state.name} can't be read whole, so its rows can't be counted: {why}",
            tables=(pinned.state.name,),
            snapshots=(file.snapshot,) if file else (),
            files=(file.path,) if file else (),
        )

    def is_shared(self, name: str, ours: Offsets) -> bool:
        """Whether another pipeline feeds the table from partitions of ours, by commits nobody can tell any more."""
        pinned = self.heads.tables.get(name)
        if pinned is None or name == self.names.dead:
            return False
        carried = self.lake.seen(pinned.state).carried
        others = [key.removeprefix(MARK) for key in carried if key.startswith(MARK)]
        marks = [ledger.from_summary(carried, other) for other in others if other != self.pipeline]
        return not pinned.state.history_complete() and any(mark and ours.keys() & mark.next.keys() for mark in marks)
