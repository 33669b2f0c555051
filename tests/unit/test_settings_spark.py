"""What a pipeline relies on of Spark is not for its settings to change."""

import pytest

from lakehouse_ingest.errors import LONGEST
from lakehouse_ingest.settings import SparkSettings
from lakehouse_ingest.settings.spark_options import NOT_TAKEN, RELIED_ON
from tests.services.given_settings import ONE_TOPIC, refused


class TestRefusal:
    @pytest.mark.parametrize(
        ("option", "value", "said"),
        [
            *((name, "x", f"{name}, which is {needed} here: {why}") for name, (needed, why) in RELIED_ON.items()),
            *((f"{start}x", "x", why) for start, why in NOT_TAKEN.items()),
            ("spark.sql.catalog.lake", "x", "the same catalog"),
            ("spark.sql.catalog.lake.cache-enabled", "true", "the same catalog"),
            ("spark.sql.session.timeZone", "UTC, CET", "a time without a zone is in UTC"),
        ],
    )
    def test_of_a_spark_option_that_we_rely_on_gives_the_reason(self, option: str, value: str, said: str) -> None:
        sentence = refused({**ONE_TOPIC, "spark": {"options": {option: value}}})
        assert sentence.startswith(f"the setting `spark.options` should not set {option}")
        assert said in sentence
        assert len(sentence) <= LONGEST

    @pytest.mark.parametrize("key", ["spark.driver.extraClassPath=/tmp/evil.jar:", "spark.a b", "spark.a\nspark.b", ""])
    def test_names_a_spark_key_that_holds_another_setting(self, key: str) -> None:
        """Spark's launcher reads the first `=` as the end of the key."""
        with pytest.raises(ValueError, match="should have no key such as"):
            SparkSettings(options={key: "x"})


class TestSettings:
    def test_accept_spark_options_that_agree_with_ours(self) -> None:
        needed = {name: value.upper() for name, (value, _) in RELIED_ON.items()}
        extensions = f"other, {needed['spark.sql.extensions']}"
        more = {"spark.sql.extensions": extensions, "spark.speculation": "true", "spark.sql.catalog.lakehouse": "other"}
        assert SparkSettings(options={**needed, **more}).options == {**needed, **more}
