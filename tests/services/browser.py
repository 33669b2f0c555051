"""A real Chromium without a window, driven through its own driver, by WebDriver's plain HTTP.

with Browser(tmp_path) as browser:
    browser.open(url)
    browser.text("verdict")
"""

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lakehouse_ingest.environment.embedded.claim import LOOPBACK, any_free_port
from tests.services.debian import installed
from tests.services.pipelines import until

STARTING = 180.0
LOOKING = 60.0  # its first page took over 20 on a machine that was busy, with the browser just installed
QUIET = ("background-networking", "component-update", "sync", "gpu", "dev-shm-usage")
DESK, PHONE = (1280, 900), (390, 844)
KEYS = {"tab": "\ue004", "left": "\ue012", "right": "\ue014", "home": "\ue011", "escape": "\ue00c"}


def programs() -> tuple[Path, Path]:
    """The browser, and its driver."""
    return installed("chromium", "chromium", "chromium-driver"), installed("chromedriver", "chromium-driver")


class Browser:
    """One window; what it says to its console is an error of the test's to look for."""

    def __init__(self, folder: Path, names: Mapping[str, str] | None = None) -> None:
        """`names`: addresses that these lead to, as whoever owns them may say."""
        chromium, driver = programs()
        rules = ", ".join(f"MAP {name} {address}" for name, address in (names or {}).items())
        self._options = {
            "binary": str(chromium),
            "args": [
                *("--headless", "--no-sandbox", "--lang=en-US", f"--user-data-dir={folder / 'browser'}"),
                *(f"--disable-{each}" for each in QUIET),
                *([f"--host-resolver-rules={rules}"] if rules else ()),
            ],
        }
        port = any_free_port()
        self._url, self._log = f"http://{LOOPBACK}:{port}", folder / "chromedriver.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                [str(driver), f"--port={port}", "--allowed-ips=127.0.0.1"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                process_group=0,
            )
        self._session = ""

    def __enter__(self) -> Self:
        try:
            assert until(self._ready, STARTING), self._log.read_text(errors="replace")[-2000:]
            wanted = {"goog:chromeOptions": self._options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._session:
            with suppress(OSError, AssertionError):
                self._ask("DELETE", self._session)
        self._process.kill()
        self._process.wait(30)

    # -- what is done ---------------------------------------------------------------------------------------

    def seen_as(self, size: tuple[int, int], scheme: str) -> None:
        """A screen of that size, light or dark."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < DESK[0]}
        self._cdp("Emulation.setDeviceMetricsOverride", metrics)
        self._cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": KEYS[key]} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask(
            "POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
        )

    def run_and_wait(self, script: str, *arguments: object) -> Any:
        """What a function body gives to the last of its arguments, which is a function."""
        return self._ask("POST", f"{self._session}/execute/async", {"script": script, "args": list(arguments)})

    # -- what is seen ---------------------------------------------------------------------------------------

    def run(self, script: str, *arguments: object) -> Any:
        """What a function body returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, id_: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).innerText", id_))

    def wait_for(self, id_: str, said: str) -> None:
        assert until(lambda: said in self.text(id_), LOOKING), f"{id_} says {self.text(id_)!r}"

    def console(self) -> Sequence[str]:
        """What it has complained of since it was last asked."""
        return [each["message"] for each in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Of the window, or of all that one could scroll to."""
        if whole:
            width, height = self.run("const it = document.documentElement; return [it.clientWidth, it.scrollHeight]")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            made = self._cdp("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})["data"]
        else:
            made = self._ask("GET", f"{self._session}/screenshot")
        file.write_bytes(base64.b64decode(made))

    # -- the protocol ---------------------------------------------------------------------------------------

    def _cdp(self, command: str, parameters: object) -> Any:
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ready(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except OSError:
            return False

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=180) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{path}: {json.load(refused)['value']['message'][:500]}") from refused
