"""What a start asks, and what each answer would do, rule by rule."""

from dataclasses import replace

from lakehouse_ingest.errors import SourceChanged, fitted
from lakehouse_ingest.ledger.marks import Mark
from lakehouse_ingest.records import Choice, Offsets, SourceIdentity, Token, begun_again
from lakehouse_ingest.resume.blockers import ADVICE, SourceNow, of_source, of_tables
from lakehouse_ingest.tables import Position, Registered

IDS = {"t": "id-1", "u": "id-2"}
NOW = SourceNow(
    SourceIdentity("cluster-1", IDS),
    {("t", 0): 10, ("t", 1): 20, ("u", 0): 0},
    {("t", 0): 1000, ("t", 1): 1000, ("u", 0): 1000},
)
STAND = {("t", 0): 500, ("t", 1): 500, ("u", 0): 500}


def place(
    done: Offsets, source: SourceIdentity = NOW.identity, *, generation: int = 1, table: str = "record"
) -> Position:
    mark = Mark(Token("p", generation, 1, 1), source, {}, done, done)
    return Position(table, "branch", 1, mark, {}, known=True, uuid="uuid")


class TestSource:
    def test_that_is_unchanged_has_no_blocker(self) -> None:
        assert [*of_source(place(STAND), [], NOW)] == []

    def test_of_another_cluster_has_one_blocker(self) -> None:
        """Neither its ids nor its offsets mean anything here."""
        before = SourceIdentity("cluster-0", {"t": "id-0"})
        (question,) = of_source(place({("t", 0): 10**6}, before), [], NOW)
        anew, latest = question.choices[Choice.ANEW], question.choices[Choice.LATEST]
        assert (anew.offsets, latest.offsets) == (NOW.low, NOW.high)
        assert anew.cluster == latest.cluster == "cluster-1"
        assert anew.topics == latest.topics == IDS

    def test_offers_latest_only_up_to_the_last_stable_offset(self) -> None:
        """What a transaction that is open holds, and what stands behind that, comes from now on: it is read."""
        open_at = {**NOW.high, ("t", 1): 400}
        now = replace(NOW, ends=open_at)
        (question,) = of_source(place({("t", 0): 10**6}, SourceIdentity("cluster-0", {"t": "id-0"})), [], now)
        assert question.choices[Choice.LATEST].offsets == open_at
        assert [*of_source(place(STAND), [], now)] == []  # the log itself went nowhere

    def test_with_a_recreated_topic_begins_at_its_own_offsets(self) -> None:
        """It may end before, or begin behind, what was read of the one before."""
        before = SourceIdentity("cluster-1", {**IDS, "t": "id-0"})
        (question,) = of_source(place({**STAND, ("t", 0): 5, ("t", 1): 10**6}, before), [], NOW)
        assert question.about == "t"
        assert question.choices[Choice.ANEW].offsets == {("t", 0): 10, ("t", 1): 20}
        assert question.choices[Choice.LATEST].offsets == {("t", 0): 1000, ("t", 1): 1000}
        assert question.choices[Choice.ANEW].topics == {"t": "id-1"}
        assert question.choices[Choice.ANEW].without == {"t"}

    def test_with_a_new_partition_names_its_lost_offsets(self) -> None:
        """It is read from its first record, and that is not there any more. Of partitions that are stated nobody
        knows."""
        new = replace(NOW, low={**NOW.low, ("t", 2): 60, ("u", 1): 0, ("v", 0): 7})
        (question,) = of_source(place(STAND), [], new)
        assert "topic t partition 2 has lost the offsets 0 to 59 before they were read" in str(question.error)
        assert question.choices[Choice.SKIP].offsets == {("t", 2): 60}
        assert [*of_source(place(STAND), [], new, apart=["t"])] == []

    def test_with_losses_in_several_partitions_has_one_blocker(self) -> None:
        (question,) = of_source(place({**STAND, ("t", 0): 3, ("t", 1): 5}), [], NOW)
        assert "offsets 3 to 9, and those of 1 other partition, before they were read" in str(question.error)
        skip = question.choices[Choice.SKIP]
        assert skip.offsets == {("t", 0): 10, ("t", 1): 20}
        assert "22 offsets are noted as lost" in skip.says
        assert skip.topics == {}

    def test_whose_end_went_back_begins_a_new_log(self) -> None:
        for generation, topic_id in ((1, "id-1~2"), (2, "id-1~3")):
            known = SourceIdentity(
                "cluster-1", {**IDS, "t": begun_again("id-1", generation)} if generation > 1 else IDS
            )
            (question,) = of_source(place({**STAND, ("t", 0): 1001}, known, generation=generation), [], NOW)
            accept = question.choices[Choice.ACCEPT]
            assert accept.offsets == {("t", 0): 1000, ("t", 1): 500}
            assert accept.topics == {"t": topic_id}
            assert "twice" not in accept.says

    def test_whose_end_went_back_counts_rows_that_may_stand_twice(self) -> None:
        ahead = place({("t", 0): 1004, ("t", 1): 500}, table="a")
        assert ahead.mark
        ahead = replace(ahead, mark=replace(ahead.mark, complete={("t", 0): 990, ("t", 1): 500}))
        (question,) = of_source(place({**STAND, ("t", 0): 990}), [ahead], NOW)
        assert "up to 14 rows of an interrupted batch may then stand twice" in question.choices[Choice.ACCEPT].says

    def test_keeps_the_name_of_the_new_log(self) -> None:
        """The broker knows nothing of it: to him it is the same topic."""
        known = NOW.identity.known_as({"t": "id-1~2", "old": "id-9"})
        assert known.topics == {"t": "id-1~2", "u": "id-2", "old": "id-9"}
        assert known.log("t") != NOW.identity.log("t")
        assert known.log("u") == NOW.identity.log("u")
        assert [*of_source(place(STAND, known), [], NOW)] == []
        assert NOW.identity.known_as({"t": "id-0~2"}).topics == IDS


