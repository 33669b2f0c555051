"""Group offsets are published for lag tools: when there is news, not too often, and whatever refuses them."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from lakehouse_ingest.errors import TryAgain
from lakehouse_ingest.pipeline import group_offsets
from lakehouse_ingest.pipeline.group_offsets import REFUSED_S, GroupOffsets
from lakehouse_ingest.records import Offsets

AT, OTHER = ("t", 0), ("t", 1)


class Group:
    """A consumer group, a clock, and what is published to the one at the times of the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, every: float = 5.0) -> None:
        self.now, self.seen, self.refuses, self.watch = 100.0, list[Offsets](), False, MagicMock()
        monkeypatch.setattr(group_offsets, "monotonic", lambda: self.now)
        source = cast("Any", SimpleNamespace(publish=self._publish))
        self.offsets = GroupOffsets(source, "g", ["t"], {"t": [0]}, every, self.watch, "s")

    def _publish(self, offsets: Offsets, group: str) -> None:
        assert group == "g"
        if self.refuses:
            raise TryAgain("not now")
        self.seen.append(offsets)

    def publish(self, offset: int, later: float = 0.0) -> None:
        self.now += later
        self.offsets.publish({AT: offset, OTHER: 7, ("left out", 0): 3})


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group(monkeypatch)


class TestGroupOffsets:
    def test_are_those_of_what_the_settings_read(self, group: Group) -> None:
        group.publish(1)
        assert group.seen == [{AT: 1}]

    def test_are_published_once_where_nothing_new_comes(self, group: Group) -> None:
        for _ in range(100):
            group.publish(1, later=10)
        assert group.seen == [{AT: 1}]

    def test_are_published_at_most_every_few_seconds(self, group: Group) -> None:
        for offset in range(1, 12):
            group.publish(offset, later=1)
        assert [each[AT] for each in group.seen] == [1, 6, 11]

    def test_that_are_refused_are_tried_again_after_a_minute(self, group: Group) -> None:
        group.refuses = True
        group.publish(1)
        group.publish(1, later=REFUSED_S - 1)
        group.refuses = False
        assert (group.seen, group.watch.emit.call_count) == ([], 1)
        group.publish(1, later=1)
        assert group.seen == [{AT: 1}]

    def test_of_the_last_batch_are_published_at_once(self, group: Group) -> None:
        group.publish(1)
        group.offsets.publish_last({AT: 2})
        assert [each[AT] for each in group.seen] == [1, 2]
        group.refuses = True
        group.offsets.publish_last({AT: 3})
