"""Events with a number and a time of their own, and where in a topic they stand."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

DAY_MS = 86_400_000
MADE = 1_750_000_000_000


def events(numbers: Iterable[int], partitions: int = 2) -> Iterator[tuple[Any, ...]]:
    for n in numbers:
        value = json.dumps({"n": n, "ts_ms": MADE + n * 1000, "place": f"p{n % 3}"}).encode()
        yield f"k{n}".encode(), value, None, None, n % partitions


def offsets(topic: str, *counts: int) -> dict[tuple[str, int, int], int]:
    """Every offset of these partitions, once."""
    return {(topic, partition, offset): 1 for partition, count in enumerate(counts) for offset in range(count)}
