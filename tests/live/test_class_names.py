"""A class or module that a table names is never loaded: the pipeline writes without it, or says what is wrong."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.class_names import JAVA
from lakehouse_ingest.cli.verbs.acknowledge import acknowledge
from lakehouse_ingest.cli.verbs.promote import promote
from lakehouse_ingest.cli.verbs.recover import recover
from lakehouse_ingest.environment.spark_names import spark_name
from lakehouse_ingest.errors import NeedsOperator
from lakehouse_ingest.pipeline.dry_run import foresee
from tests.live.test_adopt import Former
from tests.live.test_many_tables import numbers
from tests.services.doors import in_settings
from tests.services.flow import LANDING, Heard, is_proven
from tests.services.fronts import Answer, Front, Request, passed_on
from tests.services.ingesting import Bench, running, spark_by
from tests.services.kafka import create_topic, produce
from tests.services.pipelines import until

pytestmark = pytest.mark.live

NO_SUCH = "com.example.Planted"


def alter(bench: Bench, name: str, **properties: str) -> None:
    """As anyone with the right to alter the table can."""
    bench.lake.commit_table(bench.table(name), (), (SetPropertiesUpdate(updates=properties),))


class Planted:
    """What pyiceberg would call with a table's location and its properties."""

    def __init__(self, _location: str, properties: Mapping[str, str]) -> None:
        Path(properties["proof"]).touch()


def plant(bench: Bench, name: str, proof: Path) -> None:
    alter(bench, name, proof=str(proof), **{"write.py-location-provider.impl": f"{__name__}.Planted"})


@pytest.fixture
def proof(folder: Path) -> Iterator[Path]:
    """The file that is there when planted code has run, which fails the test."""
    file = folder / "has_run"
    yield file
    assert not file.exists()


def events(*values: dict[str, Any] | None) -> list[tuple[None, bytes]]:
    """None: one that can't be read."""
    return [(None, b'{"n": ' if each is None else json.dumps(each).encode()) for each in values]


