"""A catalog with a login, by token, by credentials or by signatures, and refusals that name what is wrong.

The gate stands before the catalog of the tests. Spark's session is shared, and for the time of a test its catalog
is set to the gate.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from structlog.testing import capture_logs

from lakehouse_ingest.environment.spark_names import LAKE
from lakehouse_ingest.environment.spark_session import close_catalog
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.observe.watch import Watch
from lakehouse_ingest.pipeline.options import RunOptions
from lakehouse_ingest.pipeline.pipeline import Pipeline
from lakehouse_ingest.settings import Settings
from lakehouse_ingest.tables import PipelineTables
from lakehouse_ingest.tables.clients import connection_of
from telemetry import OFF
from tests.services.doors import in_settings
from tests.services.gateway import Gateway
from tests.services.ingesting import Bench, spark_by
from tests.services.kafka import create_topic, produce
from tests.services.numbered_events import events
from tests.services.pipelines import until

pytestmark = pytest.mark.live

LANDING = 60.0


@pytest.fixture
def gateway(rest_uri: str) -> Iterator[Gateway]:
    with Gateway(rest_uri) as gate:
        yield gate


class Gated:
    """One topic, landed through the gate."""

    def __init__(self, bench: Bench, topic: str, gateway: Gateway, folder: Path, catalog: dict[str, Any]) -> None:
        self._bench, self._topic, self._folder = bench, topic, folder
        self._produced = 0
        here = {"uri": gateway.uri, "namespace": f"ns_{topic}", **catalog}
        self.settings = bench.settings(topic, catalog=here, retry={"first": 0.2, "limit": 30})
        create_topic(bench.broker, topic, 1)
        self.produce()

    def produce(self) -> None:
        first, self._produced = self._produced, self._produced + 20
        produce(self._bench.broker, self._topic, events(range(first, self._produced), 1))

    def landed(self) -> bool:
        name = f"ns_{self._topic}.{self._topic}"
        return self._bench.lake.table_exists(name) and len(self._bench.places(name)) == self._produced

    def pipeline(self, *, drain: bool) -> Pipeline:
        folder = self._folder / "scratch"
        folder.mkdir(exist_ok=True)
        connection = connection_of(self.settings.catalog, self.settings.s3, self.settings.catalog.uri or "")
        watch = Watch(self.settings.name, OFF)
        return Pipeline(self.settings, self._bench.spark, connection, watch, folder, RunOptions(until_latest=drain))

    def drain(self) -> None:
        with spark_by(self._bench.spark, self.settings):
            self.pipeline(drain=True).run()
        assert self.landed()

    @contextmanager
    def running(self) -> Iterator[list[Any]]:
        """Yields what it logs, so far; what ends it by itself is raised at the end."""
        structlog.reset_defaults()
        with (
            spark_by(self._bench.spark, self.settings),
            capture_logs() as logged,
            ThreadPoolExecutor(1, "gated") as threads,
        ):
            pipeline = self.pipeline(drain=False)
            self.end = threads.submit(pipeline.run)
            try:
                assert until(lambda: self.end.done() or self.landed(), LANDING), logged
                yield logged
            finally:
                pipeline.stop.set()
            self.end.result(LANDING)


Make = Callable[..., Gated]


@pytest.fixture
def gated(bench: Bench, topic: str, gateway: Gateway, folder: Path) -> Make:
    return lambda **catalog: Gated(bench, topic, gateway, folder, catalog)


def refused(bench: Bench, **catalog: Any) -> str:
    settings = bench.settings("refused", catalog=catalog)
    with pytest.raises(SettingsRefused) as refusal:
        PipelineTables(connection_of(settings.catalog, settings.s3, catalog["uri"]), "refused").ensure_namespace(
            "refused"
        )
    said = str(refusal.value)
    assert len(said) <= 200
    assert "\n" not in said
    return said


class TestCatalog:
    def test_lets_both_clients_in_by_token_and_header(self, bench: Bench, gateway: Gateway, gated: Make) -> None:
        """Spark's is needed to expire snapshots."""
        gateway.headers = {"x-plant": "seven"}
        landing = gated(token=gateway.token(), headers={"X-Plant": "seven"})
        landing.drain()
        with spark_by(bench.spark, landing.settings):
            bench.spark.sql(f"SHOW NAMESPACES IN {LAKE}").collect()
        assert not gateway.seen["token"]
        assert not gateway.seen["delegation asked"], "nobody had said that the catalog should give credentials"
        assert gateway.seen["pyiceberg"]
        assert gateway.seen["spark"]

    def test_that_is_unavailable_is_waited_for(self, gateway: Gateway, gated: Make) -> None:
        landing = gated(token=gateway.token())
        with landing.running() as logged:
            gateway.away_for(LANDING)
            landing.produce()
            assert until(lambda: "retrying" in {each["event"] for each in logged}, LANDING), logged
            gateway.away_for(0.0)
            assert until(landing.landed, LANDING), logged

    def test_gets_requests_that_are_signed_for_aws(self, gateway: Gateway, gated: Make) -> None:
        key, secret = "AKIAPLANTED", "planted-secret"
        gateway.signer = (key, secret, "eu-central-1", "glue")
        landing = gated(sign_for="glue", sign_region="eu-central-1")
        s3 = {"access_key": key, "secret_key": secret}
        landing.settings = Settings.model_validate({**landing.settings.model_dump(), "s3": s3})
        landing.drain()
        assert gateway.seen["signed"]

    def test_has_no_secret_that_spark_shows(self, bench: Bench) -> None:
        catalog = {**in_settings(bench.uri), "credential": "id:planted-1", "headers": {"X-Key": "planted-2"}}
        with spark_by(bench.spark, bench.settings("shown", catalog=catalog)):
            shown = str(bench.spark.sql("SET").collect())
        assert f"spark.sql.catalog.{LAKE}.credential" in shown
        assert "planted" not in shown

    def test_that_is_slow_is_given_up_in_time(self, bench: Bench, gateway: Gateway) -> None:
        gateway.slow = 5.0
        settings = bench.settings("slow", catalog={"uri": gateway.uri, "token": gateway.token(), "timeout": "300ms"})
        began = time.monotonic()
        with pytest.raises(TryAgain, match="no answer in time"):
            PipelineTables(connection_of(settings.catalog, settings.s3, gateway.uri), "slow")
        assert time.monotonic() - began < gateway.slow


