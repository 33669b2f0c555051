"""Ready and alive: what is told of the streams, and how long ago, and nothing else, makes the verdict."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from lakehouse_ingest.errors import LONGEST, SettingsRefused, TryAgain
from lakehouse_ingest.observe.health import Board, State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF, TelemetryOptions, mask, start
from telemetry.masking import REGISTRY
from telemetry.testing import Checked
from tests.services.openmetrics import read

FRESH, STUCK = 60.0, 600.0
SECRET = "pl4nted-in-an-error"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> Board:
    return Board(clock)


def _reasons(board: Board) -> tuple[str, ...]:
    verdict = board.ready(FRESH)
    assert verdict.good == (not verdict.reasons)
    return verdict.reasons


class TestPipeline:
    def test_is_ready_once_all_streams_run(self, board: Board) -> None:
        assert _reasons(board) == ("no stream yet",)
        board.expect(["a", "b"])
        assert _reasons(board) == ("a: starting", "b: starting")
        board.report("a", State.RUNNING)
        assert _reasons(board) == ("b: starting",)
        board.report("b", State.RUNNING)
        assert _reasons(board) == ()
        assert board.live(STUCK).good


@pytest.fixture
def watch() -> Watch:
    return Watch("plant-7", Checked())


@pytest.fixture
def _no_secrets() -> Iterator[None]:
    yield
    REGISTRY.clear()


def _get(url: str, **headers: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


class TestStream:
    @pytest.mark.parametrize(
        ("state", "reason", "ready"),
        [
            (State.WAITING, "TryAgain: the broker is away", "a: waiting: TryAgain: the broker is away"),
            (State.FAILED, "Superseded: by epoch 7", "a: failed: Superseded: by epoch 7"),
            (State.STOPPING, "", "a: stopping"),
            (State.STARTING, "no topic matches x yet", "a: starting: no topic matches x yet"),
        ],
    )
    def test_that_does_not_run_gives_its_reason(self, board: Board, state: State, reason: str, ready: str) -> None:
        board.report("a", State.RUNNING)
        board.report("a", state, reason)
        assert _reasons(board) == (ready,)
        assert board.live(STUCK).good

    def test_that_has_ended_does_not_count_against_readiness(self, board: Board) -> None:
        board.report("a", State.RUNNING)
        board.report("b", State.ENDED)
        assert _reasons(board) == ()

    def test_without_recent_progress_is_not_ready(self, board: Board, clock: Clock) -> None:
        board.report("a", State.RUNNING)
        board.batch_began("a", 7)
        clock.now += FRESH + 5
        assert _reasons(board) == ("a: batch 7 is under way, without progress for 65 s",)
        board.moved("a")  # a stage of it has ended
        assert _reasons(board) == ()
        clock.now += FRESH
        board.batch_ended("a", landed=True)
        assert _reasons(board) == ()
        clock.now += FRESH + 1
        assert _reasons(board) == ("a: running, without progress for 61 s",)
        board.moved("a")  # an idle trigger
        assert _reasons(board) == ()

    @pytest.mark.parametrize(
        ("state", "alive"),
        [
            (State.STARTING, False),
            (State.RUNNING, False),
            (State.STOPPING, False),
            (State.WAITING, True),
            (State.ENDED, True),
            (State.FAILED, True),
        ],
    )
    def test_without_progress_for_long_is_not_alive(
        self, board: Board, clock: Clock, state: State, *, alive: bool
    ) -> None:
        board.report("a", state)
        clock.now += STUCK
        assert board.live(STUCK).good
        clock.now += 1
        assert board.live(STUCK).good is alive

    def test_that_is_not_expected_is_ignored(self, board: Board) -> None:
        board.moved("x")
        board.batch_began("x", 1)
        board.batch_ended("x", landed=True)
        assert board.shown() == {}
        assert board.live(STUCK).good

    def test_is_shown_with_its_state_and_batches(self, board: Board, clock: Clock) -> None:
        board.report("a", State.RUNNING)
        board.batch_began("a", 0)
        board.batch_ended("a", landed=True)
        board.batch_began("a", 1)
        board.batch_ended("a", landed=False)
        board.batch_began("a", 2)
        clock.now += 2
        shown = dict(board.shown()["a"])
        assert shown.pop("last_landed")
        assert shown == {
            "state": "running",
            "for_s": 2.0,
            "moved_s_ago": 2.0,
            "batches": 1,
            "batch_under_way": 2,
        }

    def test_makes_progress_by_its_batches_and_stages(self, watch: Watch) -> None:
        watch.report("s", State.RUNNING)
        with watch.batch("s", 3):
            assert watch.board.shown()["s"]["batch_under_way"] == 3
            with watch.stage("write", "s", "t"):
                pass
            with watch.commit("t", "s"):
                pass
        assert watch.board.shown()["s"]["batches"] == 1
        with pytest.raises(TryAgain), watch.batch("s", 4):
            raise TryAgain("gone")
        assert (watch.board.shown()["s"]["batches"], watch.board.shown()["s"]["batch_under_way"]) == (1, None)

    def test_that_ends_with_an_error_has_failed(self, watch: Watch) -> None:
        with pytest.raises(TryAgain), watch.stream("s"):
            raise TryAgain("given up")
        assert watch.board.ready(FRESH).reasons == ("s: failed: TryAgain: given up",)


class TestHealthPages:
    @pytest.mark.usefixtures("_no_secrets")
    def test_answer_with_a_status_and_the_reasons(self, watch: Watch) -> None:
        mask(SECRET)
        watch.board.expect(["s"])
        with watch.serving(HealthSettings(port=0, fresh=FRESH, stuck=STUCK)) as url:
            assert url
            assert _get(f"{url}/live") == (200, {"live": True, "reasons": []})
            status, said = _get(f"{url}/ready")
            assert (status, said["ready"], said["reasons"], said["pipeline"]) == (
                503,
                False,
                ["s: starting"],
                "plant-7",
            )
            with watch.stream("s"):
                watch.report("s", State.RUNNING)
                status, said = _get(f"{url}/ready")
                assert (status, said["reasons"], said["streams"]["s"]["state"]) == (200, [], "running")
                watch.report("s", State.WAITING, TryAgain(f"no answer with {SECRET},\n" + "x" * 500))
                status, said = _get(f"{url}/ready")
                assert status == 503
                (reason,) = said["reasons"]
                assert reason.startswith("s: waiting: TryAgain: no answer with ***, xxx")
                assert len(reason) < LONGEST + 20
            assert _get(f"{url}/ready")[1]["streams"]["s"]["state"] == "ended"
        with pytest.raises(urllib.error.URLError):
            _get(f"{url}/live")

    def test_without_metrics_name_the_setting(self) -> None:
        watch = Watch("plant-7", OFF)
        with watch.serving(HealthSettings(port=0)) as url:
            assert _get(f"{url}/metrics") == (404, {"error": "there are none to show: set `telemetry.metrics`"})

    def test_show_metrics_where_they_are_on(self) -> None:
        sink = start(TelemetryOptions(metrics=True, exporter="none", pull=True))
        watch = Watch("plant-7", sink)
        with watch.serving(HealthSettings(port=0)) as url:
            watch.report("s", State.RUNNING)
            asked = urllib.request.Request(f"{url}/metrics", headers={"Accept": "application/openmetrics-text"})
            with urllib.request.urlopen(asked, timeout=10) as answer:
                found = read(answer.read().decode())
        watch.close()
        assert found["lakehouse_running"].value(lakehouse_stream="s", lakehouse_pipeline="plant-7") == 1

    def test_are_not_served_without_a_port(self, watch: Watch) -> None:
        with watch.serving(HealthSettings()) as url:
            assert url is None
        assert not Watch("p", OFF).looked_at

    @pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1", "no.such.host.invalid", "ä" * 300])
    def test_at_an_unusable_address_are_refused_in_one_sentence(self, watch: Watch, host: str) -> None:
        with (
            closing(socket.create_server(("127.0.0.1", 0))) as taken,
            pytest.raises(SettingsRefused, match=r"choose another `health\.port` or `health\.host`") as refusal,
            watch.serving(HealthSettings(host=host, port=taken.getsockname()[1])),
        ):
            pass
        assert len(str(refusal.value)) <= LONGEST

    def test_asked_for_by_an_unknown_host_name_mention_the_setting(self, watch: Watch) -> None:
        with watch.serving(HealthSettings(port=0, hosts=("ingest.example",))) as url:
            assert _get(f"{url}/live", Host="ingest.example")[0] == 200
            code, said = _get(f"{url}/live", Host="evil.example")
            assert code == 403
            assert "`health.hosts`" in said["error"]

    @pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "", "a b"])
    def test_accept_host_names_only_without_scheme_or_port(self, name: str) -> None:
        with pytest.raises(ValueError, match="host names"):
            HealthSettings(hosts=(name,))
