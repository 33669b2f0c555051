"""The same services out of containers: LAKEHOUSE_TEST_SERVICES=containers, where a Docker engine answers.

Not run so far: no machine that this was written on has a Docker engine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testcontainers.community.kafka import KafkaContainer
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

CATALOG_IMAGE = "apache/iceberg-rest-fixture:1.10.1"
CATALOG_PORT = 8181


@contextmanager
def broker() -> Iterator[str]:
    with KafkaContainer().with_kraft() as kafka:
        yield kafka.get_bootstrap_server()


@contextmanager
def catalog(warehouse: Path) -> Iterator[str]:
    """The warehouse is mounted at the same path, for the same user: Spark writes there from outside."""
    server = (
        DockerContainer(CATALOG_IMAGE, user=f"{os.getuid()}:{os.getgid()}")
        .with_volume_mapping(str(warehouse), str(warehouse), "rw")
        .with_env("CATALOG_WAREHOUSE", f"file://{warehouse}")
        .with_env("CATALOG_URI", f"jdbc:sqlite:{warehouse}/catalog.db")
        .with_exposed_ports(CATALOG_PORT)
        .waiting_for(HttpWaitStrategy(CATALOG_PORT, "/v1/config"))
    )
    with server:
        yield f"http://{server.get_container_host_ip()}:{server.get_exposed_port(CATALOG_PORT)}"
