"""Planted secrets appear nowhere: a pipeline writes, fails and stops, and all that it leaves or shows is searched.

`-s` prints what was searched, and for how much.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from threading import Thread
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from tests.services.command import Command
from tests.services.feeding import fill
from tests.services.kafka import create_topic
from tests.services.otlp import OtlpReceiver
from tests.services.pipelines import JAVA_OPTIONS, ROOT, Pipelines, Running, arguments, until
from tests.services.readers import Reader
from tests.services.surroundings import BUCKET, PREFIX, Locked, locked

# To build the store from an empty cache takes minutes.
pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]

NAME = "plants"  # a name with "secret" in it would have its own values hidden
EVENTS = 400
TABLES = ("events", "dead_letters", "lakehouse_batches")
SHOWN = "TESTS_SHOWN"  # the file for what Spark shows within the pipeline
DOORS = ("source.security.password", "source.security.key_password", "catalog.credential", "s3.secret_key")
REFUSED = 2


def planted(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(8)}"


def look(rows: pa.Table) -> pa.Table:
    """A transform, for within a task its frames can be seen. What they show, tools that report errors send along."""
    said, frame = [str(rows.schema)], sys._getframe().f_back
    while frame is not None:
        said.append(repr(frame.f_locals))
        frame = frame.f_back
    show("\n".join(said))
    return rows


def ask_spark() -> None:
    """Within the pipeline's process, which imports the transform, Spark can be asked for its settings."""
    if until(lambda: SparkSession._instantiatedSession is not None, 60.0):
        spark = SparkSession.active()
        show("\n".join(map(str, spark.sql("SET").collect() + spark.sql("SET -v").collect())))


def show(said: str) -> None:
    with Path(os.environ[SHOWN]).open("a") as file:
        file.write(said)


if SHOWN in os.environ:
    Thread(target=ask_spark, daemon=True).start()


# -- searching --------------------------------------------------------------------------------------------


