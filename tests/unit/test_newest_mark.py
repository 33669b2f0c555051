"""The newest mark of a table is the same with and without earlier looks, and after a commit only that one is read."""

import gc
import random
from collections.abc import Sequence
from weakref import WeakValueDictionary

import pytest

from lakehouse_ingest.errors import LedgerUnclear
from lakehouse_ingest.ledger import marks
from lakehouse_ingest.ledger.keys import MARK
from lakehouse_ingest.ledger.marks import Mark, Summary, newest, to_summary
from lakehouse_ingest.records import SourceIdentity, Token

STORIES, COMMITS = 30, 25


def mark_of(dice: random.Random, generation: int, epoch: int, batch: int) -> Mark:
    """Of any partitions, and at any offsets: what others roll back or restore has no order."""
    parts = [(dice.choice("ab"), number) for number in range(dice.randint(1, 4))]
    start, following, complete = ({at: dice.randrange(1000) for at in parts} for _ in range(3))
    topics = {topic: dice.choice(["", "id-1", "id-2"]) for topic, _ in parts}
    return Mark(
        Token("plant", generation, epoch, batch), SourceIdentity("c", topics), start, following, complete, str(batch)
    )


def commit_of(dice: random.Random, number: int) -> Summary:
    if dice.random() < 0.2:
        return {"of": "others"}
    jump = dice.choice([0, 0, 0, 0, -3, 2])  # an older start that comes late, a copy of an older commit, a decision
    return to_summary(mark_of(dice, 1 + max(0, jump), 1 + number // 7, max(0, number + min(0, jump))), {})


@pytest.fixture(autouse=True)
def _never_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_found", WeakValueDictionary[bytes, Mark]())


def at_first(ancestors: Sequence[Summary], monkeypatch: pytest.MonkeyPatch) -> Mark | None:
    """As who has never looked at the table finds it."""
    forget(monkeypatch)
    return newest(ancestors, "plant")


class TestNewestMark:
    @pytest.mark.parametrize("number", range(STORIES))
    def test_is_the_same_with_and_without_an_earlier_look(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        seed = random.randrange(2**32) if number else 7
        print(f"seed {seed}")
        dice = random.Random(seed)
        looks: list[list[Summary]] = []
        ancestors: list[Summary] = []
        remembered: list[Mark | None] = []
        for commit in range(COMMITS):
            ancestors = [commit_of(dice, commit), *ancestors]
            if dice.random() < 0.1:
                del ancestors[dice.randrange(len(ancestors)) :]  # what was expired
            if dice.random() < 0.1:
                del ancestors[: dice.randrange(3)]  # what was rolled back
            looks.append([*ancestors])
            remembered.append(newest(ancestors, "plant"))
        assert remembered == [at_first(look, monkeypatch) for look in looks]

    def test_after_a_commit_reads_that_commit_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        dice, read, decode = random.Random(1), [0], marks.decode

        def counting(text: str) -> Mark:
            read[0] += 1
            return decode(text)

        monkeypatch.setattr(marks, "decode", counting)
        summaries = [to_summary(mark_of(dice, 1, 1, batch), {}) for batch in reversed(range(50))]
        before = newest(summaries[1:], "plant")
        assert read == [49]
        assert newest(summaries[1:], "plant") is before
        after = newest(summaries, "plant")
        assert read == [50]
        assert after
        assert after.token.batch == 49

    def test_that_nobody_has_is_not_kept(self) -> None:
        """Marks of 100,000 partitions take megabytes each."""
        assert newest([to_summary(mark_of(random.Random(2), 1, 1, 1), {})], "plant")
        gc.collect()
        assert not [*marks._found]

    def test_of_a_text_that_another_program_put_together_is_refused(self) -> None:
        one, other = (to_summary(mark_of(random.Random(3), 1, 1, batch), {}) for batch in (1, 2))
        kept = newest([one, other], "plant")
        assert kept
        both = [dict(each)[f"{MARK}plant"] for each in (one, other)]
        for between in (marks.SEPARATOR, "', '", "\n", ""):
            with pytest.raises(LedgerUnclear):
                newest([{f"{MARK}plant": between.join(both)}], "plant")
