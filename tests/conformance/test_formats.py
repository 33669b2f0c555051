"""Every format keeps what the suite for formats asks."""

import pytest

from lakehouse_ingest.records import Reason
from lakehouse_ingest.stages import formats
from lakehouse_ingest.testing.formats import CHECKS, Check, Samples

# One for each name in the table.
SAMPLES = {
    "json": Samples(
        sound=[
            (b'{"site": "north", "n": 1, "at": {"lat": 1.5, "tags": ["a", "b"]}}', {
                "site": "north", "n": 1, "at": {"lat": 1.5, "tags": ["a", "b"]}
            }),
            (b' {"site": "s\xc3\xbcd", "n": -9223372036854775808, "on": true} ', {
                "site": "süd", "n": -9223372036854775808, "on": True
            }),
            (b'{"n": null, "site": ""}', {"site": ""}),
        ],
        broken=[
            (None, Reason.EMPTY),
            (b" ", Reason.EMPTY),
            (b"\xff\xfe", Reason.NOT_TEXT),
            (b'{"n": 1', Reason.BROKEN),
            (b'{"n": 1} {"n": 2}', Reason.BROKEN),
            (b"[1]", Reason.NOT_OBJECT),
            (b"null", Reason.NOT_OBJECT),
        ],
        misfit=(b'{"n": "one"}', "n", "long"),
        name="json",
    ),
}  # fmt: skip


class TestFormat:
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    @pytest.mark.parametrize("name", formats.FORMATS)
    def test_passes_the_suite(self, name: str, check: Check) -> None:
        check(formats.chosen(name), SAMPLES[name])
