"""The systems that we are compared with. Each module runs alone: `python -m tests.benchmarks.peers.connect 200000`."""

from importlib import import_module

from tests.benchmarks.systems import System

# Imported late: a peer may need what `make bench` installs first.
PLACES = (
    "connect:KafkaConnect",
    "spark_job:SparkJob",
    "quix:Quix",
    "limits:Consume",
    "limits:ConsumeDecodeWrite",
)


def peers() -> list[System]:
    """Peers, then limits."""
    made = (place.split(":") for place in PLACES)
    return [getattr(import_module(f"{__name__}.{module}"), name)() for module, name in made]
