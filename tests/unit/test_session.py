"""What of a session can be seen from outside."""

from pathlib import Path

from lakehouse_ingest.session import _arguments, _options
from lakehouse_ingest.settings import SparkSettings


def test_no_secret_of_the_catalog_is_an_argument_of_a_process(tmp_path: Path) -> None:
    catalog = {"uri": "http://localhost:8181", "token": "planted-1", "s3.secret-access-key": "planted-2"}
    options = _options("plant", SparkSettings(), [Path("a.jar")], catalog, tmp_path)
    assert "planted" in str(options)
    assert "planted" not in str(_arguments(options))
    assert _arguments(options)["spark.jars"] == "a.jar"
