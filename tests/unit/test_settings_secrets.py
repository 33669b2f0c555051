"""No secret in settings that are shown, nor in the sentence that refuses them."""

from typing import Any

import pytest

from tests.services.given_settings import ONE_TOPIC, SECRET, loaded, refused


class TestSettings:
    def test_show_no_secret(self) -> None:
        found = loaded(
            {
                **ONE_TOPIC,
                "catalog": {
                    "uri": f"http://me:{SECRET}@host/",
                    "token": SECRET,
                    "properties": {"s3.secret-access-key": SECRET},
                },
                "source": {"options": {"sasl.password": SECRET}},
                "spark": {"options": {"spark.hadoop.fs.s3a.secret.key": SECRET}},
                "telemetry": {"headers": {"authorization": SECRET}, "endpoint": f"http://me:{SECRET}@host/"},
            }
        )
        assert SECRET not in repr(found)
        assert SECRET not in str(found)
        assert SECRET not in f"{found.catalog} {found.source!r} {found.streams}"
        assert "s3.secret-access-key" in repr(found), "which ones are set may be seen"
        assert found.catalog.token is not None
        assert found.catalog.token.get_secret_value() == SECRET


class TestRefusal:
    @pytest.mark.parametrize(
        "tree",
        [
            {"catalog": {"token": [SECRET]}},
            {"catalog": {"token": {"value": SECRET}}},
            {"catalog": [{"token": SECRET}]},
            {"catalog": {"uri": [f"http://me:{SECRET}@host/"]}},
            {"catalog": f"{{token: {SECRET}"},
            {"catalog": f"http://me:{SECRET}@host/"},
            {"catalog": {"tokn": SECRET}},
            {"catalog": {"properties": {"s3.secret-access-key": [SECRET]}}},
            {"catalog": {"properties": SECRET}},
            {"source": {"options": {"sasl.password": {"x": SECRET}}}},
            {"source": {"options": SECRET}},
            {"telemetry": {"headers": {"authorization": [SECRET]}}},
            {"telemetry": [{"headers": {"authorization": SECRET}}]},
        ],
    )
    def test_shows_no_secret(self, tree: dict[str, Any]) -> None:
        assert SECRET not in refused({**ONE_TOPIC, **tree})

    def test_of_a_variable_shows_no_secret(self) -> None:
        for variable, value in (
            ("LAKEHOUSE_INGEST_CATALOG", f"{{token: {SECRET}"),
            ("LAKEHOUSE_INGEST_CATALOG__TOKEN", f"[{SECRET}]"),
            ("LAKEHOUSE_INGEST_CATALOG__TOKN", SECRET),
        ):
            assert SECRET not in refused(environment={variable: value})
