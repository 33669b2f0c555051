"""Settings in, a SparkSession out: the locked jars, the catalog named `lake`, nothing resolved at run time."""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse_ingest.settings import SparkSettings

LAKE = "lake"  # the catalog's name within Spark; never seen outside this process


def open_session(
    name: str,
    settings: SparkSettings,
    jars: Sequence[Path],
    catalog: Mapping[str, str],
    java: Path,
    scratch: Path,
) -> SparkSession:
    """`catalog` holds the REST catalog's properties: uri, token, and what else the user gave."""
    os.environ["JAVA_HOME"] = str(java.parent.parent)  # what pyspark's launcher looks at
    log4j = files("lakehouse_ingest").joinpath("log4j2.properties")
    options = {
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "unused"),
        # On a laptop the host's name may lead to an address that nothing listens on.
        **(
            {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            if settings.master.startswith("local")
            else {}
        ),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{LAKE}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{LAKE}.type": "rest",
        # foreachBatch runs in a clone of the session with a catalog of its own: a cache would show old tables.
        f"spark.sql.catalog.{LAKE}.cache-enabled": "false",
        **{f"spark.sql.catalog.{LAKE}.{key}": value for key, value in catalog.items()},
        "spark.sql.session.timeZone": "UTC",
        # Fields that differ only by case are two fields.
        "spark.sql.caseSensitive": "true",
        # The start comes from the tables; a checkpoint is thrown away with the process.
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # With no trigger interval an idle query asks the broker for its ends this often.
        "spark.sql.streaming.pollingDelay": "100ms",
        "spark.sql.shuffle.partitions": "8",
        **settings.options,
    }
    for noisy in ("py4j", "DataFrameQueryContextLogger"):
        # They print the stack of every error on its way to us; the pipeline tells it once.
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(f"lakehouse-ingest {name}").master(settings.master)
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
