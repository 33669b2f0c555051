"""Settings from a tree, an environment or a file, and the sentence with which they are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import Settings, load_settings

SECRET = "s3cr3t-planted"
ONE_TOPIC: dict[str, Any] = {"streams": [{"topics": ["sensors"]}]}


def loaded(
    tree: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, path: Path | None = None
) -> Settings:
    return load_settings(path, ONE_TOPIC if tree is None else tree, environment or {})


def refused(
    tree: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None, path: Path | None = None
) -> str:
    with pytest.raises(SettingsRefused) as caught:
        loaded(tree, environment, path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def in_stream(**values: Any) -> dict[str, Any]:
    return {"name": "x", "streams": [{"topics": ["sensors"], **values}]}


def in_table(**values: Any) -> dict[str, Any]:
    return in_stream(tables=[values])
