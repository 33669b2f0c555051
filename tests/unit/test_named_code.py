"""Whoever may write a settings file runs no code by it, unless who starts the program allows that."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.errors import LONGEST, SettingsRefused
from lakehouse_ingest.pipeline.assembly import refuse_early
from lakehouse_ingest.settings import load_settings
from lakehouse_ingest.settings.named_code import names_code
from tests.services.command import Command

ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp.example/token"
SPARK = {
    "spark.driver.extraJavaOptions": "-javaagent:/tmp/a.jar",
    "spark.executor.extraJavaOptions": f"{ALLOWED_URLS} -agentpath:/tmp/a.so",
    "spark.driver.defaultJavaOptions": "-XX:OnOutOfMemoryError=sh",
    "spark.yarn.am.extraJavaOptions": "@/tmp/arguments",
    "spark.plugins": "evil.Plugin",
    "spark.jars": "/tmp/a.jar",
    "spark.jars.packages": "evil:evil:1",
    "spark.files": "/tmp/a.py",
    "spark.submit.pyFiles": "/tmp/a.py",
    "spark.python.daemon.module": "evil",
    "spark.python.worker.module": "evil",
    "spark.pyspark.python": "/tmp/python",
    "spark.driver.extraClassPath": "/tmp",
    "spark.executor.extraLibraryPath": "/tmp",
    "spark.executorEnv.LD_PRELOAD": "/tmp/a.so",
    "spark.extraListeners": "evil.Listener",
    "spark.sql.queryExecutionListeners": "evil.Listener",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,evil.Extensions",
    "spark.serializer": "evil.Serializer",
    "spark.kryo.registrator": "evil.Registrator",
    "spark.shuffle.manager": "evil.Manager",
    "spark.io.compression.codec": "evil.Codec",
    "spark.ui.filters": "evil.Filter",
    "spark.sql.catalog.other": "evil.Catalog",
    "spark.sql.sources.commitProtocolClass": "evil.Protocol",
    "spark.sql.streaming.stateStore.providerClass": "evil.Provider",
    "spark.metrics.conf.*.sink.evil.class": "evil.Sink",
    "spark.executor.resource.gpu.discoveryScript": "/tmp/a.sh",
    "spark.kubernetes.executor.container.image": "evil",
    "spark.kubernetes.driver.podTemplateFile": "/tmp/pod.yaml",
    "spark.hadoop.fs.evil.impl": "evil.FileSystem",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "evil.Provider",
    "spark.something.that.is.new": "com.evil.Anything",
    "spark.something.else.that.is.new": "evil.Anything",
    "spark.hadoop.fs.s3a.custom.signers": "a:org.evil.Signer",
    "spark.hadoop.hadoop.security.group.mapping": "Evil",
    "spark.kryo.classesToRegister": "evil.Main",
    "spark.hadoop.net.topology.script.file.name": "/tmp/evil.sh",
    "spark.sql.catalog.spark_catalog": "Evil",
}
CATALOG = {
    "py-io-impl": "evil.FileIO",
    "io-impl": "evil.FileIO",
    "rest.auth.type": "evil.Manager",
    "metrics-reporter-impl": "evil.Reporter",
    "client.credentials-provider": "evil.Provider",
    "client.factory": "evil.Factory",
    "s3.retry-strategy-impl": "evil.Retry",
    "table-default.write.py-location-provider.impl": "builtins.exec",
    "auth": "evil",
}
TABLE = {"write.py-location-provider.impl": "builtins.exec", "write.location-provider.impl": "evil.Provider"}
SOURCE = {"ssl.engine.location": "/tmp/a.so", "ssl.providers": "evil"}
JAVAS = {
    "metric.reporters": "evil.Reporter",
    "security.providers": "evil.Provider",
    "sasl.login.class": "evil.Login",
    "ssl.engine.factory.class": "evil.Factory",
    "partition.assignment.strategy": "evil.Assignor",
}
NAMED = [
    *(("spark.options", each) for each in SPARK.items()),
    *(("catalog.properties", each) for each in CATALOG.items()),
    *(("streams.tables.properties", each) for each in TABLE.items()),
    *(("source.options", each) for each in [*SOURCE.items(), *JAVAS.items()]),
]


def tree(where: str, options: dict[str, str]) -> dict[str, Any]:
    section, _, name = where.rpartition(".")
    stream: dict[str, Any] = {"topics": ["t"]}
    if section == "streams.tables":
        return {"streams": [{**stream, "tables": [{name: options}]}]}
    return {"streams": [stream], section: {name: options}}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


class TestNamedCode:
    @pytest.mark.parametrize(("where", "said"), NAMED, ids=[said[0] for _, said in NAMED])
    def test_in_a_setting_is_refused_unless_allowed(self, where: str, said: tuple[str, str]) -> None:
        settings = load_settings(None, tree(where, dict([said])), {})
        with pytest.raises(
            SettingsRefused, match=r"names code: .*--allow-code.*LAKEHOUSE_INGEST_ALLOW_CODE=1"
        ) as refused:
            refuse_early(settings, allow_code=False)
        assert str(refused.value).startswith(f"`{where}.{said[0]}` ")
        assert len(str(refused.value)) <= LONGEST
        if said[0] in JAVAS:
            with pytest.raises(SettingsRefused, match=f"^only Kafka's Java client knows {said[0]}"):
                refuse_early(settings, allow_code=True)
        else:
            assert refuse_early(settings, allow_code=True) == [None]

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("spark.executor.extraJavaOptions", f"{ALLOWED_URLS} -Xss4m -XX:MaxRAMPercentage=70.5 -XX:+UseZGC"),
            ("spark.driver.defaultJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
            ("spark.executor.memory", "4g"),
            ("spark.sql.shuffle.partitions", "8"),
            ("spark.ui.enabled", "true"),
            ("spark.io.compression.codec", "zstd"),
            ("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"),
            ("spark.serializer", "org.apache.spark.serializer.KryoSerializer"),
            ("spark.hadoop.fs.s3a.endpoint", "https://s3.eu-central-1.amazonaws.com"),
            ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
            ("spark.driver.host", "driver.example.com"),
            ("io-impl", "org.apache.iceberg.aws.s3.S3FileIO"),
            ("py-io-impl", "pyiceberg.io.fsspec.FsspecFileIO"),
            ("rest.auth.type", "oauth2"),
            ("uri", "https://lake.example.com/api"),
            ("credential", "Ann.Smith:secret"),
            ("token", "eyJhbGciOiJ.eyJzdWIiOiIx.Kq9abc"),
            ("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
            ("client.rack", "eu-central-1a"),
            ("write.parquet.compression-codec", "zstd"),
            ("write.data.path", "s3://bucket/Data.Lake/t"),
            ("owner", "somebody"),
        ],
    )
    def test_is_not_suspected_in_harmless_settings(self, key: str, value: str) -> None:
        assert not names_code(key, value)

    @pytest.mark.parametrize(
        "option",
        [
            *(
                "-javaagent:a.jar",
                "-agentlib:jdwp",
                "-agentpath:a.so",
                "-cp",
                "-Xbootclasspath/a:a.jar",
                "@file",
                "-jar",
            ),
            *("-XX:OnError=sh", "-XX:OnOutOfMemoryError=sh", "-XX:Flags=f", "-XX:VMOptionsFile=f", "-XX:+EnableJVMCI"),
            *("-Djava.system.class.loader=e.L", "-Dlog4j2.configurationFile=http://e", "-Djava.security.manager=e.M"),
            *("-Xmx1g;sh", '"-Xmx1g', "-Xmx1g\\", "-XX:SharedArchiveFile=f", "-Dunknown=1", "--add-modules=e"),
        ],
    )
    def test_is_found_in_java_options(self, option: str) -> None:
        assert names_code("spark.executor.extraJavaOptions", f"-Xmx1g {option} {ALLOWED_URLS}")

    @pytest.mark.parametrize("verb", ["run", "plan", "status", "verify", "files", "recover", "acknowledge", "adopt"])
    def test_is_refused_by_every_command_with_setting_and_line(
        self, verb: str, command: Command, tmp_path: Path
    ) -> None:
        file = tmp_path / "p.toml"
        file.write_text(
            '[[streams]]\ntopics = ["t"]\n[catalog.properties]\nprefix = "x"\n"py-io-impl" = "evil.FileIO"\n'
        )
        said = command(verb, "--config", file, "--catalog-uri", "http://127.0.0.1:1")
        assert said.code == 2
        assert (
            "`catalog.properties.py-io-impl` (p.toml line 5) names code: a settings file may do so only with"
            in said.sentence
        )

    def test_in_a_variable_is_refused_with_the_variable(self, command: Command) -> None:
        variable = "LAKEHOUSE_INGEST_SPARK__OPTIONS__spark.plugins"
        said = command("run", "--topics", "t", environment={variable: "evil.Plugin"})
        assert f"`spark.options.spark.plugins` ({variable}) names code" in said.sentence

    @pytest.mark.parametrize("verb", ["status", "plan"])
    def test_is_accepted_by_the_flag_or_the_variable(self, verb: str, command: Command) -> None:
        """By the flag or the variable: the next thing that is wrong is said then."""
        environment = {"LAKEHOUSE_INGEST_CATALOG__PROPERTIES__io-impl": "evil.FileIO"}
        words = (verb, "--topics", "t", "--catalog-uri", "thrift://x")
        assert "names code" in command(*words, environment=environment).sentence
        assert "should be the http" in command(*words, "--allow-code", environment=environment).sentence
        allowed = {**environment, "LAKEHOUSE_INGEST_ALLOW_CODE": "1"}
        assert "should be the http" in command(*words, environment=allowed).sentence
