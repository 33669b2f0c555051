"""What is recorded when switched on, refused when misspelt, and left undone when switched off."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint

import pytest

from telemetry import (
    INSTRUMENTS,
    OFF,
    Instrument,
    TelemetryOptions,
    UnknownInstrument,
    carried,
    current,
    exporters,
    start,
)
from telemetry.instruments import exported
from telemetry.spans import NO_SPAN
from telemetry.start import Telemetry
from telemetry.testing import Checked, recorded

AT = {"pipeline": "plant-7", "stream": "sensors"}


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestSpan:
    def test_shares_the_trace_of_its_parent(self) -> None:
        with recorded() as seen:
            with seen.telemetry.span("batch", **AT), seen.telemetry.span("decode"):
                pass
            with seen.telemetry.span("batch_of_another_trace"):
                pass
        batch, decode, other = seen.span("batch"), seen.span("decode"), seen.span("batch_of_another_trace")
        assert (batch.parent, decode.parent, other.parent) == (None, "batch", None)
        assert batch.trace_id == decode.trace_id != other.trace_id

    def test_has_ids_and_is_current_only_while_it_is_open(self) -> None:
        with recorded() as seen, seen.telemetry.span("batch") as span:
            assert current() is span
            assert span.trace_id is not None
            assert span.span_id is not None
            assert (len(span.trace_id), len(span.span_id)) == (32, 16)
        assert current() is NO_SPAN
        assert seen.span("batch").trace_id == span.trace_id

    def test_exports_attributes_under_our_prefix_unless_they_have_one(self) -> None:
        with recorded() as seen, seen.telemetry.span("batch", batch=7, **{"messaging.system": "kafka"}) as span:
            span.set(rows=500, table=None, topics=("a", "b"), odd=ValueError("x"))
        assert seen.span("batch").attributes == {
            "lakehouse.batch": 7,
            "messaging.system": "kafka",
            "lakehouse.rows": 500,
            "lakehouse.topics": ("a", "b"),
            "lakehouse.odd": "ValueError('x')",
        }

    def test_links_only_to_valid_and_sampled_spans(self) -> None:
        trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
        with recorded() as seen:
            with seen.telemetry.span("start") as start_:
                begun = start_.traceparent
            with seen.telemetry.span("batch", "consumer") as batch:
                assert batch.recorded
                assert batch.link(f"00-{trace}-{span}-01", begun_by="producer")
                assert batch.link(f"01-{trace}-{span}-03"), "a later version of the standard, and a flag more"
                assert batch.link(begun)
                for wrong in (
                    "",
                    f"00-{trace}-{span}-00",
                    f"00-{trace.upper()}-{span}-01",
                    f"00-{'0' * 32}-{span}-01",
                    f"00-{trace}-{'0' * 16}-01",
                    f"ff-{trace}-{span}-01",
                    f"00-{trace}-{span}-01-more",
                    f" 00-{trace}-{span}-01",
                ):
                    assert not batch.link(wrong), wrong
        assert seen.span("batch").links == (span, span, seen.span("start").span_id)
        assert (seen.span("batch").kind, seen.span("start").kind) == ("consumer", "internal")
        assert not NO_SPAN.link(begun)
        assert (NO_SPAN.recorded, NO_SPAN.traceparent) == (False, "")

    def test_records_an_exception_and_lets_it_pass(self) -> None:
        broken = pytest.raises(ValueError, match="broken")
        with recorded() as seen, broken, seen.telemetry.span("batch"), seen.telemetry.span("land"):
            raise ValueError("broken")
        land = seen.span("land")
        assert (land.status, seen.span("batch").status) == ("error", "error")
        assert land.attributes == {"error.type": "ValueError"}
        ((name, details),) = land.events
        assert name == "exception"
        assert details["exception.message"] == "broken"
        assert "Traceback" in details["exception.stacktrace"]

    def test_is_the_parent_of_work_carried_to_other_threads(self) -> None:
        together = threading.Barrier(2, timeout=10)
        with recorded() as seen, ThreadPoolExecutor(2) as pool:

            def write() -> None:
                with seen.telemetry.span("write"):
                    together.wait()

            with seen.telemetry.span("batch"):
                work = carried(write)
                for write_done in [pool.submit(work), pool.submit(work)]:
                    write_done.result()
        assert [span.parent for span in seen.spans if span.name == "write"] == ["batch", "batch"]


class TestInstrument:
    def test_adds_up_counts_and_durations(self) -> None:
        with recorded() as seen:
            seen.telemetry.count("lakehouse.records", 3, outcome="landed", table="a", **AT)
            seen.telemetry.count("lakehouse.records", 4, outcome="landed", table="b", **AT)
            seen.telemetry.count("lakehouse.records", 2, outcome="dead", reason="broken_json", **AT)
            seen.telemetry.record("lakehouse.batch.duration", 0.5, **AT)
            seen.telemetry.record("lakehouse.batch.duration", 1.5, **AT)
            assert seen.total("lakehouse.records", outcome="landed") == 7
            assert seen.total("lakehouse.records", table="b") == 4
            assert seen.total("lakehouse.records", reason="broken_json") == 2
            (duration,) = seen.points("lakehouse.batch.duration")
            assert (duration.value, duration.count) == (2, 2)

    def test_of_kind_gauge_keeps_the_last_value(self) -> None:
        lag = Instrument("lag", "gauge", "{record}", ("stream",), "Records not read yet")
        with recorded({"lag": lag}) as seen:
            seen.telemetry.gauge("lag", 5, stream="sensors")
            seen.telemetry.gauge("lag", 3, stream="sensors")
            assert [point.value for point in seen.points("lag")] == [3]

    @pytest.mark.parametrize("how", ["on", "off but checked"])
    def test_that_is_not_in_the_catalogue_is_refused(self, how: str) -> None:
        with recorded() as seen:
            telemetry: Telemetry = seen.telemetry if how == "on" else Checked()
            with pytest.raises(UnknownInstrument, match="not in the catalogue"):
                telemetry.count("lakehouse.bathces")
            with pytest.raises(UnknownInstrument, match="no attribute 'topic'"):
                telemetry.count("lakehouse.batches", topic="sensors")
            with pytest.raises(UnknownInstrument, match="no outcome 'lande', only: landed, failed"):
                telemetry.count("lakehouse.batches", outcome="lande")
            with pytest.raises(UnknownInstrument, match="is a histogram, used as a counter"):
                telemetry.count("lakehouse.batch.duration")
            with pytest.raises(UnknownInstrument, match="is a counter, used as a histogram"):
                telemetry.record("lakehouse.batches", 1)
            with pytest.raises(UnknownInstrument, match="is a counter, used as a gauge"):
                telemetry.gauge("lakehouse.batches", 1)

    def test_accepts_all_of_its_attributes(self) -> None:
        with recorded() as seen:
            for name, instrument in INSTRUMENTS.items():
                assert name == instrument.name
                attributes = {each: instrument.values.get(each, ("x",))[0] for each in instrument.attributes}
                if instrument.kind == "counter":
                    seen.telemetry.count(name, 1, **attributes)
                elif instrument.kind == "gauge":
                    seen.telemetry.gauge(name, 1, **attributes)
                else:
                    seen.telemetry.record(name, 1, **attributes)
                if name != "lakehouse.telemetry.dropped":  # the SDK asks for this one
                    (point,) = seen.points(name)
                    assert set(point.attributes) == {exported(attribute) for attribute in instrument.attributes}


class TestTelemetrySwitchedOff:
    def test_is_one_object_with_one_empty_span(self) -> None:
        assert start(TelemetryOptions()) is OFF
        assert type(OFF) is Telemetry
        assert OFF.span("batch", **AT) is NO_SPAN
        with OFF.span("batch") as span:
            span.set(rows=1)
            assert (span.trace_id, span.span_id, current()) == (None, None, NO_SPAN)
        OFF.count("nobody looks this up")
        assert OFF.dropped == {}
        assert OFF.shutdown()

    def test_imports_no_sdk_and_starts_no_thread(self) -> None:
        program = (
            "import sys, threading\n"
            "from telemetry import TelemetryOptions, start\n"
            "t = start(TelemetryOptions())\n"
            "with t.span('batch'): t.count('lakehouse.batches')\n"
            "sdk = [m for m in sys.modules if m.startswith(('opentelemetry', 'grpc'))]\n"
            "print(sdk, threading.active_count())\n"
        )
        assert _python(program) == "[] 1"


class TestTelemetryOptions:
    @pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc"])
    def test_name_the_extra_to_install_if_it_is_missing(self, missing: str) -> None:
        program = (
            f"import sys; sys.modules[{missing!r}] = None\n"
            "from telemetry import TelemetryOptions, TelemetryUnavailable, start\n"
            "try: start(TelemetryOptions(traces=True))\n"
            "except TelemetryUnavailable as e: print(e)\n"
        )
        assert "install lakehouse-ingest[otlp]" in _python(program)

    def test_may_switch_on_a_single_signal(self) -> None:
        traces = start(TelemetryOptions(traces=True, endpoint="http://127.0.0.1:9"))
        traces.count("lakehouse.batches", 1, **AT)
        metrics = start(TelemetryOptions(metrics=True, endpoint="http://127.0.0.1:9", metric_interval_s=600))
        assert metrics.span("batch") is NO_SPAN
        assert traces.shutdown(10)
        metrics.shutdown(0.2)

    def test_that_cannot_work_are_refused(self) -> None:
        with pytest.raises(ValueError, match="must begin with http"):
            TelemetryOptions(endpoint="localhost:4317")
        with pytest.raises(ValueError, match="above 0"):
            TelemetryOptions(metric_interval_s=0)
        with pytest.raises(ValueError, match="known are otlp, otlp_grpc, otlp_http, console"):
            start(TelemetryOptions(traces=True, exporter="jaeger"))

    def test_show_no_headers(self) -> None:
        assert "hunter2" not in repr(TelemetryOptions(headers={"authorization": "Bearer hunter2"}))

    def test_may_name_an_exporter_of_another_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        offered = EntryPoint("beside", "telemetry.exporters.console:build", exporters.GROUP)
        monkeypatch.setattr(exporters, "entry_points", lambda **_: [offered])
        assert start(TelemetryOptions(traces=True, exporter="beside")).shutdown(5)
        with pytest.raises(
            ValueError,
            match="'others': known are otlp, otlp_grpc, otlp_http, console, prometheus, statsd, none, beside",
        ):
            start(TelemetryOptions(traces=True, exporter="others"))

    def test_for_the_console_write_to_stderr_only(self, capsys: pytest.CaptureFixture[str]) -> None:
        telemetry = start(TelemetryOptions(traces=True, metrics=True, exporter="console"))
        with telemetry.span("batch"):
            telemetry.count("lakehouse.batches", 1, outcome="landed", **AT)
        assert telemetry.shutdown(5)
        told = capsys.readouterr()
        assert told.out == ""
        assert '"name": "batch"' in told.err
        assert '"name": "lakehouse.batches"' in told.err
