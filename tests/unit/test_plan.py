"""What `plan` shows of what was found, for people and for machines, and the code that it ends with."""

import io
import json
from typing import Any

import pytest
from rich.console import Console, Group

from catalog import Column, Foreseen, Partition, TableState
from lakehouse_ingest.cli.verbs import plan
from lakehouse_ingest.errors import LakehouseError, SettingsRefused, TableChanged, TryAgain
from lakehouse_ingest.pipeline.dry_run import Example, Foresight, Outlook, Seen, Writing, files_an_hour
from lakehouse_ingest.settings import StreamSettings
from lakehouse_ingest.stages.tally import Tally


def state(name: str = "iot.sensors", *columns: Column, **others: Any) -> TableState:
    plain: dict[str, Any] = {
        "uuid": "u", "location": "", "format_version": 2, "schema_id": 0, "partitions": (), "sort": (),
        "properties": {}, "refs": {}, "snapshots": {}, "metadata_location": "",
    }  # fmt: skip
    return TableState(name=name, columns=columns or (Column("n", "long"),), **{**plain, **others})


def outlook(refusal: LakehouseError | None = None, **counts: int) -> Outlook:
    tally = Tally({("sensors", 0): counts}, 0, 10_000)
    seen = Seen(sum(counts.values()), 1, tally, {"iot.sensors": Writing(counts.get("landed", 0), 1)})
    seen.examples = {"wrong_type": Example("sensors", 0, 17, "n: one is not long")}
    return Outlook("sensors", seen, 100, ("iot.sensors",), {"iot.sensors": 720.0}, refusal)


def foresight(*tables: Foreseen, namespaces: tuple[str, ...] = (), **stream: Any) -> Foresight:
    return Foresight(namespaces, tables, {"iot.sensors": ("it has format version 3",)}, [outlook(**stream)])


def shown(found: Foresight) -> str:
    text = io.StringIO()
    Console(file=text, width=200, highlight=False).print(Group(*plan._shown(found)))
    return text.getvalue()


MADE = Foreseen(None, state(partitions=(Partition("n", "bucket[4]"),), properties={"owner": "me"}))
GROWN = Foreseen(state(), state("iot.sensors", Column("n", "long"), Column("note", "string")))
SAME = Foreseen(state(), state(properties={"lakehouse.table.p.iot.sensors": "{}"}))


class TestShownTable:
    def test_that_would_be_created_is_complete(self) -> None:
        said = shown(foresight(MADE, namespaces=("iot",), landed=40))
        for line in ("+ namespace iot", "+ table iot.sensors", "+ n long", "partitions [bucket(4, n)]", "owner = me"):
            assert line in said
        assert "40 of 100 records looked at, a sample: what comes later may change more" in said
        assert "about 720 files an hour, estimated" in said
        assert "1 table would be made, 0 changed" in said

    def test_that_exists_has_its_changes_and_its_dead_letters(self) -> None:
        said = shown(foresight(GROWN, landed=98, wrong_type=2))
        for line in (
            "~ table iot.sensors",
            "+ note string",
            "it has format version 3",
            "98 would land, 2 be dead letters",
        ):
            assert line in said
        assert "wrong_type 2, the first in sensors/0 at 17: n: one is not long" in said
        assert "all records looked at, 100" in said

    def test_with_only_our_own_notes_is_unchanged(self) -> None:
        assert plan.code_of(foresight(SAME, landed=1)) == 0
        assert "= table iot.sensors" in shown(foresight(SAME, landed=1))


class TestExitCode:
    @pytest.mark.parametrize(
        ("refusal", "code"), [(SettingsRefused("x"), 2), (TableChanged("x"), 3), (TryAgain("x"), 4), (None, 7)]
    )
    def test_of_a_refusal_goes_before_that_of_changes(self, refusal: LakehouseError | None, code: int) -> None:
        found = foresight(MADE, refusal=refusal, landed=1)
        assert plan.code_of(found) == code
        told = json.loads(json.dumps(plan._as_plain(found)))
        assert told["code"] == code
        assert told["tables"][0]["change"] == "make"
        assert (told["streams"][0]["refused"] is None) == (refusal is None)


class TestEstimatedFiles:
    @pytest.mark.parametrize(
        ("every", "received", "rows", "spread", "files"),
        [
            (5.0, 100_000, 100_000, 1, 720),  # a batch each five seconds, of one file
            (5.0, 1_000, 1_000, 1, 360),  # a record each ten seconds
            (5.0, 1_000, 100, 1, 36),  # of which each tenth goes to this table
            (60.0, 100_000, 100_000, 24, 60),  # in a minute of all that time there is one day's
            (5_000.0, 100_000, 100_000, 24, 0.72 * 12),  # and in half of it there are half of the days
        ],
    )
    def test_follow_from_the_pace_of_the_records(
        self, every: float, received: int, rows: int, spread: int, files: float
    ) -> None:
        tally = Tally({("sensors", 0): {"landed": received}}, 0, 10_000_000)
        stream = StreamSettings.model_validate({"topics": ["sensors"], "every": every})
        found = files_an_hour(Seen(received, 1, tally, {"t": Writing(rows, spread)}), stream)
        assert found["t"] == pytest.approx(files, rel=0.01)

    def test_are_unknown_from_records_of_one_moment(self) -> None:
        tally = Tally({("sensors", 0): {"landed": 5}}, 7, 7)
        stream = StreamSettings.model_validate({"topics": ["sensors"]})
        assert files_an_hour(Seen(5, 1, tally, {"t": Writing(5, 1)}), stream) == {}
