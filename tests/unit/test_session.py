"""What of a session can be seen from outside."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.spark_process import HOME, MEMORY, OTHERS, Line, command, environment, spark_process
from lakehouse_ingest.environment.spark_session import IMPORT_PATHS, _arguments, _catalog_options, _options
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import SparkSettings
from telemetry.testing import recorded

JAVA = Path("/java/bin/java")


class TestOptions:
    def test_keep_secrets_of_the_catalog_out_of_a_command_line(self, tmp_path: Path) -> None:
        catalog = {"uri": "http://localhost:8181", "token": "planted-1", "s3.secret-access-key": "planted-2"}
        options = {**_catalog_options(catalog), **_options("plant", SparkSettings(), [Path("a.jar")], tmp_path)}
        assert "planted" in str(options)
        assert "planted" not in str(command(JAVA, _arguments(options)))
        assert _arguments(options)["spark.jars"] == "a.jar"

    def test_keep_temporary_files_of_java_in_our_folder(self, tmp_path: Path) -> None:
        """Unless the settings name another: of two options the last one counts."""
        theirs = {"spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/theirs"}
        scratch = tmp_path / "with a space"
        given = _options("plant", SparkSettings(options=theirs), [], scratch)["spark.driver.extraJavaOptions"]
        folders = [word for word in shlex.split(given) if word.startswith("-Djava.io.tmpdir=")]
        assert folders == [f"-Djava.io.tmpdir={scratch / 'java'}", "-Djava.io.tmpdir=/theirs"]

    def test_put_jars_of_the_settings_beside_ours(self, tmp_path: Path) -> None:
        settings = SparkSettings(options={"spark.jars": "/opt/b.jar,/opt/c.jar"})
        assert _options("plant", settings, [Path("a.jar")], tmp_path)["spark.jars"] == "a.jar,/opt/b.jar,/opt/c.jar"


class TestCommand:
    def test_is_that_of_sparks_own_script(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """But for our jars, and for a module of Java that only Spark's library for machine learning uses."""
        options = {
            "spark.master": "local[*]",
            "spark.driver.memory": "3g",
            "spark.driver.extraJavaOptions": '-Da="b c" -Xss4m',
            "spark.driver.defaultJavaOptions": "-XX:+UseSerialGC",
            "spark.driver.extraClassPath": "/opt/x.jar:/opt/y",
        }
        for name, value in {"SPARK_SUBMIT_OPTS": "-Dsubmitted=1", "HADOOP_CONF_DIR": "/etc/hadoop"}.items():
            monkeypatch.setenv(name, value)
        java, launcher = find_java(), "org.apache.spark.launcher.Main"
        words = command(java, options, [tmp_path / "ours.jar"])
        asked = words[words.index("org.apache.spark.deploy.SparkSubmit") :]
        said = subprocess.run(
            [java, "-cp", HOME / "jars" / "*", launcher, *asked],
            env=environment(java, options),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        theirs = said.strip("\0\n").split("\0")
        theirs.remove("--add-modules=jdk.incubator.vector")
        ours = [word.replace(f":{tmp_path / 'ours.jar'}", "") for word in words]
        first = ours.index("--conf")  # the launcher keeps no order among these
        assert ours[:first] == theirs[:first]
        assert sorted(ours[first:]) == sorted(theirs[first:])

    def test_begin_java_small_unless_the_settings_say_otherwise(self, tmp_path: Path) -> None:
        """The last of two options counts, and who names a collector gets it: ours would be a second one."""
        theirs = "-Xms1g -XX:+UseG1GC -XX:TieredStopAtLevel=4"
        settings = SparkSettings(options={"spark.driver.extraJavaOptions": theirs})
        given = _options("plant", settings, [], tmp_path)["spark.driver.extraJavaOptions"].split()
        assert given[:3] == ["-XX:+NeverActAsServerClassMachine", "-XX:TieredStopAtLevel=1", "-Xms48m"]
        assert given[-3:] == theirs.split()
        assert [each for each in given if each.startswith("-XX:+Use")] == ["-XX:+UseG1GC"]

    def test_tell_executors_of_a_cluster_where_to_import_from(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        paths = _options("plant", SparkSettings(master="spark://host:7077"), [], tmp_path)[IMPORT_PATHS]
        assert str(tmp_path) in paths.split(os.pathsep)
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python/bin/python3")
        assert IMPORT_PATHS not in _options("plant", SparkSettings(), [], tmp_path)


class TestEnvironment:
    def test_names_no_other_spark_of_the_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What comes in by its defaults was refused by nobody; and it would start with our jars."""
        theirs = {name: f"of {name}" for name in ("JAVA_HOME", "SPARK_HOME", *OTHERS)}
        for name, value in theirs.items():
            monkeypatch.setenv(name, value)
        found = environment(JAVA, {})
        assert found["JAVA_HOME"] == "/java"
        assert (Path(found["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
        assert not found.keys() & {*OTHERS}
        assert {name: os.environ[name] for name in theirs} == theirs

    def test_lets_workers_import_what_we_import(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """As it is now: an import path may be added while the program runs."""
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "path", ["", *sys.path])
        (tmp_path / "planted_beside.py").write_text("found = 17")
        found = environment(JAVA, {})
        first, second, *_ = found["PYTHONPATH"].split(os.pathsep)
        assert (first, second) == (str(Path.cwd()), str(tmp_path))
        program = [sys.executable, "-c", "import planted_beside, lakehouse_ingest; print(planted_beside.found)"]
        done = subprocess.run(program, env=found, capture_output=True, text=True, timeout=60, check=True, cwd="/")
        assert done.stdout == "17\n"
        assert "PYTHONPATH" not in os.environ

    def test_leaves_import_paths_to_another_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its packages are in other folders."""
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python/bin/python3")
        monkeypatch.setenv("PYTHONPATH", "/opt/theirs")
        assert environment(JAVA, {})["PYTHONPATH"] == "/opt/theirs"


class TestLine:
    @pytest.mark.parametrize(
        ("said", "line"),
        [
            ("\x1eERROR\x1fExecutor\x1flost \x1f it ", Line("lost \x1f it", "error", "Executor")),
            ("\x1eWARN\x1fx\x1fnear", Line("near", "warning", "x")),
            ("\x1eINFO\x1fx\x1fso", Line("so", "info", "x")),
            ("\x1eODD\x1fx\x1fso", Line("so", "warning", "x")),
            ("\x1eERROR only that", Line("\x1eERROR only that")),
            ("OpenJDK warning: x", Line("OpenJDK warning: x")),
        ],
    )
    def test_has_the_shape_of_our_own_lines(self, said: str, line: Line) -> None:
        assert Line.parse(said) == line
        with capture_logs() as lines, recorded() as seen:
            Watch("plant-7", seen.telemetry).relay(line.level, line.logger, line.text)
            counted = seen.total("lakehouse.warnings", event="spark")
        assert counted == (1 if line.logger and line.level != "info" else 0)
        logger = {"logger": line.logger} if line.logger else {}
        spark = {"event": "spark", "pipeline": "plant-7", "log_level": line.level, "line": line.text}
        assert lines == [{**spark, **logger}]


class TestJavaProcess:
    def test_is_ended_though_a_signal_comes_right_after_its_fork(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It hears nothing of our end here: its standard input is open, and it does not listen to it."""
        java, forked = tmp_path / "java", list[subprocess.Popen[bytes]]()
        java.write_text("#!/bin/sh\nexec sleep 60 <&-\n")
        java.chmod(0o755)

        class Signalled(subprocess.Popen[bytes]):
            def __init__(self, *words: Any, **options: Any) -> None:
                super().__init__(*words, **options)
                forked.append(self)
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(subprocess, "Popen", Signalled)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt), spark_process(java, {MEMORY: "1g"}, [], tmp_path) as started:
                started.connected()
        finally:
            signal.signal(signal.SIGINT, before)
        assert [process.poll() for process in forked] == [-signal.SIGKILL]
