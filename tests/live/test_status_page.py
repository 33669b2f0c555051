"""The status page in a real Chromium: light and dark, on a desktop and on a phone, with the keyboard alone."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.observe import figures
from lakehouse_ingest.observe.events import BatchLanded, Retrying, SchemaChanged
from lakehouse_ingest.observe.health import Board, State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF, mask
from telemetry.masking import REGISTRY
from tests.services.browser import DESK, PHONE, Browser
from tests.services.debian import NotToBeHad

pytestmark = pytest.mark.timeout(1_800)  # the first to ask fetches the browser

WINDOW = (1100, 1000)
SECRET = "pl4nted-in-a-line"
SHOTS = os.environ.get("LAKEHOUSE_TEST_SHOTS")  # a folder for pictures, where one wants to see them

# The contrast of each text with what is behind it, by WCAG's formula; the worst first.
CONTRAST = """
const parts = colour => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
function behind(it) {
  for (; it; it = it.parentElement) {
    const colour = parts(getComputedStyle(it).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
}
const found = [];
for (const it of document.body.querySelectorAll("*")) {
  const said = [...it.childNodes].filter(each => each.nodeType === 3).map(each => each.data.trim()).join("");
  if (!said || !it.getClientRects().length || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(it.tagName)) continue;
  const [one, other] = [light(parts(getComputedStyle(it).color)), light(behind(it))].sort((a, b) => b - a);
  found.push([(one + .05) / (other + .05), said]);
}
return found.sort((a, b) => a[0] - b[0]).slice(0, 5);
"""


class Clock:
    def __init__(self) -> None:
        self.now = time.time() - 3600

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        started = Browser(tmp_path_factory.mktemp("chromium"))
    except NotToBeHad as missing:
        pytest.skip(f"no Chromium: {missing}")
    with started:
        yield started


def an_hour(watch: Watch, clock: Clock, streams: tuple[str, ...] = ("sensors", "orders")) -> None:
    """A pipeline that has had an hour, and not a quiet one."""
    drawn = random.Random(7)
    watch.board.expect(streams)
    for stream in streams:
        watch.report(stream, State.RUNNING)
    for minute in range(60):
        for stream in streams:
            busy = 1 + (minute % 20) / 10 + (4 if 30 <= minute < 34 else 0)
            rows = int(drawn.uniform(0.8, 1.2) * busy * 60_000 / len(stream))
            letters = {"broken_json": 3, "wrong_type": 2} if minute in (12, 58) else {}
            watch.emit(
                BatchLanded(
                    stream=stream,
                    batch=minute,
                    received=rows + sum(letters.values()),
                    duration_s=drawn.uniform(0.4, 1.2) * busy,
                    landed={f"iot.{stream}": rows - 40, f"iot.{stream}_status": 40},
                    dead=letters,
                    freshness_s=drawn.uniform(1, 3) * busy,
                )
            )
            watch.board.batch_ended(stream, landed=True)
            watch.lag(stream, {(stream, 0): int(rows / 90 * busy), (stream, 1): int(rows / 100)}, busy)
            watch.table(
                f"iot.{stream}",
                rows=rows * (minute + 1),
                files=minute + 4,
                size=rows * 31 * (minute + 1),
                snapshots=min(100, minute + 1),
                partitions=1,
                snapshot=4_611_686_018_427_387_000 + minute,
            )
            watch.table(
                f"iot.{stream}_status",
                rows=40 * minute,
                files=minute + 1,
                size=9_000,
                snapshots=9,
                partitions=1,
                snapshot=7,
            )
        if minute == 31:
            watch.emit(
                Retrying(
                    stream="orders", attempt=1, wait_s=0.5, error=ConnectionError("the catalog does not answer: 503")
                )
            )
            watch.relay("warning", "", f"a word about {SECRET} <script>document.title = 'taken'</script>\u202egnp.exe")
        clock.now += 60
    watch.emit(SchemaChanged(table="iot.sensors", changes=["+ humidity double", "~ level int -> long"]))
    lost = {"topic": "sensors", "partition": 3, "offset": 812_044}
    watch.dead(
        "sensors",
        {
            "broken_json": {
                **lost,
                "told": "the value is not JSON",
                "value": b'{"sensor": "hall-7", "level": 17.2, ',
            },
            "wrong_type": {
                **lost,
                "offset": 812_101,
                "told": "level is not double",
                "value": '{"sensor": "Küche", "level": "seventeen", "mail": "ada@example.com"}'.encode(),
            },
        },
        {"sensor", "level", "mail"},
    )


@pytest.fixture
def url() -> Iterator[str]:
    mask(SECRET)
    clock = Clock()
    watch = Watch("plant-7", OFF)
    watch.activity._clock, watch.activity._began, watch.board = clock, clock.now, Board(clock)
    about = {
        "version": "0.1.0",
        "source": "kafka at localhost:9092",
        "catalog": "namespace iot of the embedded catalog",
        "streams": {"sensors": "sensors, every 5 s", "orders": "orders, every 5 s"},
    }
    with watch.serving(HealthSettings(port=0), about) as at:
        assert at
        an_hour(watch, clock)
        yield at
    REGISTRY.clear()


def _pictured(browser: Browser, name: str, *, whole: bool = True) -> None:
    if SHOTS:
        browser.screenshot(Path(SHOTS, f"{name}.png"), whole=whole)


def _goes_through(browser: Browser, key: str, first: str) -> None:
    """To the first of all values, where one stays when the page looks again; and away from it."""
    label: Any = "return document.querySelector(`[data-key='${arguments[0]}']`).getAttribute('aria-label')"
    browser.run("document.querySelector(`[data-key='${arguments[0]}']`).focus()", key)
    browser.press("home")
    assert first in browser.run(label, key)
    browser.run("return fetch('/status.json').then(answer => answer.json()).then(show)")
    assert first in browser.run(label, key)
    assert browser.run("return document.activeElement.dataset.key") == key
    browser.press("right")
    assert first not in browser.run(label, key)
    browser.press("escape")
    assert "Arrow keys go through" in browser.run(label, key)


class TestStatusPage:
    def test_shows_streams_tables_batches_and_problems(self, browser: Browser, url: str) -> None:
        browser.seen_as(WINDOW, "light")
        browser.open(url)
        browser.wait_for("verdict", "ready")
        assert browser.run("return document.title") == "plant-7 · lakehouse-ingest"
        assert "kafka at localhost:9092 → namespace iot" in browser.text("about")
        streams = browser.text("streams")
        assert "sensors, every 5 s" in streams
        assert "running" in streams
        assert browser.run("return document.querySelectorAll('#streams svg').length") == 6
        assert "iot.sensors_status" in browser.text("tables")
        assert "4611686018427387059" in browser.text("tables"), "the last snapshot, to the digit"
        assert "~ level int -> long" in browser.text("tables")
        assert browser.run("return document.querySelectorAll('#timeline rect').length") == 60, "the last ones"
        assert "batch 59" in browser.text("batch")
        assert "retrying" in browser.text("problems")
        assert "503" in browser.text("problems")
        all_of_it = browser.run("return document.documentElement.outerHTML")
        assert "NaN" not in all_of_it
        assert "undefined" not in browser.run("return document.body.innerText")
        assert browser.console() == []
        _pictured(browser, "status-page", whole=False)  # of docs

    def test_shows_only_the_shape_of_a_dead_letter_and_no_secret(self, browser: Browser, url: str) -> None:
        browser.open(url)
        browser.wait_for("dead", "broken_json")
        shown = browser.text("dead")
        assert '{"sensor": "xxxx-0", "level": 00.0,' in shown
        assert '{"sensor": "xxxxx", "level": "xxxxxxxxx", "mail": "xxx@xxxxxxx.xxx"}' in shown
        assert "level is not double" in shown
        assert "sensors/3@812044" in shown
        text = browser.run("return document.documentElement.outerHTML")
        for said in (SECRET, "ada@", "hall-7", "seventeen", "Küche"):
            assert said not in text
        assert "a word about *** <script>" in browser.text("problems"), "text is never markup"
        assert "\\u202egnp.exe" in browser.text("problems"), "and reads from left to right"
        assert "taken" not in browser.run("return document.title")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
    def test_is_readable_in_light_and_dark_on_desk_and_phone(
        self, browser: Browser, url: str, size: tuple[int, int], scheme: str
    ) -> None:
        """Nothing but tables is wider than the screen, and every text stands out from what is behind it."""
        browser.seen_as(size, scheme)
        browser.open(url)
        browser.wait_for("dead", "broken_json")
        wide, screen = browser.run("const it = document.documentElement; return [it.scrollWidth, it.clientWidth]")
        assert wide <= screen <= size[0]
        worst = browser.run(CONTRAST)
        assert worst[0][0] >= 4.5, worst
        paper = browser.run("return getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(13, 17, 23)") == (scheme == "dark")
        _pictured(browser, f"{'phone' if size == PHONE else 'desk'}-{scheme}")

    def test_writes_figures_as_a_terminal_does(self, browser: Browser, url: str) -> None:
        """The page draws itself in JavaScript, and everything else in Python; both have the same rules."""
        browser.open(url)
        times = [0, 0.04, 0.36, 1.5, 2, 9.9, 9.96, 10, 45.4, 119, 120, 7_199, 7_200, 172_799, 172_800, 1e7]
        sizes = [0, 9, 1_023, 1_024, 5_000, 10_300, 5_000_000, 5e9, 3e12, 9e15]
        counts = [0, 7, 999, 1_234, 1_234_567]
        for name, figure, values in (
            ("seconds", figures.seconds, times),
            ("since", figures.ago, times),
            ("bytes", figures.size, sizes),
            ("count", figures.count, counts),
        ):
            drawn = browser.run(f"return arguments[0].map(each => {name}(each))", values)
            assert drawn == [figure(each) for each in values]
        rates = browser.run("return arguments[0].map(perSecond)", [0, 0.26, 3.14, 12.3, 1_234])
        assert rates == [f"{figures.rate(each)}/s" for each in (0, 0.26, 3.14, 12.3, 1_234)]

    def test_can_be_used_with_the_keyboard_alone(self, browser: Browser, url: str) -> None:
        browser.seen_as(DESK, "light")
        browser.open(url)
        browser.wait_for("dead", "broken_json")
        reached = []
        for _ in range(30):
            browser.press("tab")
            it = browser.run(
                "const it = document.activeElement; return it.dataset.key || it.id || it.getAttribute('href')"
            )
            if it is None or it in reached:
                break
            reached.append(it)
        assert {"#h-tables", "sensors lag", "batches orders", "tables", "dead", "problems", "/ready"} <= {*reached}
        _goes_through(browser, "sensors landed", "59 minutes ago")
        _goes_through(browser, "batches sensors", "sensors, batch 30")

    def test_asks_only_its_own_server_and_says_when_that_is_gone(self, browser: Browser) -> None:
        watch = Watch("plant-7", OFF)
        watch.board.expect(["s", "another"])
        with watch.serving(HealthSettings(port=0)) as at:
            assert at
            browser.open(at)
            browser.wait_for("verdict", "not ready")
            assert browser.run("return document.title").startswith("! ")
            assert "s: starting" in browser.text("reasons")
            assert "no batch committed yet" in browser.text("streams")
            assert "None yet." in browser.text("batch")
            asked = browser.run("return performance.getEntriesByType('resource').map(each => each.name)")
            assert set(asked) == {f"{at}/status.json"}
            assert "NaN" not in browser.run("return document.body.innerHTML")
        browser.wait_for("verdict", "no answer")
        assert browser.run("return document.getElementById('main').className") == "stale"
