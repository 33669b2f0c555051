"""From settings to the properties of both clients: alike where they can be, complete, and of REST catalogs only."""

from typing import Any

import pytest

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.tables.clients import connection_of, refuse_what_is_no_rest_catalog, spark_properties

URI = "http://localhost:8181"
KEYS = {"access_key": "key-id", "secret_key": "key-secret", "session_token": "of-a-moment"}


def both(s3: dict[str, Any] | None = None, **catalog: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Spark's and pyiceberg's."""
    settings, files = CatalogSettings.model_validate(catalog), S3Settings.model_validate(s3 or {})
    return spark_properties(settings, files, URI), dict(connection_of(settings, files, URI).properties)


class TestClientProperties:
    def test_are_left_to_the_clients_where_nothing_is_set(self) -> None:
        spark, pyiceberg = both()
        assert set(spark) == {"uri", "rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms"}
        assert pyiceberg == {}

    def test_have_the_same_credentials_headers_and_store(self) -> None:
        catalog = {"credential": "id:secret", "scope": "all", "headers": {"X-Plant": "seven"}}
        s3 = {"endpoint": "http://minio:9000", "path_style": True, **KEYS}
        for found in both(s3, **catalog):
            assert found["credential"] == "id:secret"
            assert found["scope"] == "all"
            assert found["oauth2-server-uri"] == f"{URI}/v1/oauth/tokens"
            assert found["header.X-Plant"] == "seven"
            assert found["s3.endpoint"] == "http://minio:9000"
            assert found["s3.secret-access-key"] == "key-secret"
            assert found["s3.session-token"] == "of-a-moment"
            assert found["client.region"], "AWS's client can't do without"

    @pytest.mark.parametrize("path_style", [True, False])
    def test_address_the_bucket_in_the_same_style(self, path_style: bool) -> None:  # noqa: FBT001
        spark, pyiceberg = both({"endpoint": "http://minio:9000", "path_style": path_style})
        assert (spark.get("s3.path-style-access") == "true") == path_style
        assert (pyiceberg["s3.force-virtual-addressing"] == "true") != path_style

    def test_for_vended_credentials_hold_no_keys_of_ours(self) -> None:
        for found in both(KEYS, vended_credentials=True):
            assert found["header.X-Iceberg-Access-Delegation"] == "vended-credentials"
            assert not {"key-secret", "of-a-moment"} & set(found.values())
        for found in both(KEYS):
            assert "header.X-Iceberg-Access-Delegation" not in found

    def test_for_signatures_take_region_and_keys_from_s3(self) -> None:
        spark, pyiceberg = both({"region": "eu-central-1", **KEYS}, sign_for="glue")
        for found in (spark, pyiceberg):
            assert found["rest.sigv4-enabled"] == "true"
            assert found["rest.signing-name"] == "glue"
            assert found["rest.signing-region"] == "eu-central-1"
        assert spark["rest.secret-access-key"] == pyiceberg["client.secret-access-key"] == "key-secret"

    def test_of_the_settings_override_ours(self) -> None:
        for found in both({"region": "a"}, properties={"client.region": "b", "prefix": "c"}):
            assert (found["client.region"], found["prefix"]) == ("b", "c")


class TestCatalogKind:
    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"uri": "thrift://metastore:9083"}, "`catalog.uri`"),
            ({"uri": "jdbc:postgresql://user:planted@db/lake"}, "`catalog.uri`"),
            ({"uri": "sqlite:////tmp/lake.db"}, "`catalog.uri`"),
            ({"uri": "glue"}, "`catalog.uri`"),
            ({"uri": "planted:secret@host"}, "`catalog.uri`"),
            ({"properties": {"type": "hive"}}, "`catalog.properties`"),
            ({"properties": {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}}, "`catalog.properties`"),
            ({"properties": {"py-catalog-impl": "my.Catalog"}}, "`catalog.properties`"),
            ({"properties": {"uri": "thrift://metastore:9083"}}, "`catalog.properties`"),
        ],
    )
    def test_other_than_rest_is_refused_without_showing_secrets(self, settings: dict[str, Any], named: str) -> None:
        with pytest.raises(SettingsRefused) as refusal:
            refuse_what_is_no_rest_catalog(CatalogSettings.model_validate(settings))
        said = str(refusal.value)
        assert named in said
        assert len(said) <= 200
        assert "planted@" not in said
        assert "secret" not in said
