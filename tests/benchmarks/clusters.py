"""The same pipeline in local mode and on clusters, on two cores each: what the way to other processes costs."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.ours import BASE
from tests.benchmarks.race import Ground, one_run
from tests.benchmarks.results import Run
from tests.services.spark_cluster import HERE, Cluster

LOCAL, WITHIN, STANDALONE = "local[2]", "local-cluster[2,1,1024]", "standalone cluster, two workers"
MASTERS = (LOCAL, WITHIN, STANDALONE)  # local mode first: the others are compared with it
# The name of this machine may lead to an address on which nothing listens.
SPARK = """\
[spark]
master = "{master}"
[spark.options]
"spark.driver.host" = "{host}"
"""


def one_run_on(name: str, ground: Ground, events: int) -> Run:
    """A cluster is started beforehand, and its processes count."""
    topic = ground.topics.of("plain", events)
    with ground.place(name, topic) as here, _master(name, here.folder) as (master, beside):
        case = replace(BASE, name=name, more=SPARK.format(master=master, host=HERE))
        case.prepare()
        return one_run(case, here, events, ground, beside)


@contextmanager
def _master(name: str, folder: Path) -> Iterator[tuple[str, Collection[int]]]:
    """Its address, and the processes of a cluster."""
    if name != STANDALONE:
        yield name, ()
        return
    with Cluster(folder) as cluster:
        yield cluster.uri, cluster.processes
