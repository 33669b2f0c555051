"""The frame of the verbs that repair: nothing is changed without a yes, and the exit code says if something is left."""

import json
from collections.abc import Iterator

import pytest

from lakehouse_ingest.cli.repair import UNANSWERED, repair
from lakehouse_ingest.operations.proposal import Proposal
from lakehouse_ingest.settings import Settings

SETTINGS = Settings.model_validate(
    {"name": "plant", "streams": [{"topics": ["t"]}], "catalog": {"uri": "http://catalog"}}
)


class Repair:
    """Something that may be broken, or repaired as far as it can be."""

    def __init__(self, *, broken: bool, remains: bool = False) -> None:
        self.broken, self.remains, self.applied = broken, remains, 0

    def look(self, uri: str) -> Proposal[str]:
        assert uri == "http://catalog"
        return Proposal(
            "broken" if self.broken else "sound", self.broken, "Turn it.", self.apply if self.broken else None
        )

    def apply(self) -> Proposal[str]:
        self.applied += 1
        return Proposal("repaired", pending=self.remains, says="Turn it again.")

    def run(self, *, yes: bool, as_json: bool = False) -> int:
        return repair(SETTINGS, self.look, shown, plain, yes=yes, jars=None, as_json=as_json)


def shown(found: str) -> Iterator[str]:
    yield f"It is {found}."


def plain(found: str) -> dict[str, str]:
    return {"found": found}


class TestRepair:
    def test_changes_nothing_unless_told_to(self, capsys: pytest.CaptureFixture[str]) -> None:
        broken = Repair(broken=True)
        assert (broken.run(yes=False), broken.applied) == (UNANSWERED, 0)
        assert capsys.readouterr().out == "It is broken.\n\nNothing has been changed. Turn it.\n"

    def test_shows_what_is_left_after_it_was_done(self, capsys: pytest.CaptureFixture[str]) -> None:
        broken = Repair(broken=True)
        assert (broken.run(yes=True), broken.applied) == (0, 1)
        assert capsys.readouterr().out == "It is repaired.\n"

    def test_ends_with_3_while_something_is_left(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert Repair(broken=True, remains=True).run(yes=True) == UNANSWERED
        assert capsys.readouterr().out == "It is repaired.\n", "something has been changed"

    def test_has_nothing_to_do_where_nothing_is_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert [Repair(broken=False).run(yes=yes) for yes in (False, True)] == [0, 0]
        assert capsys.readouterr().out == "It is sound.\nIt is sound.\n"

    @pytest.mark.parametrize("yes", [False, True])
    def test_gives_machines_the_values_alone(self, capsys: pytest.CaptureFixture[str], *, yes: bool) -> None:
        assert Repair(broken=True).run(yes=yes, as_json=True) == (0 if yes else UNANSWERED)
        assert json.loads(capsys.readouterr().out) == {"found": "repaired" if yes else "broken"}
