"""The suites for plug-ins find what is wrong: each of these breaks one promise, and the check of that promise fails."""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehouse_ingest.errors import NeedsOperator, TryAgain
from lakehouse_ingest.records import Offsets, Reason, SourceIdentity
from lakehouse_ingest.schema.columns import ColumnPlan
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.stages.formats import ColumnarFormat, chosen
from lakehouse_ingest.stages.records import RECORD_SCHEMA, Fault, Records, Share, Tree
from lakehouse_ingest.stages.sources import Source
from lakehouse_ingest.testing import formats, sources
from lakehouse_ingest.testing.formats import Samples
from lakehouse_ingest.testing.sources import GAP, Filled, Value
from tests.conformance.test_formats import SAMPLES
from tests.services.plant_extras import Lines

JSON = cast("ColumnarFormat", chosen("json"))
LINES = Samples(
    sound=[(b"kind=door;room=1", {"kind": "door", "room": "1"}), (b"kind=wall", {"kind": "wall"})],
    broken=[(None, Reason.EMPTY), (b"a", Reason.BROKEN), (b"\xff=1", Reason.NOT_TEXT)],
    misfit=(b"room=one", "room", "long"),
)


# -- formats ----------------------------------------------------------------------------------------------


class Raises(Lines):
    def tree(self, value: bytes | None) -> Tree | Fault:
        assert value != b"\x00"
        return super().tree(value)


class DropsFields(Lines):
    def tree(self, value: bytes | None) -> Tree | Fault:
        found = super().tree(value)
        return found if isinstance(found, Fault) else dict(list(found.items())[:1])


class ForgivesBroken(Lines):
    def tree(self, value: bytes | None) -> Tree | Fault:
        return {} if value == b"a" else super().tree(value)


class SaysNothing(Lines):
    def tree(self, value: bytes | None) -> Tree | Fault:
        found = super().tree(value)
        return replace(found, detail="") if isinstance(found, Fault) else found


class TellsTooFew(Lines):
    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        return super().field(values.drop_null(), path)


class TellsOthers(Lines):
    def field(self, values: pa.BinaryArray, path: Sequence[str]) -> pa.StringArray:
        return pc.coalesce(super().field(values, path), pa.scalar("?"))


class Hasty:
    """JSON whose fast decoder is wrong in some way."""

    tree, field = staticmethod(JSON.tree), staticmethod(JSON.field)

    def columns(self, values: pa.BinaryArray, columns: Sequence[ColumnPlan], *, drops: bool = False) -> Any:
        return self.spoilt(*JSON.columns(values, columns, drops=drops))

    def spoilt(self, data: Any, sound: Any) -> Any:
        return data, sound


class CallsAllSound(Hasty):
    def spoilt(self, data: Any, sound: Any) -> Any:
        return data, pa.array([True] * len(sound), pa.bool_())


class LosesRows(Hasty):
    def spoilt(self, data: Any, sound: Any) -> Any:
        return data.filter(sound), sound


class MixesRows(Hasty):
    def spoilt(self, data: Any, sound: Any) -> Any:
        return data.take(pa.array(range(len(data) - 1, -1, -1), pa.int64())), sound


class TestFormat:
    @pytest.mark.parametrize(
        ("form", "check"),
        [
            (Raises(), formats.nothing_raises_whatever_the_bytes_are),
            (DropsFields(), formats.sound_records_have_their_fields_and_no_fault),
            (ForgivesBroken(), formats.broken_records_have_their_reason_and_their_neighbours_none),
            (ForgivesBroken(), formats.a_record_without_a_table_says_first_that_it_is_broken),
            (SaysNothing(), formats.broken_records_have_their_reason_and_their_neighbours_none),
            (TellsTooFew(), formats.a_field_is_told_as_text),
            (TellsOthers(), formats.a_field_is_told_as_text),
        ],
        ids=lambda each: each.__name__ if callable(each) else type(each).__name__,
    )
    def test_with_a_mistake_is_found(self, form: Lines, check: formats.Check) -> None:
        with pytest.raises(AssertionError):
            check(form, LINES)

    @pytest.mark.parametrize("form", [CallsAllSound(), LosesRows(), MixesRows()], ids=lambda each: type(each).__name__)
    def test_with_a_wrong_fast_decoder_is_found(self, form: Hasty) -> None:
        with pytest.raises(AssertionError):
            formats.columns_and_the_exact_decoder_agree(form, SAMPLES["json"])

    def test_of_another_name_is_found(self) -> None:
        with pytest.raises(AssertionError, match="another process finds"):
            formats.another_process_finds_it_by_its_name(Lines(), replace(LINES, name="json"))

    @pytest.mark.parametrize("check", formats.CHECKS, ids=lambda check: check.__name__)
    def test_without_a_mistake_passes(self, check: formats.Check) -> None:
        check(Lines(), LINES)
        if check is not formats.another_process_finds_it_by_its_name:
            check(Hasty(), SAMPLES["json"])


