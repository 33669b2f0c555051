"""Marks and heads are read within bounds: whoever may commit to a table may write what unpacks to gigabytes."""

import base64
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from lakehouse_ingest.errors import LedgerUnclear
from lakehouse_ingest.ledger import keys, marks
from lakehouse_ingest.ledger.marks import FORMAT, Mark
from lakehouse_ingest.records import SourceIdentity, Token


def packed(body: bytes) -> str:
    return f"{FORMAT}:{base64.b85encode(zlib.compress(body, 9)).decode()}"


def exploding(**changes: Any) -> str:
    mark = Mark(Token("p", 1, 1, 1), SourceIdentity("c", {"t": "id"}), {("t", 0): 5}, {("t", 0): 7}, {("t", 0): 5})
    front, _, text = marks.encode(mark).partition(":")
    body = json.loads(zlib.decompress(base64.b85decode(text)))
    return f"{front}:{base64.b85encode(zlib.compress(json.dumps({**body, **changes}).encode(), 9)).decode()}"


EXPLODING = {
    "a text that unpacks to a gigabyte": packed(b"[" + b" " * (1 << 26) + b"]"),
    "a run of billions": exploding(t=[["t", "id", [[0, 30_000_000_000]]]]),
    "a run beyond what can be counted": exploding(t=[["t", "id", [[0, 10**30]]]]),
    "runs without offsets": exploding(t=[["t", "id", [[0, 30_000_000]]]], n=[]),
    "lists within lists": packed(b"[" * 200_000),
}


class TestMark:
    @pytest.mark.parametrize("which", EXPLODING)
    def test_that_unpacks_to_gigabytes_is_refused_before_it_does(self, which: str) -> None:
        text = EXPLODING[which]
        assert len(text) < 1 << 18
        tracemalloc.start()
        try:
            with pytest.raises(LedgerUnclear, match="can't be read"):
                marks.decode(text)
            with pytest.raises(LedgerUnclear):
                marks.heads([{f"{keys.HEADS}p": EXPLODING["a text that unpacks to a gigabyte"]}], "p")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 10 * marks.LARGEST

    def test_is_not_written_if_no_start_could_read_it(self) -> None:
        with pytest.raises(LedgerUnclear, match="divide them among several"):
            marks.heads_text({f"table {number}": (number, number) for number in range(200_000)})
        partitions = {("t", number): 10**11 + number for number in range(100_000)}
        mark = Mark(Token("p", 1, 1, 1), SourceIdentity("c", {"t": "id"}), partitions, partitions, partitions)
        assert marks.decode(marks.encode(mark)) == mark
