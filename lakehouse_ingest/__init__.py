"""Events from Kafka into Apache Iceberg tables, exactly once, behind an Iceberg REST catalog.

from lakehouse_ingest import load_settings, run
run(load_settings("pipeline.toml"), until_latest=True)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_ingest.api import load_settings, plan, run, set_aside, status, verify

__all__ = ["load_settings", "plan", "run", "set_aside", "status", "verify"]


def __getattr__(name: str) -> Any:
    # Not before it is asked for: it loads pyspark, and `lakehouse-ingest --help` should not.
    if name in __all__:
        return getattr(importlib.import_module("lakehouse_ingest.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