class TestToken:
    def test_is_requested_for_the_scope_from_the_named_server(self, gateway: Gateway, gated: Make) -> None:
        gateway.scope = "PRINCIPAL_ROLE:ingest"
        server = f"{gateway.uri}/v1/oauth/tokens"
        gated(credential=gateway.credential, oauth2_server=server, scope=gateway.scope).drain()
        assert gateway.seen["asked"] >= 2, "one for each client"

    def test_that_expires_is_replaced_before_anything_fails(self, gateway: Gateway, gated: Make) -> None:
        gateway.tokens_live = gateway.grace = 2.0
        landing = gated(credential=gateway.credential)
        with landing.running() as logged:
            for _ in range(3):
                time.sleep(gateway.tokens_live + 0.5)  # until it has surely ended
                landing.produce()
                assert until(landing.landed, LANDING), logged
        assert gateway.seen["asked"] >= 4  # once at first, and for each that has ended
        assert "retrying" not in {each["event"] for each in logged}

    @pytest.mark.parametrize("status", [401, 419])
    def test_that_is_revoked_is_requested_again(self, status: int, gateway: Gateway, gated: Make) -> None:
        gateway.expired = status
        landing = gated(credential=gateway.credential)
        with landing.running() as logged:
            gateway.revoke()
            landing.produce()
            assert until(landing.landed, LANDING), logged

    def test_of_the_settings_that_is_revoked_ends_the_run(self, gateway: Gateway, gated: Make) -> None:
        """Only a person can give us another one, and waiting would hide that."""
        landing = gated(token=gateway.token())
        with pytest.raises(SettingsRefused, match=r"`catalog\.token`"), landing.running() as logged:  # noqa: PT012
            gateway.revoke()
            landing.produce()
            assert until(landing.end.done, LANDING), logged

    def test_that_cannot_be_renewed_for_a_while_is_waited_for(self, gateway: Gateway, gated: Make) -> None:
        """Spark's client gives up a token that it could not renew within seconds. A new start creates a new client."""
        gateway.tokens_live = 2.0
        landing = gated(credential=gateway.credential)
        with landing.running() as logged:
            gateway.tokens_fail_for(LANDING)
            time.sleep(8.0)
            landing.produce()
            assert until(lambda: "retrying" in {each["event"] for each in logged}, LANDING), logged
            gateway.tokens_fail_for(0.0)
            assert until(landing.landed, LANDING), logged
            time.sleep(2 * gateway.tokens_live)
            landing.produce()
            assert until(landing.landed, LANDING), logged
        assert gateway.seen["token failed"]

    def test_that_sparks_client_gave_up_comes_back_with_a_new_client(self, bench: Bench, gateway: Gateway) -> None:
        """Each start does this. If the middle of this test fails, Iceberg has fixed it (iceberg#17756)."""
        gateway.tokens_live, gateway.grace = 1.0, 2.0
        catalog = {"uri": gateway.uri, "credential": gateway.credential}
        show = f"SHOW NAMESPACES IN {LAKE}"
        with spark_by(bench.spark, bench.settings("gave_up", catalog=catalog)):
            bench.spark.sql(show)
            gateway.tokens_fail_for(8.0)
            time.sleep(10.0)
            with pytest.raises((PySparkException, Py4JError), match="expired"):
                bench.spark.sql(show)
            close_catalog(bench.spark)
            bench.spark.sql(show)

    def test_is_not_requested_after_the_start_has_ended(self, gateway: Gateway, gated: Make, bench: Bench) -> None:
        """However often a stream begins again: Spark's client stops renewing its token when the start ends."""
        gateway.tokens_live = 2.0
        landing = gated(credential=gateway.credential)
        with spark_by(bench.spark, landing.settings):
            for _ in range(2):
                landing.produce()
                landing.pipeline(drain=True).run()
            time.sleep(gateway.tokens_live)  # what was asked for in the last moment is counted
            asked = gateway.seen["asked"]
            time.sleep(3 * gateway.tokens_live)
            assert gateway.seen["asked"] == asked


