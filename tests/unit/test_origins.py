"""What another writer has left behind, read without it: nothing is taken for an offset that is none."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_ingest.errors import LONGEST, LakehouseError, NeedsOperator, SettingsRefused
from lakehouse_ingest.operations.adopt import checkpoint, offsets_in
from lakehouse_ingest.operations.adopt.checkpoint import Checkpoint, ended, of_checkpoint, offsets_of
from lakehouse_ingest.operations.adopt.groups import DATA_WRITTEN, event
from lakehouse_ingest.operations.adopt.offsets_file import of_file
from lakehouse_ingest.operations.adopt.summaries import BATCH, CONTROL, FLINK, QUERY, Traces, Writer, together, traces
from lakehouse_ingest.records import Offsets

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'


def as_json(offsets: Offsets) -> str:
    """As Spark's own Kafka source writes them into its log."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return json.dumps(by_topic)


maps = st.dictionaries(st.tuples(st.text(min_size=1), st.integers(0, 999)), st.integers(0, 2**62), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)


def written(folder: Path, offsets: dict[int, str], commits: tuple[int, ...], query: str = "q") -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for number, line in offsets.items():
        (folder / "offsets" / str(number)).write_text(f"{HEAD}{line}")
        (folder / "offsets" / f".{number}.tmp").touch()
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


class TestOffsets:
    @given(maps)
    def test_are_read_as_they_were_written(self, offsets: Offsets) -> None:
        assert offsets_in(json.loads(as_json(offsets))) == offsets
        assert offsets_of(f"{HEAD}{as_json(offsets)}", "batch 1") == offsets

    @pytest.mark.parametrize(
        "said",
        [
            None,
            [],
            3,
            "t",
            {"logOffset": 0},
            {"t": 3},
            {"t": {"x": 3}},
            {"t": {"-1": 3}},
            {"t": {"²": 3}},
            {"t": {"0": -1}},
            {"t": {"0": "3"}},
            {"t": {"0": 3.0}},
            {"t": {"0": True}},
            {"t": {"0": None}},
        ],
    )
    def test_are_not_read_from_anything_else(self, said: object) -> None:
        assert offsets_in(said) is None

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"0": 42}', "{", '{"t": {"0": -2}}'])
    def test_from_a_file_of_something_else_are_refused(self, tmp_path: Path, text: str) -> None:
        file = tmp_path / "offsets.json"
        file.write_text(text)
        with pytest.raises(SettingsRefused, match="--from-file"):
            of_file(file)
        with pytest.raises(SettingsRefused, match="can't be read"):
            of_file(tmp_path / "absent")

    def test_from_a_file_are_the_next_ones(self, tmp_path: Path) -> None:
        file = tmp_path / "offsets.json"
        file.write_text('{"t": {"0": 42, "11": 0}}')
        assert of_file(file).offsets == {("t", 0): 42, ("t", 11): 0}


def zigzag(number: int) -> bytes:
    found, left = bytearray(), (number << 1) ^ (number >> 63)
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def encoded(kind: int, moment: int, group: str) -> bytes:
    """As AvroEncoderUtil writes it; the live test has it written by that class itself."""
    uuid = {"type": "fixed", "name": "uuid_fixed", "size": 16}
    names = (("id", uuid), ("type", "int"), ("timestamp", "long"), ("group_id", "string"), ("payload", "null"))
    schema = json.dumps({"fields": [{"name": name, "type": kind} for name, kind in names]}).encode()
    of = group.encode()
    fields = (UUID(int=7).bytes, zigzag(kind), zigzag(moment), zigzag(len(of)), of)
    return b"".join((b"\xc2\x01", len(schema).to_bytes(2, "big"), schema, *fields, b"payload"))


