"""A cluster without room: a warning after a while, once, and a remark on the status page until tasks run again."""

from dataclasses import dataclass, field, replace

import pytest

from lakehouse_ingest.observe.events import TasksWait
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Event, Watch
from lakehouse_ingest.pipeline.waiting_tasks import LOOK_S, PATIENCE_S, SeenTasks, WaitingTasks
from telemetry import OFF

STUCK = SeenTasks(stages=(1,), waiting=2)
LOOKS = int(PATIENCE_S / LOOK_S)


@dataclass
class Scene:
    """Looks at the times and in the states that a test wants."""

    found: SeenTasks = STUCK
    now: float = 1000.0
    told: list[Event] = field(default_factory=list)
    watch: Watch = field(default_factory=lambda: Watch("plant", OFF))

    def __post_init__(self) -> None:
        self.watch.add_listener(self.told.append)
        self.watch.board.expect(["sensors"])
        self._tasks = WaitingTasks(
            self.watch, "spark://here:7077", "2 cores and 1g", lambda: self.found, lambda: self.now
        )

    def look(self, times: int, found: SeenTasks | None = None) -> None:
        self.found = found or self.found
        for _ in range(times):
            self._tasks.look()
            self.now += LOOK_S

    @property
    def reason(self) -> str:
        return str(self.watch.board.shown()["sensors"].get("reason", ""))


class TestWaitingTasks:
    def test_are_told_once_after_a_while_with_what_to_do(self) -> None:
        scene = Scene()
        scene.look(LOOKS)
        assert scene.told == []
        assert scene.reason == ""
        scene.look(3 * LOOKS)
        (told,) = scene.told
        assert isinstance(told, TasksWait)
        assert (told.master, told.waiting, told.executors) == ("spark://here:7077", 2, 0)
        for part in ("no task has run for 30 s", "an executor of 2 cores and 1g", "lower `spark.executor.memory`"):
            assert part in told.error

    def test_are_shown_until_one_runs(self) -> None:
        scene = Scene()
        scene.look(LOOKS + 1)
        assert scene.reason == "no task has run for 30 s on spark://here:7077, which has given us 0 executors"
        scene.watch.board.report("sensors", State.RUNNING)
        assert "no task has run" in scene.reason
        scene.look(1, replace(STUCK, waiting=1, running=1))
        assert scene.reason == ""

    def test_are_told_again_when_they_wait_again(self) -> None:
        scene = Scene()
        scene.look(LOOKS + 1)
        scene.look(1, replace(STUCK, running=1))
        scene.look(LOOKS + 1, STUCK)
        assert len(scene.told) == 2

    @pytest.mark.parametrize(
        "busy",
        [
            pytest.param(SeenTasks(), id="no job"),
            pytest.param(SeenTasks(stages=(1,), waiting=2, running=1), id="a task runs"),
        ],
    )
    def test_are_no_news_while(self, busy: SeenTasks) -> None:
        scene = Scene(busy)
        scene.look(3 * LOOKS)
        assert scene.told == []

    def test_are_no_news_if_tasks_run_between_looks(self) -> None:
        scene = Scene()
        for number in range(3 * LOOKS):
            scene.look(1, SeenTasks(stages=(number // 2,), waiting=5, done=number % 2))
        assert scene.told == []