class TestRefusal:
    def test_without_a_login_names_the_missing_settings(self, bench: Bench, gateway: Gateway) -> None:
        assert "`catalog.token` or `catalog.credential`" in refused(bench, uri=gateway.uri)

    def test_of_a_token_names_its_setting_and_hides_its_value(self, bench: Bench, gateway: Gateway) -> None:
        said = refused(bench, uri=gateway.uri, token="planted-token")
        assert "`catalog.token`" in said
        assert "planted" not in said

    def test_of_a_credential_names_its_setting_and_hides_its_value(self, bench: Bench, gateway: Gateway) -> None:
        said = refused(bench, uri=gateway.uri, credential="ingest:planted-secret")
        assert "`catalog.credential`" in said
        assert "planted" not in said

    def test_of_a_scope_names_its_setting(self, bench: Bench, gateway: Gateway) -> None:
        assert "`catalog.scope`" in refused(bench, uri=gateway.uri, credential=gateway.credential, scope="too much")

    def test_of_a_missing_header_repeats_what_the_catalog_says(self, bench: Bench, gateway: Gateway) -> None:
        gateway.headers = {"x-plant": "seven"}
        assert "x-plant" in refused(bench, uri=gateway.uri, token=gateway.token())

    def test_of_credentials_that_once_worked_is_retried(self, bench: Bench, gateway: Gateway) -> None:
        settings = bench.settings("turned", catalog={"uri": gateway.uri, "credential": gateway.credential})
        lake = PipelineTables(connection_of(settings.catalog, settings.s3, gateway.uri), "turned")
        lake.ensure_namespace("turned")
        gateway.revoke()
        good, gateway.client = gateway.client, ("ingest", "turned")
        with pytest.raises(TryAgain, match=r"`catalog\.credential`"):
            lake.ensure_namespace("turned_again")
        gateway.client = good
        lake.ensure_namespace("turned_again")
