"""A page of another site in a real Chromium attacks an embedded catalog and a status port on the same machine.

It knows every address, and the token as well, and can point its own name to this machine at any time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog import load_catalog

from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.observe.health import State
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.settings import HealthSettings
from telemetry import OFF
from tests.services.browser import Browser
from tests.services.debian import NotToBeHad
from tests.services.doors import client, known
from tests.services.fronts import Answer, Front, Request

pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]  # the first to ask fetches the browser

EVIL = "evil.example"
PAGES = ("/", "/status.json", "/metrics", "/ready")
# Each try as a page can make it: what it was let see, or that it was shown nothing.
TRIES = """
const [tries, done] = arguments;
const seen = async ([url, options]) => {
  try {
    const answer = await fetch(url, {...options, signal: AbortSignal.timeout(20000)});
    return [answer.type, answer.status, await answer.text()];
  } catch (failure) { return ["nothing", 0, ""]; }
};
Promise.all(tries.map(seen)).then(done);
"""
FORM = """
const [url, body, done] = arguments;
const frame = document.createElement("iframe");
frame.name = "sink";
frame.onload = () => done(true);
document.body.append(frame);
const form = Object.assign(document.createElement("form"),
  {method: "POST", action: url, enctype: "text/plain", target: "sink"});
form.append(Object.assign(document.createElement("input"), {name: body, value: ""}));
document.body.append(form);
frame.onload = () => setTimeout(() => done(true), 200);
form.submit();
"""


@dataclass
class Elsewhere(Front):
    """Somebody's site."""

    def answer(self, request: Request) -> Answer:  # noqa: ARG002 - it says the same to all
        return Answer(HTTPStatus.OK, b"<!doctype html><title>theirs</title><body>", (("Content-Type", "text/html"),))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    try:
        started = Browser(tmp_path_factory.mktemp("chromium"), {EVIL: "127.0.0.1"})
    except NotToBeHad as missing:
        pytest.skip(f"no Chromium: {missing}")
    with started:
        yield started


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, jars_folder: Path | None) -> Iterator[EmbeddedCatalog]:
    with EmbeddedCatalog(tmp_path_factory.mktemp("lake"), port=0, jars=jars_folder) as served:
        load_catalog("lake", **client(known(served))).create_namespace("ours")
        yield served


@pytest.fixture
def status() -> Iterator[str]:
    watch = Watch("plant-7", OFF)
    watch.report("sensors", State.RUNNING)
    with watch.serving(HealthSettings(port=0), {"version": "1"}) as url:
        assert url
        yield url


def by_name(url: str, name: str) -> str:
    return url.replace(str(urlsplit(url).hostname), name)


def tries(catalog: str, token: str) -> list[tuple[str, dict[str, Any]]]:
    """To read and to make a namespace, as simple requests and with all that is asked for."""
    body = json.dumps({"namespace": ["theirs"]})
    key = {"Authorization": f"Bearer {token}"}
    all_of_it = {**key, "Content-Type": "application/json"}
    made: list[tuple[str, dict[str, Any]]] = []
    for mode in ("no-cors", "cors"):
        made += [
            (f"{catalog}/v1/config", {"mode": mode}),
            (f"{catalog}/v1/namespaces", {"mode": mode, "headers": key}),
            (f"{catalog}/v1/namespaces", {"mode": mode, "method": "POST", "body": body}),
            (f"{catalog}/v1/namespaces", {"mode": mode, "method": "POST", "body": body, "headers": all_of_it}),
            (f"{catalog}/v1/namespaces/ours", {"mode": mode, "method": "DELETE", "headers": key}),
        ]
    return made


def nothing_has_changed(catalog: EmbeddedCatalog) -> bool:
    return load_catalog("lake", **client(known(catalog))).list_namespaces() == [("ours",)]


class TestPageOfAnotherSite:
    @pytest.mark.parametrize("name", ["127.0.0.1", "localhost", EVIL])
    def test_sees_and_changes_nothing_of_the_catalog(
        self, browser: Browser, catalog: EmbeddedCatalog, name: str
    ) -> None:
        uri = known(catalog)
        with Elsewhere() as site:
            browser.open(by_name(site.uri, EVIL))
            told = by_name(uri, name)
            for kind, code, said in browser.run_and_wait(TRIES, tries(told, catalog.token_of(uri))):
                assert kind in ("nothing", "opaque")
                assert (code, said) == (0, "")
            assert browser.run_and_wait(FORM, f"{told}/v1/namespaces", '{"namespace": ["theirs"], "properties": {}}')
        assert nothing_has_changed(catalog)

    def test_whose_name_leads_to_the_catalog_is_refused(self, browser: Browser, catalog: EmbeddedCatalog) -> None:
        """The browser then takes the catalog for the page's own site and allows everything. Only the catalog can
        tell."""
        uri = known(catalog)
        site = by_name(uri, EVIL)
        browser.open(f"{site}/v1/config")
        assert "answers to 127.0.0.1 and localhost alone" in browser.run("return document.body.innerText")
        for kind, code, said in browser.run_and_wait(TRIES, tries(site, catalog.token_of(uri))):
            # With no-cors its own rules keep the page from some of them.
            assert (kind, code) in (("basic", 403), ("nothing", 0)), said
            assert not said or json.loads(said)["error"]["type"] == "ForbiddenException"
        assert nothing_has_changed(catalog)

    def test_sees_nothing_of_the_status_port(self, browser: Browser, status: str) -> None:
        with Elsewhere() as site:
            browser.open(by_name(site.uri, EVIL))
            asked = [
                (f"{by_name(status, name)}{page}", {"mode": mode})
                for name in ("127.0.0.1", "localhost", EVIL)
                for page in PAGES
                for mode in ("cors", "no-cors")
            ]
            for kind, code, said in browser.run_and_wait(TRIES, asked):
                assert kind in ("nothing", "opaque")
                assert (code, said) == (0, "")

    def test_whose_name_leads_to_the_status_port_is_refused(self, browser: Browser, status: str) -> None:
        site = by_name(status, EVIL)
        browser.open(f"{site}/")
        assert "`health.hosts`" in browser.run("return document.body.innerText")
        for _, code, said in browser.run_and_wait(TRIES, [(f"{site}{page}", {"mode": "cors"}) for page in PAGES]):
            assert code == 403
            assert "sensors" not in said
            assert "plant-7" not in said

    def test_may_link_to_the_status_page(self, browser: Browser, status: str) -> None:
        with Elsewhere() as site:
            browser.open(by_name(site.uri, EVIL))
            browser.run("location.href = arguments[0]", f"{status}/")
            browser.wait_for("verdict", "ready")
