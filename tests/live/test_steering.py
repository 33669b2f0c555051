"""A record with control sequences, through the real command line on a real terminal."""

from pathlib import Path

import pytest

from tests.services.command import on_a_terminal
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import settings_text

pytestmark = pytest.mark.live

STEERING = rb'{"i": "\u001b]0;OWNED\u0007Ann Smith"}'
TABLE = 'table = "events"\ncolumns = [{ name = "i", type = "long" }]'


class TestControlSequences:
    def test_of_a_record_never_reach_the_terminal(self, broker: str, rest_uri: str, tmp_path: Path) -> None:
        """The last sentence names the record and quotes nothing of it, because it is also in the log of a service."""
        create_topic(broker, "steered", 1)
        produce(broker, "steered", [(None, STEERING)])
        settings = settings_text("steered", broker, rest_uri, "ns_steered", table=TABLE)
        file = tmp_path / "p.toml"
        file.write_text(settings.replace("every =", 'on_error = "raise"\nevery =', 1).replace('"json"', '"text"'))
        code, got = on_a_terminal("run", "--config", file, "--until-latest")
        assert code == 3, got
        assert b"steered partition 0 offset 0 cannot become a row: wrong_type (i is not long)" in got
        for raw in (b"\x1b]", b"\x07", b"OWNED", b"Smith"):
            assert raw not in got
