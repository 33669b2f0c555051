"""Everything that we use of pyspark's private parts: a new version of pyspark is checked against this file.

pyspark offers no public way to any of it.
"""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def java_packages(spark: SparkSession) -> Any:
    """py4j's view of Java's packages: Iceberg's Java API, and classes of Java's own library, have no other way in."""
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    """Java's object of a session: to clone it, to close its catalogs, and to load tables by Iceberg's API."""
    return spark._jsparkSession


def java_query(query: StreamingQuery) -> Any:
    """Java's object of a query: pyspark's shortens the causes of an error, and asks for a progress field by field."""
    return query._jsq


def java_process(spark: SparkSession) -> Any:
    """The `Popen` of the JVM: whether it lives, and what it uses. None for a JVM that pyspark did not start."""
    return getattr(spark.sparkContext._gateway, "proc", None)


def executors(spark: SparkSession) -> int:
    """How many the cluster has given us: pyspark's status tracker shows jobs and stages only."""
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver is one of them


def callback_client(spark: SparkSession) -> Any:
    """py4j's client, which knows the connection that a callback came by: nobody else closes that."""
    gateway: Any = spark.sparkContext._gateway
    return gateway._gateway_client


def is_running() -> bool:
    """Whether this process has a Spark. The public `getOrCreate` would start one."""
    return SparkContext._active_spark_context is not None


def forget_java() -> None:
    """pyspark keeps these for the next session of this process, which would talk to a JVM that is gone."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