class TestCheckpoint:
    @pytest.mark.parametrize(
        ("last", "begun", "landed", "expected"),
        [
            (7, 7, 7, 7),
            (7, 7, None, 7),  # not written by Iceberg's own sink, and nothing was under way
            (7, 8, 8, 8),  # under way, and landed
            (7, 8, 7, 7),  # under way, and not landed
            (None, 0, 0, 0),
        ],
    )
    def test_has_a_last_batch_that_landed(
        self, last: int | None, begun: int, landed: int | None, expected: int
    ) -> None:
        assert ended(Checkpoint(Path("c"), "q", last, begun), landed) == expected

    @pytest.mark.parametrize(
        ("last", "begun", "landed", "says"),
        [
            (7, 8, None, "batch 8 of the checkpoint was under way, and no table"),
            (None, 0, None, "batch 0 of the checkpoint was under way, and no table"),
            (7, 7, 8, "an old copy"),
            (7, 8, 9, "an old copy"),
            (7, 7, 6, "was rolled back"),
            (7, 8, 6, "was rolled back"),
        ],
    )
    def test_that_does_not_fit_its_table_needs_the_operator(
        self, last: int | None, begun: int, landed: int | None, says: str
    ) -> None:
        with pytest.raises(NeedsOperator, match=says) as refused:
            ended(Checkpoint(Path("c"), "q", last, begun), landed)
        assert len(str(refused.value)) <= LONGEST

    def test_is_read_with_its_offsets(self, tmp_path: Path) -> None:
        lines = {number: json.dumps({"t": {"0": 10 * number, "1": number}}) for number in (5, 6, 7)}
        read = checkpoint.read(written(tmp_path, lines, (5, 6)))
        assert (read.query, read.last, read.begun) == ("q", 6, 7)
        landed = of_checkpoint(read, 7, shown=True)
        assert (landed.offsets, len(landed.trusted)) == ({("t", 0): 70, ("t", 1): 7}, 1)
        assert of_checkpoint(read, 6, shown=True).offsets == {("t", 0): 60, ("t", 1): 6}

    def test_that_is_none_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsRefused, match="no checkpoint of a Spark query"):
            checkpoint.read(tmp_path)
        with pytest.raises(SettingsRefused, match="holds no batch"):
            checkpoint.read(written(tmp_path, {}, ()))

    @pytest.mark.parametrize("commits", [(4,), (3, 4), ()])
    def test_with_a_gap_is_refused(self, tmp_path: Path, commits: tuple[int, ...]) -> None:
        with pytest.raises(NeedsOperator, match="none between"):
            checkpoint.read(written(tmp_path, {4: "{}", 5: "{}", 6: "{}"}, commits))

    @pytest.mark.parametrize(
        ("entry", "says"),
        [
            (f'{HEAD}{{"logOffset":3}}', "not of Kafka alone"),
            (f'{HEAD}{{"t":{{"0":3}}}}\n17', "not of Kafka alone"),
            (f"{HEAD}x", "not of Kafka alone"),
            ('v2\n{}\n{"t":{"0":3}}', "version v2"),
            (f'{HEAD}{{"t":{{"0":3}}}}\n{{"t":{{"0":4}}}}', "has two places in topic t partition 0, 3 and 4"),
        ],
    )
    def test_with_an_entry_that_is_not_of_kafka_is_refused(self, entry: str, says: str) -> None:
        with pytest.raises(NeedsOperator, match=says):
            offsets_of(entry, "batch 3")

    def test_may_have_several_kafka_sources_in_an_entry(self) -> None:
        entry = f'{HEAD}{{"t":{{"0":3}}}}\n-\n{{"u":{{"1":4}},"t":{{"0":3}}}}\n'
        assert offsets_of(entry, "batch 3") == {("t", 0): 3, ("u", 1): 4}

    def test_with_a_damaged_entry_is_not_believed(self, tmp_path: Path) -> None:
        folder = written(tmp_path, {0: '{"t":{"0":3}}'}, (0,))
        (folder / "offsets" / ".0.crc").write_bytes(b"crc\0\0\0\x02\0\0\0\0\0")
        with pytest.raises(NeedsOperator, match="was damaged"):
            of_checkpoint(checkpoint.read(folder), None, shown=False)

    def test_is_refused_in_a_sentence_of_bounded_length(self) -> None:
        """A name may be as long as it likes; what to do stays."""
        with pytest.raises(LakehouseError) as refused:
            offsets_of(f'{HEAD}{{"{"t" * 500}": 3}}', "batch 3 of the checkpoint")
        assert len(str(refused.value)) <= LONGEST


class TestTraces:
    @pytest.mark.parametrize(
        ("ancestors", "expected"),
        [
            ([], Traces()),
            ([{"operation": "append"}], Traces()),
            ([{QUERY: "q", BATCH: "9"}, {QUERY: "p", BATCH: "4"}, {QUERY: "q", BATCH: "8"}], ({"q": 9, "p": 4}, ())),
            (
                [{}, {f"{CONTROL}c.g": '{"0":3}'}, {f"{CONTROL}c.g": '{"0":1}'}, {QUERY: "q", BATCH: "1"}],
                ({"q": 1}, "c.g"),
            ),
            ([{FLINK: "7"}, {f"{CONTROL}c.g": "{}"}], ({}, "c.g")),
            ([{QUERY: "q"}, {QUERY: "q", BATCH: "x"}], Traces()),
        ],
    )
    def test_show_which_programs_wrote_a_table(
        self, ancestors: list[dict[str, str]], expected: Traces | tuple[dict[str, int], str]
    ) -> None:
        found = traces(ancestors)
        if isinstance(expected, Traces):
            assert found == expected
            return
        newest = next(each for each in ancestors if each)
        last = Writer.FLINK if FLINK in newest else Writer.SPARK if QUERY in newest else Writer.CONNECT
        assert found == Traces(expected[0], (expected[1],) if expected[1] else (), last)

    def test_of_several_tables_go_by_the_one_that_is_behind(self) -> None:
        one, other = Traces({"q": 9, "p": 1}, ("c.g",), Writer.SPARK), Traces({"q": 8}, ("c.g", "c.h"), Writer.CONNECT)
        assert together([Traces(), one, other]) == Traces({"q": 8, "p": 1}, ("c.g", "c.h"), Writer.SPARK)

    def test_name_the_control_topic_of_a_group(self) -> None:
        found = Traces(controls=("control.iceberg.connect-plant.7", "other.connect-x"))
        assert found.control_of("connect-plant.7") == "control.iceberg"
        assert found.control_of("plant.7") is None
        assert found.control_of("connect-y") is None


class TestControlEvent:
    @given(st.integers(0, 9), numbers, st.text())
    def test_has_its_kind_and_its_sink(self, kind: int, moment: int, group: str) -> None:
        assert event(encoded(kind, moment, group)) == (kind, group)

    @given(st.binary(max_size=200))
    def test_that_is_none_is_refused(self, value: bytes) -> None:
        for each in (value, b"\xc2\x01" + value, encoded(DATA_WRITTEN, 1, "g")[:-9][: len(value)]):
            with pytest.raises((ValueError, IndexError, KeyError, TypeError)):
                event(each)