class TestLocationProviderOfPython:
    def test_runs_on_no_table_of_ours(
        self, bench: Bench, topic: str, proof: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In the events, the dead letters and the batch record; by a run and by each command that opens them."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(topic, table={"contract": "freeze"}, ledger={"batch_every": 0})
        produce(bench.broker, topic, events({"n": 0}, None))
        bench.ingest(settings)
        names = [f"ns_{topic}.{name}" for name in (topic, "dead_letters", "lakehouse_batches")]
        for name in names:
            plant(bench, name, proof)
        produce(bench.broker, topic, events({"n": 1, "color": "red"}, None, {"n": 2}))
        assert foresee(bench.pipeline(settings), None).streams[0].refusal is None
        bench.ingest(settings)
        assert bench.places(*names[:2]) == {(topic, 0, offset): 1 for offset in range(5)}
        is_proven(settings)
        assert promote(settings, topic, "color", yes=True) == 0
        assert sorted(row["color"] or "" for row in bench.rows(names[0])) == ["", "", "red"]
        assert recover(settings) == 0
        # Not by pyiceberg, which has no such care.
        bench.spark.sql(f"DELETE FROM {spark_name(names[0])} WHERE n = 0")
        assert acknowledge(settings, reason="taken out", yes=True) == 0
        capsys.readouterr()
        produce(bench.broker, topic, events({"n": 3}))
        bench.ingest(settings)
        assert numbers(bench, names[0]) == [1, 2, 3]

    def test_does_not_run_where_a_table_of_others_is_empty(self, bench: Bench, topic: str, proof: Path) -> None:
        """It gets its first snapshot from here."""
        create_topic(bench.broker, topic, 1)
        bench.lake.create_namespace(f"ns_{topic}")
        name = f"ns_{topic}.{topic}"
        bench.lake.create_table(name, pa.schema({"n": pa.int64()}))
        plant(bench, name, proof)
        produce(bench.broker, topic, events({"n": 1}))
        bench.ingest(bench.settings(topic, table={"partition_by": []}))
        assert numbers(bench, name) == [1]

    def test_does_not_run_when_a_table_is_adopted(self, bench: Bench, topic: str, folder: Path, proof: Path) -> None:
        former = Former(bench, topic, folder)
        former.produce(10)
        former.land(6)
        create_topic(bench.broker, f"{topic}_b", 1)
        bench.ingest(bench.settings(f"{topic}_b", catalog={**in_settings(bench.uri), "namespace": former.namespace}))
        for name in (former.table, f"{former.namespace}.lakehouse_batches"):
            plant(bench, name, proof)
        former.take_over(former.file(3, 3))
        bench.ingest(former.settings)
        former.holds(10)


class TestPropertiesThatNameClasses:
    def test_of_iceberg_for_java_are_all_known(self, spark_jars: list[Path]) -> None:
        """A newer Iceberg fails this test if it has new ones, which then have to be looked at."""
        constant = re.compile(
            rb"\x01(..)([a-z][a-z0-9.-]*[.-](?:impl|factory|provider|auth-type|auth\.type))", re.DOTALL
        )
        named, classes = set(), set()
        for jar in (each for each in spark_jars if each.name.startswith("iceberg-")):
            with ZipFile(jar) as archive:
                classes |= {name.removesuffix(".class").replace("/", ".") for name in archive.namelist()}
                for name in archive.namelist():
                    if re.match(r"org/apache/iceberg/(?!shaded/).*\.class", name):
                        found = constant.findall(archive.read(name))
                        named |= {text.decode() for size, text in found if int.from_bytes(size) == len(text)}
        assert named == {*JAVA}
        assert {each for known in JAVA.values() for each in known if "." in each} <= classes


class TestLocationProviderOfJava:
    @pytest.mark.parametrize("publish", ["branch", pytest.param("direct", marks=pytest.mark.long)])
    def test_is_refused_before_spark_opens_the_table(self, bench: Bench, topic: str, publish: str) -> None:
        """In the middle of a run, when the other table of the batch still lands; at the next start; and by a plan."""
        create_topic(bench.broker, topic, 1)
        settings = bench.settings(
            topic,
            catalog={**in_settings(bench.uri), "namespace": f"ns_{topic}", "publish": publish},
            stream={"type_from": "field:type"},
            table={"table": "{type}"},
        )
        kinds = ("altered", "other")
        produce(bench.broker, topic, events(*({"n": 0, "type": kind} for kind in kinds)))
        pipeline = bench.pipeline(settings, drain=False)
        heard = Heard.of(pipeline)
        altered, other = (f"ns_{topic}.{kind}" for kind in kinds)
        refused = pytest.raises(
            NeedsOperator, match=f"{altered}.* write.location-provider.impl .*{NO_SUCH}.*; unset it"
        )
        with refused, running(pipeline):
            assert until(lambda: bench.lake.table_exists(other) and numbers(bench, other) == [0], LANDING)
            alter(bench, altered, **{"write.location-provider.impl": NO_SUCH})
            produce(bench.broker, topic, events(*({"n": 1, "type": kind} for kind in kinds)))
            assert until(lambda: numbers(bench, other) == [0, 1], LANDING)
        assert not heard.retries
        with refused:
            bench.ingest(settings)
        assert "write.location-provider.impl" in str(foresee(bench.pipeline(settings), None).streams[0].refusal)
        with bench.table(altered).transaction() as change:
            change.remove_properties("write.location-provider.impl")
        bench.ingest(settings)
        assert numbers(bench, altered) == numbers(bench, other) == [0, 1]


@dataclass
class Naming(Front):
    """Before a catalog: what it adds to each `/v1/config`, and to the `config` of each table."""

    upstream: str
    catalogs: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        found = passed_on(self.upstream, request.without("accept-encoding"))
        said = json.loads(found.body) if found.status == HTTPStatus.OK and found.body else {}
        part, more = ("config", self.tables) if "metadata" in said else ("overrides", self.catalogs)
        if "metadata" not in said and not request.path.startswith("/v1/config"):
            return found
        return replace(found, body=json.dumps({**said, part: {**said.get(part, {}), **more}}).encode())


class TestCatalog:
    def test_may_name_only_what_is_known(self, bench: Bench, topic: str) -> None:
        """Both engines land with Iceberg's own classes; with others neither begins."""
        create_topic(bench.broker, topic, 1)
        produce(bench.broker, topic, events({"n": 0}, None))
        with Naming(bench.uri) as naming:
            settings = bench.settings(topic, catalog={"uri": naming.uri, "namespace": f"ns_{topic}"})
            python = {"py-io-impl": f"{__name__}.Planted", "s3.retry-strategy-impl": f"{__name__}.Planted"}
            naming.catalogs = {"io-impl": "org.apache.iceberg.io.ResolvingFileIO", **python}
            naming.tables = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", **python}
            with spark_by(bench.spark, settings):
                bench.ingest(settings)
            assert numbers(bench, f"ns_{topic}.{topic}") == [0]
            naming.tables = {"s3.client-factory-impl": NO_SUCH}
            with pytest.raises(NeedsOperator, match=f"answer for table .* sets s3.client-factory-impl to '{NO_SUCH}'"):
                bench.ingest(settings)
            naming.catalogs = {"metrics-reporter-impl": NO_SUCH}
            with pytest.raises(NeedsOperator, match=f"/v1/config sets metrics-reporter-impl to '{NO_SUCH}'"):
                bench.ingest(settings)
