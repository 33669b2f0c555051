"""Every line has one shape, names its span, and holds no secret."""

import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from telemetry import LogOptions, Telemetry, TelemetryOptions, configure_logs, mask, masked_text, set_level, start
from telemetry.masking import REGISTRY, masked
from telemetry.settings import Level
from telemetry.testing import recorded

SECRET = 'pl4nted"se\\cret/with spaces'


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    REGISTRY.clear()


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    told = capsys.readouterr()
    assert told.out == ""
    return [json.loads(line) for line in told.err.splitlines()]


class _Holder:
    def __repr__(self) -> str:
        return f"Holder({SECRET!r})"


def _fail() -> None:
    try:
        int(SECRET)
    except ValueError as error:
        raise RuntimeError(f"because of {SECRET}") from error


def _connect(telemetry: Telemetry) -> None:
    with telemetry.span("connect", password="x1", url=f"redis://:{SECRET}@h", holder=_Holder()) as span:
        span.set(note=f"with {SECRET}", parts=[SECRET], more={"deep": SECRET})
        raise ValueError(SECRET)


def _all_ways_to_leak() -> None:
    log = structlog.get_logger()
    event = f"connecting with {SECRET}"
    log.info(event)
    log.info("nested", settings={"deep": [{"value": f"x{SECRET}y"}]}, raw=SECRET.encode(), obj=_Holder())
    logging.getLogger("urllib3").warning("sent %s", SECRET)
    try:
        _fail()
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("py4j").exception("failed too")