class TestChangedTable:
    def test_can_be_accepted_as_it_is_only_if_it_exists(self) -> None:
        """Of a table that was dropped there is nothing that could be taken as it is."""
        (dropped,) = of_tables({"a": Registered("uuid")}, {}, {}, NOW)
        assert dropped.choices[Choice.ACCEPT].says.startswith("go on without the table")
        (replaced,) = of_tables({"a": Registered("uuid")}, {}, {"a": replace(place(STAND), uuid="other")}, NOW)
        assert replaced.choices[Choice.ACCEPT].says.startswith("go on with the table as it is")

    def test_that_is_gone_may_be_filled_again(self) -> None:
        (question,) = of_tables({"ns.a": Registered("uuid-0"), "ns.b": Registered("")}, {}, {}, NOW)
        assert (question.about, question.choices[Choice.ACCEPT].offsets) == ("ns.a", {})
        assert question.choices[Choice.ANEW].offsets == NOW.low
        assert question.choices[Choice.ANEW].topics == {}, (
            "it is the same log, so what stands in another table is known"
        )
        assert {answer.tables for answer in question.choices.values()} == {("ns.a",)}


class TestMissingMark:
    def test_of_a_stream_that_has_landed_is_a_blocker(self) -> None:
        """Others' marks are there, and none of ours: they landed after somebody had cut the history."""
        others = replace(place(STAND), mark=None, known=True)
        assert [*of_source(others, [], NOW)] == []
        (question,) = of_source(others, [], NOW, {"a": (3, 7)})
        assert "the history of record was expired with the mark" in str(question.error)


class TestBlockerMessage:
    def test_keeps_its_advice_when_it_is_shortened(self) -> None:
        error = SourceChanged(f"the topic {'x' * 249} was deleted{ADVICE}")
        assert fitted(str(error)).endswith(ADVICE)
