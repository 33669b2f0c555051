"""Which snapshots go: a bounded number stays, the newest mark of every pipeline with it, and never a gap."""

from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest import ledger
from lakehouse_ingest.ledger import MARK, Mark, SourceIdentity, Summary
from lakehouse_ingest.maintenance.expire import doomed, is_left_behind
from lakehouse_ingest.records import Token

PIPELINES = ("p", "q", "r")
HISTORIES = st.lists(st.sets(st.sampled_from(PIPELINES)), max_size=40)


def ancestors(marks: list[set[str]]) -> list[tuple[int, Summary]]:
    """Newest first, each with the pipelines whose mark it carries."""
    return [
        (1000 + number, {"added-records": "1", **{f"{MARK}{pipeline}": "mark" for pipeline in carried}})
        for number, carried in enumerate(marks)
    ]


@given(HISTORIES, st.integers(1, 50))
def test_what_stays_is_a_run_from_the_head_with_every_pipelines_newest_mark(marks: list[set[str]], keep: int) -> None:
    history = ancestors(marks)
    gone = doomed(history, keep)
    stays = len(history) - len(gone)
    assert gone == [snapshot for snapshot, _ in history[stays:]], "a gap would cut the ledger's walk short"
    for pipeline in PIPELINES:
        newest = next((number for number, carried in enumerate(marks) if pipeline in carried), None)
        assert newest is None or newest < stays


@given(HISTORIES, st.integers(1, 50))
def test_never_more_than_keep_stay_unless_a_mark_is_older(marks: list[set[str]], keep: int) -> None:
    stays = len(marks) - len(doomed(ancestors(marks), keep))
    oldest = max(
        (marks.index(next(c for c in marks if p in c)) for p in PIPELINES if any(p in c for c in marks)), default=0
    )
    assert stays <= max(keep, oldest + 1)


@given(HISTORIES, st.integers(2, 50))
def test_where_each_commit_carries_all_marks_the_bound_always_holds(marks: list[set[str]], keep: int) -> None:
    """As ours do: the newest commit of anybody carries the others' marks."""
    whole = [{*PIPELINES}, *marks]
    assert len(whole) - len(doomed(ancestors(whole), keep)) <= keep


@given(st.integers(2, 200))
def test_the_head_always_stays(keep: int) -> None:
    assert doomed(ancestors([set()]), keep) == []
    assert doomed([], keep) == []


def test_expiry_takes_a_fifth_at_once_so_that_not_each_landing_pays_for_it() -> None:
    assert len(doomed(ancestors([{"p"}] * 100), 100)) == 20


def test_a_pipeline_that_rests_keeps_the_history_down_to_its_mark() -> None:
    marks = [{"p"}] * 150 + [{"q"}] + [{"p"}] * 50
    assert doomed(ancestors(marks), 100) == [1000 + number for number in range(151, 201)]


def landing(pipeline: str, epoch: int, carried: Summary | None = None) -> Summary:
    return ledger.to_summary(Mark(Token(pipeline, 2, epoch, 5), SourceIdentity(), {}, {}, {}), carried or {})


def test_what_no_ref_leads_to_goes_when_nobody_can_publish_it_any_more() -> None:
    """A start may be as late with its expiry as with anything: what a newer one has staged is none of its business."""
    assert [is_left_behind(landing("p", epoch), "p", 7) for epoch in (6, 7, 8)] == [True, True, False]


def test_what_another_pipeline_staged_carries_our_mark_and_is_not_ours() -> None:
    others = landing("q", 1, landing("p", 3))
    assert f"{MARK}p" in others
    assert not is_left_behind(others, "p", 7)
    assert not is_left_behind({"wap.id": "an audit's"}, "p", 7)
    assert is_left_behind(landing("a/b", 1), "a/b", 7)