# -- sources ----------------------------------------------------------------------------------------------

TOPIC = "events"
FIRST = 7  # the first offset that is there
VALUES: Mapping[int, Sequence[Value]] = {0: [b"a", None, b"", b"d", GAP], 1: [b"e", b"f", b"g"], 2: []}


@dataclass
class MemoryReader:
    """Reads what is above. A mistake is named."""

    mistake: str = ""

    def read(self, share: Share) -> Iterator[Records]:
        return self.read_all([share])

    def read_all(self, shares: Sequence[Share]) -> Iterator[Records]:
        for share in shares:
            if share.topic != TOPIC:
                raise TryAgain(f"the topic {share.topic} is not there")
            yield from self._share(share)
        if self.mistake == "is spent":
            self.mistake = "reads nothing"

    def _share(self, share: Share) -> Iterator[Records]:
        values = VALUES[share.partition]
        there = [(FIRST + at, value) for at, value in enumerate(values) if value is not GAP]
        found = [(offset, value) for offset, value in there if share.start <= offset < share.end]
        if share.end > FIRST + len(values) and self.mistake != "ends early":
            raise NeedsOperator("beyond") if self.mistake == "other error" else TryAgain("beyond the log")
        match self.mistake:
            case "reads nothing":
                found = []
            case "drops empty":
                found = [(offset, value) for offset, value in found if value]
            case "reads on" if found:
                found = [(offset, value) for offset, value in there if share.start <= offset <= share.end]
            case "doubles":
                found += found[:1]
            case "mixes":
                found.reverse()
            case "other log":
                share = replace(share, log="")
        if found:
            columns = [[each[0] for each in found], [dt.datetime.now(dt.UTC)] * len(found), [None] * len(found)]
            columns += [[each[1] for each in found], [None] * len(found)]
            names = ["offset", "timestamp", "key", "value", "headers"]
            rows = pa.RecordBatch.from_pydict(dict(zip(names, columns, strict=True)), RECORD_SCHEMA)
            yield Records(share.topic, share.partition, share.log, rows)


class Memory:
    mistake = ""

    def __init__(self, settings: SourceSettings, topics: Sequence[str]) -> None:
        self._topics, self._only = topics, settings.partitions.get(TOPIC)

    def identity(self) -> SourceIdentity:
        return SourceIdentity("memory", dict.fromkeys(self._topics, "1"))

    def matching(self, pattern: str) -> list[str]:
        return [each for each in (TOPIC,) if re.fullmatch(pattern, each)]

    def bounds(self) -> tuple[Offsets, Offsets]:
        ends = self.ends()
        return dict.fromkeys(ends, FIRST), ends

    def ends(self) -> Offsets:
        if missing := [each for each in self._topics if each != TOPIC]:
            raise TryAgain(f"the topic {missing[0]} is not there")
        return {(TOPIC, at): FIRST + len(VALUES[at]) for at in (VALUES if self._only is None else self._only)}

    def since(self, moment: dt.datetime) -> Offsets:
        return {at: FIRST for at, end in self.ends().items() if end > FIRST and moment < dt.datetime.now(dt.UTC)}

    def reader(self, group: str, epoch: int) -> MemoryReader:  # noqa: ARG002
        return MemoryReader(self.mistake)

    def publish(self, offsets: Offsets, group: str) -> None: ...

    def probe(self, group: str) -> str:
        return f"{group} may read {TOPIC}"


def filled(mistake: str = "") -> Filled:
    kind: type[Source] = type("WithMistake", (Memory,), {"mistake": mistake})
    return Filled(kind, SourceSettings(), TOPIC, VALUES)


class TestSource:
    @pytest.mark.parametrize("check", sources.CHECKS, ids=lambda check: check.__name__)
    def test_without_a_mistake_passes(self, check: Callable[[Filled], None]) -> None:
        assert isinstance(filled().source, Source)
        check(filled())

    @pytest.mark.parametrize(
        ("mistake", "check"),
        [
            ("drops empty", sources.every_record_is_read_once_and_as_it_was),
            ("reads on", sources.tasks_follow_one_another_and_hold_their_shares),
            ("doubles", sources.every_record_is_read_once_and_as_it_was),
            ("mixes", sources.every_record_is_read_once_and_as_it_was),
            ("other log", sources.every_record_is_read_once_and_as_it_was),
            ("is spent", sources.a_reading_that_is_given_up_leaves_nothing_behind),
            ("ends early", sources.what_the_log_does_not_hold_is_an_error_and_no_end),
            ("other error", sources.what_the_log_does_not_hold_is_an_error_and_no_end),
        ],
    )
    def test_with_a_mistake_is_found(self, mistake: str, check: Callable[[Filled], None]) -> None:
        with pytest.raises(AssertionError):
            check(filled(mistake))