def spellings(secret: str) -> Iterator[str]:
    """As it is, as others quote it, and wherever it may lie within something in base64; of PEM some lines of each."""
    lines = [line for line in secret.splitlines() if not line.startswith("-----")]
    for line in lines[:3]:
        yield from (line, json.dumps(line)[1:-1], repr(line)[1:-1], quote(line, safe=""), quote_plus(line))
        for before in range(3):
            data = bytes(before) + line.encode()
            # Its first and last characters depend on what is beside it.
            sure = base64.b64encode(data).decode()[-(-before * 8 // 6) : len(data) * 8 // 6]
            yield from (sure, sure.replace("+", "-").replace("/", "_"))


class Search:
    """What was found where; each place that was searched is printed."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.found: set[str] = set()
        self._spelled: dict[bytes, str] = {}
        self.learn(known)

    def learn(self, known: Mapping[str, str]) -> None:
        self._spelled |= {spelled.encode(): name for name, secret in known.items() for spelled in spellings(secret)}

    def text(self, where: str, said: object) -> None:
        data = str(said).encode()
        assert data, f"{where}: there was nothing to search"
        self._look_into(where, data)
        print(f"searched {where}: {len(data):,} bytes")

    def files(self, where: str, folder: Path, without: Collection[Path] = ()) -> None:
        count = size = 0
        for parent, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if Path(parent, name) not in without]
            for file in (Path(parent, name) for name in names if not name.endswith(".jar")):  # of known sums
                with suppress(OSError):  # those of a pipeline that runs come and go
                    data = file.read_bytes() if file.is_file() else b""
                    self._look_into(f"{where}, {file}", data)
                    count, size = count + 1, size + len(data)
        assert size, f"{where}: there was nothing to search"
        print(f"searched {where}: {count:,} files, {size:,} bytes")

    def _look_into(self, where: str, data: bytes) -> None:
        self.found |= {f"{name}: {where}" for spelled, name in self._spelled.items() if spelled in data}


class TestSearch:
    def test_finds_a_secret_in_every_spelling(self) -> None:
        secret = planted("it's \"q")
        search = Search({"it": secret})
        for number, said in enumerate(
            [
                secret,
                json.dumps({"a": secret}),
                quote(f"p={secret}"),
                base64.b64encode(f"id:{secret}".encode()).decode(),
                base64.urlsafe_b64encode(f"an-id:{secret}!".encode()).decode(),
                base64.b64encode(f"the-id:{secret}?".encode()).decode(),
            ]
        ):
            search.text(str(number), said)
        assert search.found == {f"it: {number}" for number in range(6)}


# -- what is planted --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plants:
    """The secrets by their settings, and the variables that hand them over; what is no secret stands in the file."""

    secrets: Mapping[str, str]
    environment: Mapping[str, str]


def plants(doors: Locked, collector: str, ui: int) -> Plants:
    authority = doors.kafka.authority
    key_password = planted("key-password")
    by_variable = {
        "source.security.password": planted("it's \"p+/="),
        "source.security.ca": authority.text("ca.crt"),
        "source.security.certificate": authority.text("client.crt"),
        "source.security.key": Path(authority.lock("client", key_password)).read_text(),
        "source.security.key_password": key_password,
        "source.security.client_secret": planted("client"),
        "catalog.credential": doors.gateway.credential,
        "catalog.headers.x_key": planted("header"),
        "s3.access_key": doors.store.access_key,
        "s3.secret_key": doors.store.secret_key,
        "telemetry.headers.x_key": planted("collector"),
    }
    by_key = {
        "source.options": {"sasl.oauthbearer.extensions": planted("tenant=x")},
        "catalog.properties": {
            "adls.account-key": planted("account"),
            "adls.sas-token.lake": planted("sas"),
            "some.passphrase": planted("phrase"),
        },
        "spark.options": {
            "spark.hadoop.fs.s3a.secret.key": planted("hadoop"),
            "spark.hadoop.fs.azure.account.key.lake": planted("azure"),
            "spark.ssl.ui.keyPassword": planted("store"),
            "spark.some.api.key": planted("api"),
        },
    }
    others = {
        "source.security.username": "planted",
        "source.security.client_id": "planted",
        "streams": f'[{{transform: "{__name__}:look"}}]',
        "telemetry": json.dumps({"traces": True, "metrics": True, "exporter": "otlp_http", "endpoint": collector}),
        "log.level": "debug",
        "health.port": "0",
    }
    shown = {"spark.options": {"spark.ui.enabled": "true", "spark.ui.port": str(ui)}}
    mappings = {name: json.dumps({**values, **shown.get(name, {})}) for name, values in by_key.items()}
    given = {**by_variable, **mappings, **others}
    doors.kafka.broker.let_in("planted", by_variable["source.security.password"])
    doors.gateway.headers = {"x_key": by_variable["catalog.headers.x_key"]}
    return Plants(
        {
            **by_variable,
            **{f"{name} {key}": value for name, values in by_key.items() for key, value in values.items()},
            "catalog.credential": doors.gateway.client[1],
            "the key, unlocked": authority.text("client.key"),
        },
        {variable(name): value for name, value in given.items()},
    )


def variable(setting: str) -> str:
    return f"{PREFIX}{setting.replace('.', '__').upper()}"


def tokens(doors: Locked) -> dict[str, str]:
    """Those that the catalog's gate has given out so far."""
    return {f"token {number}": token for number, token in enumerate(doors.gateway._tokens)}


def search_what_runs(search: Search, running: Running, scratch: Path, ui: int) -> None:
    search.text("the arguments of Spark", arguments(running.jvm()).decode())
    for pid in [running.pid, *running.family()]:
        if said := arguments(pid).decode():  # Python's workers end whenever they like
            search.text(f"the arguments of process {pid}", said)
    search.files("the scratch folder", scratch)
    for address in ("/", "/live", "/ready", "/status.json", "/metrics"):
        search.text(address, page_of_health(running.wait_for("health_serves")["url"] + address))
    site = f"http://{LOOPBACK}:{ui}"
    (application,) = json.loads(page(f"{site}/api/v1/applications"))
    api = f"{site}/api/v1/applications/{application['id']}"
    assert "redacted" in page(f"{api}/environment")
    pages = ("environment", "sql?details=true&planDescription=true&length=1000", "jobs", "stages?details=true")
    for address in [
        f"{site}/environment/",
        f"{site}/SQL/",
        f"{site}/StreamingQuery/",
        *(f"{api}/{it}" for it in pages),
    ]:
        search.text(address, page(address))


def page_of_health(address: str) -> str:
    try:
        return page(address)
    except urllib.error.HTTPError as refused:  # not ready, and why
        return refused.read().decode()


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def search_other_verbs(search: Search, config: Path, environment: Mapping[str, str]) -> None:
    for verb in (["settings"], ["settings", "--json"], ["check"], ["status"]):
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse_ingest", "--debug", *verb, "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        search.text(" ".join(verb), done.stdout + done.stderr)


def refuse(search: Search, pipelines: Pipelines, settings: str) -> None:
    """Starts that fail at a door: there a client's own words are nearest to the secret."""
    environment = dict(pipelines.environment)
    with pipelines:
        for name in DOORS:
            wrong = planted("wrong")
            search.learn({f"a wrong {name}": wrong})
            pipelines.environment = {**environment, variable(name): f"ingest:{wrong}"}
            running = pipelines.start(settings, "--allow-code")
            assert running.wait(90) == REFUSED, running.tail()


def search_tables(search: Search, reader: Reader) -> None:
    search.text("the namespace", reader.catalog.load_namespace_properties(reader.namespace))
    for name in TABLES:
        table = reader.table(name)
        search.text(f"properties and snapshots of {name}", table.metadata.model_dump_json())
        search.text(f"rows of {name}", table.scan().to_arrow().to_pylist())


SECRET = "s3cr3t-planted-beside"


class TestPlantedSecrets:
    def test_appear_nowhere(self, tmp_path: Path, jars_folder: Path | None) -> None:
        folders = home, scratch, warehouse, outside = [
            tmp_path / name for name in ("home", "scratch", "lake", "outside")
        ]
        for folder in folders:
            folder.mkdir()
        ui = any_free_port()
        with locked(outside, jars_folder) as doors, OtlpReceiver() as collector:
            plant = plants(doors, collector.endpoint_http, ui)
            search = Search(plant.secrets)
            create_topic(doors.kafka.plain, NAME)
            fill(doors.kafka.plain, NAME, EVENTS)
            settings = doors.surroundings.settings(NAME, NAME, max_records=EVENTS // 4)
            with Pipelines(home, jars_folder) as pipelines:
                pipelines.environment |= {
                    **plant.environment,
                    SHOWN: str(home / "shown.txt"),
                    "TMPDIR": str(scratch),
                    "JAVA_TOOL_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
                }
                running = pipelines.start(settings, "--allow-code")
                running.wait_for("batch_landed", 3)
                search.learn(tokens(doors))
                search_what_runs(search, running, scratch, ui)
                good, doors.gateway.client = doors.gateway.client, ("ingest", "turned")
                doors.gateway.revoke()
                fill(doors.kafka.plain, NAME, EVENTS)
                running.wait_for("retrying", 2)
                search.learn(tokens(doors))
                search_what_runs(search, running, scratch, ui)
                search_other_verbs(search, home / "pipeline-1.toml", pipelines.environment)
                running.send(SIGTERM)
                assert running.wait() == 0, running.tail()
                doors.gateway.client = good
                (home / "refused").mkdir()
                refuse(search, Pipelines(home / "refused", jars_folder, environment=pipelines.environment), settings)
            search.learn(tokens(doors))
            search.text("the spans", collector.spans())
            search.text("the metrics", collector.metrics())
            search_tables(search, doors.surroundings.reader(NAME))
            for number, key in enumerate(doors.store.keys(BUCKET)):
                doors.store.client.download_file(BUCKET, key, str(warehouse / f"{number}-{Path(key).name}"))
        search.files("the warehouse", warehouse)
        search.files("the settings file, the logs, what Spark showed within", home)
        search.files("the catalog's own folder", outside / "catalog")
        search.files("the working directory", ROOT, set(ROOT.glob(".*")))
        shown = (home / "shown.txt").read_text()
        assert "redacted" in shown
        assert "KafkaReader(" in shown
        assert not search.found, "\n".join(sorted(search.found))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"source.security.pasword": SECRET},
            {"source.security.password": SECRET},
            {"source.security.username": "u", "source.security.password": SECRET, "source.security.protocol": "ssl"},
            {"source.security": SECRET},
            {"source.security.ca": SECRET},
            {"source.security.ca.fiel": SECRET},
            {"source.options": f'{{"sasl.password": "{SECRET}"}}'},
            {"source.options": f'{{"sasl.pasword": "{SECRET}"}}'},
            {"source.options": SECRET},
            {"catalog.token": f'["{SECRET}"]'},
            {"catalog.token.fiel": SECRET},
            {"catalog.token.file": SECRET},
            {"catalog.headers": SECRET},
            {"catalog.headers": f"{{broken: {SECRET}"},
            {"catalog.uri": f"ftp://user:{SECRET}@host"},
            {"catalog.properties": f'{{"type": "hive", "password": "{SECRET}"}}'},
            {"catalog": SECRET},
            {"s3.secret_key": SECRET},
            {"s3": SECRET},
            {"telemetry.headers": SECRET},
            {"telemetry.header": SECRET},
            {"spark.options": SECRET},
            {"password": SECRET},
        ],
        ids="-".join,
    )
    def test_in_a_wrong_setting_are_not_shown_by_the_refusal(
        self, wrong: dict[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        environment = {variable(name): value for name, value in wrong.items()}
        assert SECRET not in said_at_start(Command(capsys), environment=environment)

    @pytest.mark.parametrize("text", ['token = "{}', "token = {}", 'catalog.token = "{}"\ncatalog = 1', '["{}"'])
    def test_in_a_broken_settings_file_are_not_quoted(
        self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = tmp_path / "broken.toml"
        config.write_text(text.format(SECRET))
        assert SECRET not in said_at_start(Command(capsys), "--config", config)


def said_at_start(command: Command, *words: object, environment: Mapping[str, str] | None = None) -> str:
    """The sentence, and the traceback that there is with `--debug`."""
    said = command("run", "--topics", "t", *words, environment=environment)
    assert said.code == REFUSED, said
    debugged = command("--debug", "run", "--topics", "t", *words, environment=environment)
    assert debugged.code == REFUSED
    assert "Traceback" in debugged.err
    return said.out + said.err + debugged.out + debugged.err
