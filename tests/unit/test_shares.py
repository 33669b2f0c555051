"""Partitions that go from one pipeline to another: taken up where they were left, or not at all."""

from typing import Any

import pytest

from lakehouse_ingest.errors import LakehouseError, SettingsRefused
from lakehouse_ingest.ledger.keys import SETTINGS
from lakehouse_ingest.ledger.marks import Mark, highest, to_summary
from lakehouse_ingest.records import Offsets, SourceIdentity, Token
from lakehouse_ingest.resume import shared_partitions
from lakehouse_ingest.resume.blockers import SourceNow
from lakehouse_ingest.resume.setting_changes import as_text
from lakehouse_ingest.settings import SourceSettings
from lakehouse_ingest.tables import Position

IDENTITY = SourceIdentity("cluster-1", {"t": "id-1"})


def at(**offsets: int) -> dict[tuple[str, int], int]:
    """`p2=40`."""
    return {("t", int(name[1:])): offset for name, offset in offsets.items()}


def carried(
    held: Offsets, complete: Offsets, stated: list[int] | None, *, source: SourceIdentity = IDENTITY, **meant: Any
) -> dict[str, str]:
    """What the pipeline `other` leaves in a commit, with the settings of its last start."""
    mark = Mark(Token("other", 1, 1, 1), source, {}, held, complete)
    settings = {"topics": ["t"], "source.partitions": {"t": stated} if stated else {}, **meant}
    return {**to_summary(mark, {}), f"{SETTINGS}other": as_text(settings)}


def place(name: str, summary: dict[str, str], own: Offsets | None = None) -> Position:
    mark = Mark(Token("own", 1, 1, 1), IDENTITY, {}, own, own) if own is not None else None
    return Position(name, "branch", 1, mark, summary, known=True)


def taken(
    summary: dict[str, str],
    reads: list[int],
    done: Offsets | None = None,
    *,
    noted: dict[str, str] | None = None,
    **source: Any,
) -> Offsets:
    """Of a start that reads these partitions, of which the batch record and one table know something."""
    settings = SourceSettings.model_validate({"partitions": {"t": reads}, **source})
    now = SourceNow(IDENTITY, {("t", n): 0 for n in reads}, {("t", n): 100 for n in reads})
    record = place("record", noted or summary)
    return shared_partitions.taken_over("own", record, [place("ns.events", summary)], now, done or {}, settings)


LEFT = carried(at(p2=40, p3=9), at(p2=40, p3=9), [3])  # it was at 40 when it left partition 2


class TestPartitionsOfAnotherPipeline:
    def test_are_taken_over_where_it_left_them(self) -> None:
        assert taken(LEFT, [0, 2]) == at(p2=40)
        assert taken(LEFT, [0, 2], at(p2=40)) == {}, "it has taken it over already"
        assert taken(LEFT, [0, 2], at(p2=90)) == {}

    def test_are_refused_while_it_reads_them(self) -> None:
        for stated in ([2, 3], None):
            with pytest.raises(SettingsRefused, match=r"pipeline other reads partition 2 of topic t into ns.events"):
                taken(carried(at(p2=40, p3=9), at(p2=40, p3=9), stated), [0, 2])
        assert taken(carried(at(p2=40), at(p2=40), None, topics=["u"]), [2]) == at(p2=40), "it reads another topic now"
        without_settings = {key: text for key, text in LEFT.items() if not key.startswith(SETTINGS)}
        with pytest.raises(SettingsRefused, match="reads partition 2"):
            taken(without_settings, [2])

    def test_are_refused_in_the_middle_of_a_batch(self) -> None:
        ahead = carried(at(p2=50), at(p2=40), [3])
        with pytest.raises(LakehouseError, match="middle of a batch"):
            taken(ahead, [2], noted=carried(at(p2=40), at(p2=40), [3]))
        assert taken(ahead, [2], noted=carried(at(p2=50), at(p2=40), [3])) == at(p2=50), (
            "the record knows that it is done"
        )

    def test_are_refused_if_they_went_on_there(self) -> None:
        with pytest.raises(SettingsRefused, match="went on in the pipeline other"):
            taken(LEFT, [2], at(p2=30))

    def test_are_refused_beyond_what_the_source_holds(self) -> None:
        with pytest.raises(LakehouseError, match="up to 140, and it holds 0 to 99"):
            taken(carried(at(p2=140), at(p2=140), [3]), [2])

    def test_are_not_looked_up_if_the_start_offset_is_set(self) -> None:
        reading = carried(at(p2=40), at(p2=40), [2])
        assert taken(reading, [2], start={"t": {2: 40}}) == {}

    @pytest.mark.parametrize(
        "other", [SourceIdentity("cluster-2", {"t": "id-1"}), SourceIdentity("cluster-1", {"t": "x"})]
    )
    def test_are_ignored_in_another_log(self, other: SourceIdentity) -> None:
        assert taken(carried(at(p2=40), at(p2=40), [2], source=other), [2]) == {}

    def test_are_not_looked_up_if_no_partitions_are_set(self) -> None:
        assert taken(carried(at(p2=40), at(p2=40), None), [2], partitions={}) == {}

    def test_are_refused_in_short_sentences(self) -> None:
        behind = carried(at(p2=40), at(p2=40), [3])
        longest: list[tuple[dict[str, str], Offsets]] = [
            (carried(at(p2=40), at(p2=40), [2]), {}),
            (carried(at(p2=50), at(p2=40), [3]), {}),
            (LEFT, at(p2=30)),
            (carried(at(p2=140), at(p2=140), [3]), {}),
        ]
        for summary, done in longest:
            with pytest.raises(LakehouseError) as refusal:
                taken(summary, [2], done, noted=behind if summary is longest[1][0] else None)
            assert len(str(refusal.value)) <= 200


class TestPartitionsLeftOut:
    def test_keep_their_offsets_and_are_refused_in_the_middle_of_a_batch(self) -> None:
        now = SourceNow(IDENTITY, at(p0=0), at(p0=100))
        record, done = place("record", {}, at(p0=9, p2=40)), {**at(p0=9, p2=40), ("gone", 0): 3}
        assert shared_partitions.left(record, [place("t", {}, at(p2=30))], now, done) == at(p2=40)
        with pytest.raises(SettingsRefused, match=r"leaves out partition 2 of topic t in the middle"):
            shared_partitions.left(record, [place("t", {}, at(p2=50))], now, highest([done]))
