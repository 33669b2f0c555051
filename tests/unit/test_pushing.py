"""What a command that comes and goes has found is pushed, or told to nobody."""

from typing import Any

import pytest

from lakehouse_ingest.observe.watch import Watch, pushing
from lakehouse_ingest.operations.verify.findings import Finding, FindingKind, StreamVerdict
from lakehouse_ingest.operations.verify.streams import Verified, report
from lakehouse_ingest.settings import Settings
from telemetry.testing import recorded
from tests.services.otlp import OtlpReceiver


def settings(**telemetry: Any) -> Settings:
    return Settings.model_validate(
        {"name": "plant-7", "streams": [{"topics": ["a", "b"]}, {"name": "c", "topics": ["c"]}], "telemetry": telemetry}
    )


def verdict(*findings: Finding, **unlisted: int) -> StreamVerdict:
    nothing: dict[str, Any] = dict.fromkeys(
        ("partitions", "offsets", "dead", "filtered", "discarded", "removed", "back", "holes", "holes_recorded"), 0
    )
    nothing |= dict.fromkeys(("lost", "unknown", "duplicates", "beyond"), 0)
    return StreamVerdict("plant-7", tables={}, older={}, findings=findings, unlisted=unlisted, **nothing)


class TestPush:
    @pytest.mark.parametrize("exporter", ["none", "prometheus", "otlp_grpc"])
    def test_is_left_out_without_metrics_or_a_receiver(self, exporter: str) -> None:
        with pushing(settings(metrics=exporter != "otlp_grpc", traces=True, exporter=exporter), "verify") as watch:
            assert watch is None

    def test_arrives_before_the_command_ends(self) -> None:
        found = verdict(Finding(FindingKind.LOST, "x"), Finding(FindingKind.LOST, "y"), lost=5)
        with OtlpReceiver() as receiver:
            chosen = settings(metrics=True, exporter="otlp_http", endpoint=receiver.endpoint_http)
            with pushing(chosen, "verify") as watch:
                assert watch
                report(watch, chosen, [Verified("a, b", found), Verified("c", None)])
            points = receiver.metrics("lakehouse.verify.findings")
            assert {each.attributes["lakehouse.stream"] for each in points} == {"a,b"}, "of c nothing is known"
            assert {each.resource["service.instance.id"] for each in points} == {"verify"}, (
                "the next run takes its place"
            )
            counts = {each.attributes["lakehouse.kind"]: each.value for each in points}
            assert counts == {str(kind): 7 if kind is FindingKind.LOST else 0 for kind in FindingKind}
            assert receiver.metrics("lakehouse.verify.timestamp")

    def test_resets_the_count_of_what_is_right_again(self) -> None:
        with recorded() as seen:
            watch = Watch("plant-7", seen.telemetry)
            for findings in ([Finding(FindingKind.DUPLICATE, "x")], []):
                report(watch, settings(), [Verified("a", verdict(*findings)), Verified("c", verdict())])
            assert seen.total("lakehouse.verify.findings") == 0
            assert len(seen.points("lakehouse.verify.findings")) == 2 * len(FindingKind)
