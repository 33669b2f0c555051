"""What can go wrong before a pipeline first works: each case gives one sentence with the setting, and an exit code."""

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lakehouse_ingest.environment import java
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from tests.services.command import Command, Said
from tests.services.feeding import fill
from tests.services.kafka import create_topic
from tests.services.pipelines import settings_text

pytestmark = pytest.mark.live

LONGEST = 200
SECRET = "s3cr3t-planted"
WRONG, ASK, AWAY = 2, 3, 4  # exit codes: mend the settings; a person decides; it may come back


@dataclass(frozen=True)
class Case:
    """Settings that are wrong in one way; `{tmp}` stands for a folder of the test's own."""

    says: str  # a regular expression
    code: int = WRONG
    toml: str = '[[streams]]\ntopics = ["x"]\n'
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()


STREAM = '[[streams]]\ntopics = ["x"]\n'
TABLE = f"{STREAM}[[streams.tables]]\n"
SETTINGS: Mapping[str, Case] = {
    "an unknown key": Case(
        r"unknown setting `source.broker` \(p.toml line 4\); did you mean `brokers`",
        toml=f'{STREAM}[source]\nbroker = "x"',
    ),
    "an unknown section": Case(r"unknown setting `sourc`.*did you mean `source`", toml=f"{STREAM}[sourc]\n"),
    "an unknown variable": Case(
        r"`catalog.url` \(LAKEHOUSE_INGEST_CATALOG__URL\); did you mean `uri`",
        environment={"LAKEHOUSE_INGEST_CATALOG__URL": "x"},
    ),
    "a variable within a value": Case(
        r"LAKEHOUSE_INGEST_CATALOG__URI sets a key within `catalog`",
        environment={"LAKEHOUSE_INGEST_CATALOG": "x", "LAKEHOUSE_INGEST_CATALOG__URI": "x"},
    ),
    "no duration": Case(
        r"`streams.0.every` \(p.toml line 3\) should be a duration such as 5s.*, not 'soon'",
        toml=f'{STREAM}every = "soon"',
    ),
    "no size": Case(
        r"`streams.0.tables.0.target_file_size` \(p.toml line 4\) should be a size",
        toml=f'{TABLE}target_file_size = "big"',
    ),
    "no choice": Case(
        r"`streams.0.tables.0.codec` .* should be 'zstd', .*, not 'brotli'", toml=f'{TABLE}codec = "brotli"'
    ),
    "no number": Case(
        r"`streams.0.max_records` .* should be a whole number, not 'many'", toml=f'{STREAM}max_records = "many"'
    ),
    "a number that is too small": Case(
        r"`ledger.keep_snapshots` .* greater than or equal to 2, not '1'", toml=f"{STREAM}[ledger]\nkeep_snapshots = 1"
    ),
    "no topics": Case(r"`streams.0` .* either `topics` or a `topic_pattern`", toml="[[streams]]\nevery = 1"),
    "nothing at all": Case(r"nothing to ingest: name a topic with --topics", toml=""),
    "several topics and no name": Case(r"the setting `name` is missing", toml='[[streams]]\ntopics = ["x", "y"]'),
    "a name that is none": Case(
        r"`name` \(--name\) should be up to 64 lower-case letters.*, not 'Plant 7'", words=("--name", "Plant 7")
    ),
    "a start that is none": Case(
        r"`source.start` \(--start\) should be 'earliest' or 'latest'", words=("--start", "yesterday")
    ),
    "offsets that are none": Case(r"`source.seek` \(--seek\) should be offsets by partition", words=("--seek", "41")),
    "a pattern that is none": Case(
        r"`streams.0.topic_pattern` .* regular expression", toml='name = "x"\n[[streams]]\ntopic_pattern = "("'
    ),
    "types that are nowhere": Case(r"`streams.0` .* set `type_from`", toml=f'{TABLE}table = "{{type}}"'),
    "a user without a password": Case(
        r"`source.security` .* both `username` and `password`", toml=f'{STREAM}[source.security]\nusername = "me"'
    ),
    "a secret's file that is gone": Case(
        r"`catalog.token` \(LAKEHOUSE_INGEST_CATALOG__TOKEN__FILE\) names a file that can't be read",
        environment={"LAKEHOUSE_INGEST_CATALOG__TOKEN__FILE": "{tmp}/gone"},
    ),
    "a certificate's file that is gone": Case(
        r"`source.security.ca` .* names a file that can't be read",
        toml=f'{STREAM}[source.security]\nca = "{{tmp}}/gone.pem"',
    ),
    "a certificate that is none": Case(
        r"`source.security.ca` .* should be PEM", toml=f'{STREAM}[source.security]\nca = "{{tmp}}/p.toml"'
    ),
    "half a key of S3": Case(r"`s3` .* both `access_key` and `secret_key`", toml=f'{STREAM}[s3]\naccess_key = "x"'),
    "a settings file that is not well formed": Case(r"p.toml is not well formed: Invalid value", toml="name = "),
    "a catalog that is not REST": Case(
        r"`catalog.uri` \(--catalog-uri\) should be the http.* not thrift:",
        words=("--catalog-uri", "thrift://metastore:9083"),
    ),
    "a catalog of another kind": Case(
        r"`catalog.properties` .*sets type = 'glue'", toml=f'{STREAM}[catalog.properties]\ntype = "glue"'
    ),
    "a client setting that is ours": Case(
        r"auto.offset.reset.*source.start", toml=f'{STREAM}[source.options]\n"auto.offset.reset" = "latest"'
    ),
    "a client setting that is none": Case(
        r"sesion.timeout.ms in `source.options` .*did you mean session.timeout.ms",
        toml=f'{STREAM}[source.options]\n"sesion.timeout.ms" = "1"',
    ),
    "a column that is no type": Case(
        r"`columns` \(p.toml line 4\) or `hints` give n the type .varint.*not known",
        toml=f'{TABLE}columns = [{{ name = "n", type = "varint" }}]',
    ),
    "a partition that is none": Case(
        r"`partition_by` \(p.toml line 4\) can.t be understood: .week",
        toml=f'{TABLE}partition_by = ["week(event_time)"]',
    ),
    "code that is not allowed": Case(r"`streams.transform` .*--allow-code", toml=f'{STREAM}transform = "os:system"'),
    "a transform that nobody has": Case(
        r"`streams.transform` .*names nobodys.*none is installed", toml=f'{STREAM}transform = "nobodys"'
    ),
    "an endpoint of telemetry that is none": Case(
        r"`telemetry.endpoint`|endpoint", toml=f'{STREAM}[telemetry]\ntraces = true\nendpoint = "nowhere"'
    ),
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: a path of the user's own counts in a sentence's length, but is not ours."""
    with tempfile.TemporaryDirectory(prefix="li-") as made:
        yield Path(made)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def expect(
    command: Callable[..., Said], case: Case, *words: object, environment: Mapping[str, str] | None = None
) -> None:
    said = command(*words, environment=environment)
    assert said.code == case.code, said.err
    assert re.search(case.says, said.sentence), said.sentence
    assert len(said.sentence) <= LONGEST, f"{len(said.sentence)} characters: {said.sentence}"
    assert "Traceback" not in said.err


class TestWrongSetting:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_is_named_in_one_sentence(self, name: str, command: Command, folder: Path) -> None:
        case = SETTINGS[name]
        file = folder / "p.toml"
        file.write_text(case.toml.replace("{tmp}", str(folder)), encoding="utf-8")
        environment = {key: value.replace("{tmp}", str(folder)) for key, value in case.environment.items()}
        words = ("run", "--config", file, "--warehouse", folder / "warehouse", "--until-latest", *case.words)
        expect(command, case, *words, environment=environment)

    def test_gets_a_traceback_as_well_with_debug(self, command: Command) -> None:
        said = command("--debug", "run", "--topics", "x", "--every", "soon")
        assert said.code == WRONG
        assert "Traceback" in said.err
        assert said.sentence.startswith("the setting `streams.0.every` (--every) should be a duration")


# -- the machine ------------------------------------------------------------------------------------------


def fake_java(folder: Path, release: str) -> Path:
    home = folder / f"java-{release}"
    (home / "bin").mkdir(parents=True)
    found = home / "bin" / "java"
    found.write_text(f"#!/bin/sh\necho 'openjdk version \"{release}.0.1\"' >&2\n", encoding="utf-8")
    found.chmod(0o755)
    return found


@pytest.fixture
def nonsense() -> Iterator[str]:
    """A server that is no catalog."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Welcome</html>")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestErrorMessage:
    @pytest.mark.parametrize(
        ("release", "says"), [(None, "No Java was found: install Java 17 or 21"), ("11", "found only Java 11 at")]
    )
    def test_names_a_java_that_is_missing_or_too_old(
        self, release: str | None, says: str, command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = [fake_java(folder, release)] if release else []
        monkeypatch.setattr(java, "_candidates", lambda *_: iter(there))
        for verb in ("run", "check"):
            said = command(verb, "--topics", "x", "--brokers", "127.0.0.1:1", "--warehouse", folder / "w")
            assert said.code == WRONG
            assert says in (said.err if verb == "run" else said.out)

    def test_names_a_folder_that_lacks_a_jar(self, command: Command, folder: Path) -> None:
        expect(
            command,
            Case(r"LAKEHOUSE_INGEST_JARS names .* is missing"),
            "run",
            "--topics",
            "x",
            "--warehouse",
            folder / "w",
            "--jars",
            folder,
        )

    def test_names_a_warehouse_that_cannot_be_written(self, command: Command, folder: Path) -> None:
        (folder / "file").write_text("")
        expect(
            command,
            Case(r"can't be written .*choose another place"),
            "run",
            "--topics",
            "x",
            "--warehouse",
            folder / "file" / "w",
        )

    def test_names_the_process_that_already_serves_the_warehouse(
        self, command: Command, folder: Path, jars_folder: Path | None
    ) -> None:
        with EmbeddedCatalog(folder, port=0, jars=jars_folder):
            case = Case(r"is already served by process \d+ at http://127.0.0.1:\d+: use .*--catalog-uri")
            expect(command, case, "run", "--topics", "x", "--warehouse", folder)

    def test_names_a_port_that_is_taken(self, command: Command, folder: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            expect(
                command,
                Case(rf"Port {port} of 127.0.0.1 is taken"),
                "catalog",
                "serve",
                "--warehouse",
                folder,
                "--port",
                port,
            )

    @pytest.mark.parametrize(
        ("setting", "says"),
        [
            ('memory = "lots"', r"settings under `spark` \(p.toml line 3\): Invalid maximum heap size"),
            (
                'master = "nowhere"',
                r"settings under `spark` \(p.toml line 3\): .*Master must either be yarn or start with",
            ),
        ],
    )
    def test_names_a_setting_that_spark_refuses(self, setting: str, says: str, command: Command, folder: Path) -> None:
        (folder / "p.toml").write_text(f"{STREAM}[spark]\n{setting}\n", encoding="utf-8")
        expect(command.apart, Case(says), "run", "--config", folder / "p.toml", "--warehouse", folder / "w")

    def test_of_check_names_brokers_and_catalog_out_of_reach(self, command: Command) -> None:
        """`check` says what is wrong with each of them, and leaves out what depends on them."""
        words = ("--topics", "x", "--brokers", "127.0.0.1:1", "--catalog-uri", "http://127.0.0.1:1")
        said = command("check", *words)
        assert said.code == AWAY
        found = {line.split()[1]: line for line in said.out.splitlines()}
        assert re.search(r"^ok  java +Java (17|21) at ", found["java"])
        assert re.search(
            r"^no  topics .*`source\.brokers` \(--brokers\) at 127\.0\.0\.1:1: .*refused", found["topics"]
        ), found["topics"]
        assert re.search(r"^no  catalog .*127\.0\.0\.1:1.*`catalog\.uri` \(--catalog-uri\)", found["catalog"]), found[
            "catalog"
        ]
        assert "spark" not in found
        assert max(map(len, said.out.splitlines())) <= LONGEST

    def test_names_brokers_that_a_run_gave_up_on(self, command: Command, folder: Path) -> None:
        case = Case(
            r"given up after 0 s: no answer from `source\.brokers` \(--brokers\) at 127\.0\.0\.1:1: .*refused", AWAY
        )
        words = ("run", "--topics", "x", "--brokers", "127.0.0.1:1", "--warehouse", folder)
        expect(command.apart, case, *words, environment={"LAKEHOUSE_INGEST_RETRY__LIMIT": "0s"})

    def test_names_a_topic_that_does_not_exist(self, command: Command, folder: Path, broker: str) -> None:
        case = Case(r"the topic nobodys is not there .*`streams\.topics` \(--topics\)", AWAY)
        words = ("run", "--topics", "nobodys", "--brokers", broker, "--warehouse", folder)
        expect(command.apart, case, *words, environment={"LAKEHOUSE_INGEST_RETRY__LIMIT": "0s"})

    def test_names_the_setting_of_a_server_that_is_no_catalog(
        self, command: Command, nonsense: str, broker: str
    ) -> None:
        said = command("check", "--topics", "x", "--brokers", broker, "--catalog-uri", nonsense)
        (line,) = [line for line in said.out.splitlines() if line.startswith("no  catalog")]
        assert re.search(r"`catalog\.uri` \(--catalog-uri\)", line), line
        assert len(line) <= LONGEST, line
        assert "Welcome" not in line

    def test_says_that_the_disk_is_full(self, folder: Path, broker: str, topic: str) -> None:
        create_topic(broker, topic, 1)
        fill(broker, topic, 20_000, 1)
        (folder / "p.toml").write_text(
            settings_text(topic, broker, None, topic, retry="1s").replace(
                "[catalog]\n", f'[catalog]\npath = "{folder}/small/w"\n'
            )
        )
        small = f"mount -t tmpfs -o size=400k tmpfs {folder}/small && exec"
        (folder / "small").mkdir()
        run = f"{sys.executable} -m lakehouse_ingest run --config {folder}/p.toml --until-latest"
        ended = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{small} {run}"],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        last = ended.stderr.strip().splitlines()[-1]
        assert re.search(r"No space left on device|disk is full", last), ended.stderr[-3000:]
        assert last.startswith("lakehouse-ingest: ")
        assert len(last.removeprefix("lakehouse-ingest: ")) <= LONGEST, last
        assert ended.returncode == AWAY
