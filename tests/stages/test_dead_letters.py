"""A record with a fault is kept byte for byte; what is shown of it is the newest of each reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages import dead_letters
from lakehouse_ingest.stages.dead_letters import (
    COLUMNS,
    EXPLAINED,
    MEANINGS,
    SAMPLED,
    newest,
    samples,
)
from lakehouse_ingest.stages.records import Fault
from tests.stages.making import records_of

BYTES = st.none() | st.binary(max_size=20)
REASONS = st.sampled_from([*Reason])


def fault(reason: Reason, told: str = "told") -> Fault:
    return Fault(reason, "Ann Smith is no number", "shape", told)


class TestLetters:
    @given(st.lists(st.tuples(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=3), BYTES)), st.none() | REASONS)))
    def test_keep_every_byte_of_the_records_with_a_fault(
        self, made: list[tuple[bytes, bytes, list[tuple[str, bytes]], Reason]]
    ) -> None:
        records = records_of(
            [each[0] for each in made],
            [each[1] for each in made],
            [each[2] for each in made],
            offsets=[2**40 + 2 * row for row in range(len(made))],
            partition=7,
        )
        faults = {row: fault(each[3]) for row, each in reversed([*enumerate(made)]) if each[3]}
        found = dead_letters.letters(records, faults, "plant-7").to_pylist()
        assert found == [
            {
                "reason": str(each[3]),
                "detail": "Ann Smith is no number",
                "stage": "shape",
                "pipeline": "plant-7",
                "timestamp": records.rows["timestamp"][row].as_py(),
                "key": each[1],
                "value": each[0],
                "headers": [{"key": key, "value": value} for key, value in each[2]],
                "_source": {
                    "topic": "events",
                    "partition": 7,
                    "offset": 2**40 + 2 * row,
                    "index": 0,
                    "log": "abcdef123456",
                },
            }
            for row, each in enumerate(made)
            if each[3]
        ]

    def test_of_no_fault_are_none_with_the_same_columns(self) -> None:
        found = dead_letters.letters(records_of([b"{}"]), {}, "p")
        assert (found.num_rows, found.schema.names) == (0, [column.name for column in COLUMNS])

    def test_without_key_and_headers_have_none(self) -> None:
        (found,) = dead_letters.letters(records_of([None]), {0: fault(Reason.EMPTY)}, "p").to_pylist()
        assert (found["key"], found["value"], found["headers"]) == (None, None, None)


class TestSamples:
    def test_are_the_newest_of_each_reason(self) -> None:
        values = [b"a" * 600, b"b", None, b"d", b"e"]
        records = records_of(values, seconds=[50, 30, 40, 50, 60], offsets=[3, 4, 5, 6, 7])
        faults = {
            0: fault(Reason.BROKEN),
            1: fault(Reason.EMPTY),
            2: fault(Reason.EMPTY, "nothing"),
            3: fault(Reason.NO_TABLE),
        }
        found = samples(records, faults)
        assert {*found} == {Reason.BROKEN, Reason.EMPTY, Reason.NO_TABLE}
        assert found["broken_json"]["value"] == b"a" * SAMPLED
        assert found["empty_value"] == {
            "told": "nothing",
            "topic": "events",
            "partition": 0,
            "offset": 5,
            "timestamp": records.rows["timestamp"][2].as_py(),
            "value": None,
        }

    @given(st.lists(st.tuples(st.integers(0, 9), st.none() | REASONS), max_size=20), st.integers(1, 20))
    def test_of_several_tasks_are_those_of_all_records(self, made: list[tuple[int, Reason | None]], size: int) -> None:
        def found_in(part: list[tuple[int, Reason | None]]) -> dict[str, dead_letters.Sample]:
            records = records_of([b""] * len(part), seconds=[second for second, _ in part])
            return samples(records, {row: fault(reason) for row, (_, reason) in enumerate(part) if reason})

        whole, parts = found_in(made), [found_in(made[at : at + size]) for at in range(0, len(made), size)]
        assert {reason: each["timestamp"] for reason, each in newest(parts).items()} == {
            reason: each["timestamp"] for reason, each in whole.items()
        }
        for reason in {reason for _, reason in made if reason}:
            seconds = [second for second, each in made if each == reason]
            assert whole[reason]["timestamp"].second == max(seconds)

    def test_show_nothing_but_what_may_be_told(self) -> None:
        """The detail may quote the record."""
        found = samples(records_of([b"{}"]), {0: fault(Reason.WRONG_TYPE, "c0 is not long")})
        assert found["wrong_type"]["told"] == "c0 is not long"
        assert "Smith" not in str(found)


class TestReason:
    @pytest.mark.parametrize("reason", [*Reason])
    def test_is_explained(self, reason: Reason) -> None:
        assert all(EXPLAINED[reason])


class TestColumn:
    def test_has_a_meaning(self) -> None:
        assert [*MEANINGS] == [column.name for column in COLUMNS]
