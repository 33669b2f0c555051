"""The pipeline from Python: the worked example, and a user's function between decode and shape."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakehouse_ingest.errors import NeedsOperator, SettingsRefused
from lakehouse_ingest.settings import load_settings
from lakehouse_ingest.stages import transforms
from lakehouse_ingest.stages.transforms import set_aside
from tests.services.ingesting import Bench
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import ROOT, settings_text
from tests.services.readers import Reader

pytestmark = pytest.mark.live

EXAMPLE = ROOT / "deploy" / "examples" / "celsius.py"
READINGS = [(20.0, "C"), (212.0, "F"), (-40.0, "F"), (300.0, "K"), (None, "C")]
DECLARED = {"columns": [{"name": "degrees", "type": "double"}, {"name": "unit", "type": "string"}]}
TABLE = """\
table = "readings"
columns = [{ name = "degrees", type = "double" }, { name = "unit", type = "string" }]"""


def fill(broker: str, topic: str) -> None:
    create_topic(broker, topic, 1)
    values = [json.dumps({"degrees": degrees, "unit": unit}).encode() for degrees, unit in READINGS]
    produce(broker, topic, [(None, value) for value in (*values, b"{")])


def example(_: Path) -> Path:
    return EXAMPLE


def program_beside_it(folder: Path) -> Path:
    """It imports the example from its own folder, which no worker would look into by itself."""
    shutil.copy(EXAMPLE, folder)
    program = folder / "program.py"
    program.write_text(
        "import sys\nfrom celsius import in_celsius\nfrom lakehouse_ingest import load_settings, run\n"
        "batches = run(load_settings(sys.argv[1]), transform=in_celsius, until_latest=True)\n"
        'print(f"{batches} batches committed")\n'
    )
    return program


class TestWorkedExample:
    @pytest.mark.parametrize("program", [example, program_beside_it])
    def test_converts_good_readings_and_dead_letters_the_others(
        self, broker: str, rest_uri: str, topic: str, tmp_path: Path, program: Callable[[Path], Path]
    ) -> None:
        fill(broker, topic)
        programs, elsewhere = tmp_path / "programs", tmp_path / "elsewhere"
        for folder in (programs, elsewhere):
            folder.mkdir()
        settings = tmp_path / "pipeline.toml"
        settings.write_text(settings_text(topic, broker, rest_uri, topic, table=TABLE))
        command = [sys.executable, str(program(programs)), str(settings)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=elsewhere)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == "1 batches committed\n"
        rows = Reader(rest_uri, topic).table("readings").scan().to_arrow().to_pylist()
        landed = sorted((row["_source"]["offset"], row["degrees"], row["unit"]) for row in rows)
        assert landed == [
            (0, 20.0, "C"),
            (1, pytest.approx(100.0), "C"),
            (2, pytest.approx(-40.0), "C"),
            (4, None, "C"),
        ]
        dead = Reader(rest_uri, topic).table("dead_letters").scan().to_arrow().to_pylist()
        assert {(row["_source"]["offset"], row["reason"], row["detail"]) for row in dead} == {
            (3, "set_aside", "the unit is neither C nor F"),
            (5, "broken_json", "the value is not JSON"),
        }


def warmer_only(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.greater(rows["degrees"], 0))


def twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows])


def of_no_column(rows: pa.Table) -> pa.Table:
    return rows.append_column("_twice", rows["nothing"])


def of_nothing(rows: pa.Table) -> None:
    """A `return` was forgotten."""
    rows.drop_columns("degrees")


def of_nobody(rows: pa.Table) -> pa.Table:
    return pa.concat_tables(
        [rows, rows.set_column(rows.column_names.index("_row"), "_row", pa.array([99] * len(rows)))]
    )


def exists(bench: Bench, topic: str, name: str) -> bool:
    return bench.lake.table_exists(f"ns_{topic}.{name}")


class TestTransform:
    @pytest.mark.parametrize(
        ("function", "error", "says"),
        [
            (
                of_nobody,
                NeedsOperator,
                r"of_nobody returned a `_row` that it was not given.*nothing of the batch is commit",
            ),
            (of_no_column, SettingsRefused, r"`streams.transform` of_no_column can't be applied: KeyError.*nothing"),
            (of_nothing, SettingsRefused, r"`streams.transform` of_nothing can't be applied: it returned NoneType"),
        ],
        ids=["invents", "fails", "returns nothing"],
    )
    def test_that_fails_or_invents_rows_commits_nothing_of_its_batch(
        self, bench: Bench, topic: str, function: Callable[[pa.Table], Any], error: type[Exception], says: str
    ) -> None:
        fill(bench.broker, topic)
        with pytest.raises(error, match=says):
            bench.ingest(bench.settings(topic, table=DECLARED), transforms=[function])
        assert not any(
            bench.places(f"ns_{topic}.{name}") for name in (topic, "dead_letters") if exists(bench, topic, name)
        )
        bench.ingest(bench.settings(topic, table=DECLARED))
        assert sum(bench.places(f"ns_{topic}.{topic}", f"ns_{topic}.dead_letters").values()) == len(READINGS) + 1

    def test_may_leave_out_rows_which_count_as_filtered(self, bench: Bench, topic: str) -> None:
        fill(bench.broker, topic)
        bench.ingest(bench.settings(topic, table=DECLARED), transforms=[warmer_only])
        assert {at[2]: count for at, count in bench.places(f"ns_{topic}.{topic}").items()} == {0: 1, 1: 1, 3: 1}
        assert {at[2]: count for at, count in bench.places(f"ns_{topic}.dead_letters").items()} == {5: 1}
        batches = [row["partitions"] for row in bench.rows(f"ns_{topic}.lakehouse_batches") if row["kind"] == "batch"]
        counts = [
            (part["received"], part["landed"], part["dead"], part["filtered"]) for parts in batches for part in parts
        ]
        assert counts == [(6, 3, 1, 2)]

    def test_may_make_several_rows_of_a_record_which_get_numbers(self, bench: Bench, topic: str) -> None:
        fill(bench.broker, topic)
        bench.ingest(bench.settings(topic, table=DECLARED), transforms=[twice])
        found = sorted((row["_source"]["offset"], row["_source"]["index"]) for row in bench.rows(f"ns_{topic}.{topic}"))
        assert found == [(offset, index) for offset in range(len(READINGS)) for index in (0, 1)]
        assert {at[2]: count for at, count in bench.places(f"ns_{topic}.dead_letters").items()} == {5: 1}

    def test_may_change_columns_that_are_inferred_from_the_data(self, bench: Bench, topic: str) -> None:
        fill(bench.broker, topic)

        def doubled(rows: pa.Table) -> pa.Table:
            rows = set_aside(rows, pc.equal(rows["unit"], "K"), "Kelvin")
            return rows.set_column(rows.column_names.index("degrees"), "degrees", pc.multiply(rows["degrees"], 2))

        bench.ingest(bench.settings(topic), transforms=[doubled])
        assert sorted(row["degrees"] or 0 for row in bench.rows(f"ns_{topic}.{topic}")) == [-80.0, 0, 40.0, 424.0]

    def test_of_another_package_is_found_by_its_entry_point(self, monkeypatch: pytest.MonkeyPatch) -> None:
        offered = EntryPoint("celsius", f"{__name__}:warmer_only", transforms.GROUP)
        monkeypatch.setattr(transforms, "entry_points", lambda **_: [offered])
        monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
        assert chosen("celsius").__name__ == "warmer_only"
        with pytest.raises(SettingsRefused, match="names others, and no package has such an entry point: celsius"):
            chosen("others")

    def test_named_by_the_settings_is_loaded_only_where_code_is_allowed(self) -> None:
        assert chosen("json:dumps", allow_code=True) is json.dumps
        with pytest.raises(SettingsRefused, match="LAKEHOUSE_INGEST_ALLOW_CODE=1"):
            chosen("json:dumps")
        for name in ("nothing_at_all:f", ":f", ".x:f", "json:nothing"):
            with pytest.raises(SettingsRefused, match=f"names {name}, which can't be loaded"):
                chosen(name, allow_code=True)
        with pytest.raises(SettingsRefused, match="names os:sep, which is not a function"):
            chosen("os:sep", allow_code=True)


def chosen(name: str, *, allow_code: bool = False) -> Any:
    settings = load_settings(None, {"streams": [{"topics": ["x"], "transform": name}]}, {})
    return transforms.chosen(settings.streams[0], allow_code=allow_code)
