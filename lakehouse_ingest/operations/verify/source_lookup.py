"""What the source holds of the offsets that no table has. It is asked only if the batch log does not explain them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_ingest.errors import LakehouseError
from lakehouse_ingest.operations.verify.missing_ranges import MissingRange
from lakehouse_ingest.operations.verify.offset_sets import Run
from lakehouse_ingest.records import Offsets, TopicPartition, is_same_topic
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.stages.sources.logs import Log, Logged

MOST_RUNS = 1_000  # of one range that are kept until they are listed

OpenSource = Callable[[Sequence[str]], Source]  # by topics


@dataclass
class SourceAnswer:
    """What the source says about offsets that no table holds."""

    there: int = 0  # records
    runs: list[Run] = field(default_factory=list)  # the first of these records
    gone: list[Run] = field(default_factory=list)  # where the source holds nothing any more
    gone_count: int = 0
    silent: int = 0  # offsets that could not be asked for
    last: int = -1  # record

    def found(self, offset: int) -> None:
        self.there, self.last = self.there + 1, offset
        if self.runs and self.runs[-1][1] + 1 == offset:
            self.runs[-1] = (self.runs[-1][0], offset)
        elif len(self.runs) < MOST_RUNS:
            self.runs.append((offset, offset))

    @property
    def ranges(self) -> list[MissingRange]:
        """The records as ranges; all records behind the first ranges are in one, with their count."""
        found = [MissingRange.of(run) for run in self.runs]
        more = self.there - sum(each.count for each in found)
        return [*found, MissingRange(found[-1].end, self.last + 1, more)] if more else found

    def past(self, run: Run) -> None:
        self.gone_count += run[1] - run[0] + 1
        if len(self.gone) < MOST_RUNS:
            self.gone.append(run)


class SourceLookup:
    """Opens the source at the first question, and asks nothing more about a topic that once gave no answer."""

    def __init__(self, open_source: OpenSource, group: str, ids: Mapping[str, str]) -> None:
        self._open, self._group, self._ids = open_source, group, ids
        self._logs: dict[str, tuple[Log, Offsets, Offsets]] = {}
        self.silent: dict[str, str] = {}  # why nothing more is asked, by topic
        self.unasked: Counter[str] = Counter()
        self.recreated: set[str] = set()  # topics that hold other records now

    def close(self) -> None:
        for log, _, _ in self._logs.values():
            log.__exit__()

    def ask(self, at: TopicPartition, gaps: Iterable[Run]) -> SourceAnswer:
        answer = SourceAnswer()
        for run in gaps:
            known = answer.there + answer.gone_count
            try:
                self._ask(at, run, answer)
            except LakehouseError as failure:
                self.silent.setdefault(at[0], str(failure))
                unasked = run[1] - run[0] + 1 - (answer.there + answer.gone_count - known)
                answer.silent += unasked
                self.unasked[at[0]] += unasked
        return answer

    def _ask(self, at: TopicPartition, run: Run, answer: SourceAnswer) -> None:
        log, low, high = self._log_of(at[0])
        if at not in high or at[0] in self.recreated:
            answer.past(run)
            return
        start, end = max(run[0], low[at]), min(run[1], high[at] - 1)
        if run[0] < start:
            answer.past((run[0], min(start - 1, run[1])))
        if start <= end:
            for offset in log.between(at, start, end):
                answer.found(offset)
        if end < run[1] and low[at] <= run[1]:
            answer.past((max(end + 1, run[0]), run[1]))

    def _log_of(self, topic: str) -> tuple[Log, Offsets, Offsets]:
        if topic in self.silent:
            raise LakehouseError(self.silent[topic])
        if topic not in self._logs:
            source = self._open([topic])
            if not isinstance(source, Logged):
                raise LakehouseError("this kind of source can't be asked for records that were read before")
            now, before = source.identity().topics.get(topic), self._ids.get(topic)
            if now and before and not is_same_topic(before, now):
                self.recreated.add(topic)
            bounds = source.bounds()
            self._logs[topic] = (source.looking_back(self._group), *bounds)
        return self._logs[topic]