class TestLine:
    def test_is_json_with_utc_time_level_logger_and_values(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        structlog.get_logger("catalog").info("table_created", table="sensors", columns=3)
        (line,) = _lines(capsys)
        assert line.pop("timestamp").endswith("Z")
        assert line == {
            "event": "table_created",
            "level": "info",
            "logger": "catalog",
            "table": "sensors",
            "columns": 3,
        }

    def test_of_a_library_has_the_same_shape_and_is_at_least_a_warning(
        self,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        configure_logs(LogOptions(level="debug"))
        logging.getLogger("py4j").info("chatter")
        logging.getLogger("urllib3").warning("retry %s of %s", 1, 3)
        structlog.get_logger().debug("ours")
        first, second = _lines(capsys)
        assert (first["event"], first["level"], first["logger"]) == ("retry 1 of 3", "warning", "urllib3")
        assert set(first) == {"event", "level", "logger", "timestamp"}
        assert second["event"] == "ours"

    def test_is_written_for_a_python_warning(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("old", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
        (line,) = _lines(capsys)
        assert line["logger"] == "py.warnings"

    def test_is_written_once_though_logs_are_configured_twice(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        configure_logs()
        structlog.get_logger().info("once")
        assert len(_lines(capsys)) == 1

    def test_as_text_is_no_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(LogOptions(format="text"))
        structlog.get_logger().info("batch_landed", rows=5)
        told = capsys.readouterr().err
        assert "batch_landed" in told
        assert "rows=5" in told
        assert not told.startswith("{")

    def test_within_a_span_carries_its_ids(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        with recorded() as seen, seen.telemetry.span("batch") as span:
            structlog.get_logger().info("ours")
            logging.getLogger("pyiceberg").warning("theirs")
        structlog.get_logger().info("outside")
        ours, theirs, outside = _lines(capsys)
        for line in (ours, theirs):
            assert (line["trace_id"], line["span_id"]) == (span.trace_id, span.span_id)
        assert "trace_id" not in outside

    def test_carries_the_values_bound_to_the_context(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        structlog.contextvars.bind_contextvars(pipeline="plant-7")
        logging.getLogger("urllib3").error("gone")
        assert _lines(capsys)[0]["pipeline"] == "plant-7"

    def test_as_text_holds_no_control_characters_from_outside(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A library's message, a value, and the stack of an error: each may hold what a server has said."""
        configure_logs(LogOptions(format="text"))
        attack = "\x1b]0;OWNED\x07\x9b\u202e"
        logging.getLogger("urllib3").warning("the server said %s\nand more", attack)
        structlog.get_logger("pipeline").warning(attack, stream=attack, found=[attack])
        try:
            int(attack)
        except ValueError:
            logging.getLogger("requests").exception("failed")
        said = capsys.readouterr().err
        assert said.count("OWNED") == 5
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*said}
        assert "\nand more" not in said, "a line of somebody's is none of ours"
        assert "\nTraceback" in said


class TestLevel:
    def test_applies_to_our_lines_and_those_of_libraries(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(LogOptions(level="error"))
        structlog.get_logger().warning("ours")
        logging.getLogger("pyiceberg").warning("theirs")
        assert _lines(capsys) == []

    def test_can_change_while_loggers_are_in_use(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs()
        bound = structlog.get_logger("pipeline").bind(pipeline="plant-7")
        levels: list[Level] = ["info", "debug", "error", "warning"]
        for level in levels:
            set_level(level)
            bound.debug("fine")
            bound.warning("coarse")
            logging.getLogger("pyiceberg").warning("theirs")
        assert [line["event"] for line in _lines(capsys)] == [
            "coarse",
            "theirs",
            "fine",
            "coarse",
            "theirs",
            "coarse",
            "theirs",
        ]


class TestSecret:
    @pytest.mark.parametrize("shape", ["json", "text"])
    def test_that_is_registered_is_in_no_line(self, shape: Any, capsys: pytest.CaptureFixture[str]) -> None:
        configure_logs(LogOptions(format=shape))
        mask(SECRET)
        _all_ways_to_leak()
        told = capsys.readouterr().err
        assert "Traceback" in told
        assert "***" in told
        for piece in ("pl4nted", "with spaces", "with%20spaces"):
            assert piece not in told

    def test_does_not_reach_other_handlers(self, caplog: pytest.LogCaptureFixture) -> None:
        configure_logs()
        mask(SECRET)
        structlog.get_logger().info("connecting", to=SECRET)
        assert "connecting" in caplog.text
        assert "pl4nted" not in caplog.text

    @pytest.mark.parametrize(
        "name",
        [
            "password",
            "s3.secret-access-key",
            "client_secret",
            "token",
            "Authorization",
            "credential",
            "ssl.key.pem",
            "sasl.jaas.config",
            "sasl.password",
            "sslKeyPassword",
            "api_key",
        ],
    )
    def test_is_masked_under_a_name_that_looks_like_one(self, name: str) -> None:
        assert masked({name: "pl4nted", "table": "sensors"}) == {name: "***", "table": "sensors"}

    @pytest.mark.parametrize("name", ["table", "key", "keys", "stream", "partition_key", "passed"])
    def test_is_not_suspected_under_a_harmless_name(self, name: str) -> None:
        assert masked({name: "kept"}) == {name: "kept"}

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            ('ScramLoginModule required username="u" password="pl4nted";', 'username="u"'),
            ("{'sasl.password': 'pl4nted', 'group.id': 'g'}", "'group.id': 'g'"),
            ('{"secret": "pl4nted", "a": 1}', '"a": 1'),
            ("GET /?access_token=pl4nted&x=1", "x=1"),
            ("redis://user:pl4nted@host:6379/0", "host:6379/0"),
            ("redis://:pl4nted@host:6379/0", "host:6379/0"),
            ("Authorization: Bearer pl4nted.abc.def", "Bearer"),
        ],
    )
    def test_is_masked_within_text_in_its_usual_spellings(self, text: str, kept: str) -> None:
        assert "pl4nted" not in masked_text(text)
        assert kept in masked_text(text)

    @pytest.mark.parametrize("text", ["the token: expired", "http://host:8181/v1", "at 10:15:00 a@b.c", "no passwords"])
    def test_is_not_suspected_in_prose(self, text: str) -> None:
        assert masked_text(text) == text

    def test_in_a_pem_block_is_masked_line_by_line(self) -> None:
        body = ["MIIEvQIBADANBgkqhkiG9w0BAQEF", "AASCBKcwggSjAgEAAoIBAQC7VJTU"]
        mask("\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"]))
        assert masked_text(f"   {body[1]} |") == "   *** |"

    def test_of_one_character_or_none_masks_nothing(self) -> None:
        mask("")
        mask("a")
        assert masked_text("a table") == "a table"

    def test_is_in_no_span(self) -> None:
        mask(SECRET)
        with recorded() as seen, pytest.raises(ValueError, match="pl4nted"):
            _connect(seen.telemetry)
        assert "pl4nted" not in repr(seen.spans)
        assert seen.span("connect").attributes["lakehouse.password"] == "***"

    def test_in_a_header_of_the_exporter_is_masked(self) -> None:
        headers = {"authorization": "Bearer pl4nted-header"}
        start(TelemetryOptions(traces=True, endpoint="http://127.0.0.1:9", headers=headers)).shutdown(1)
        assert masked_text("refused: pl4nted-header") == "refused: ***"
