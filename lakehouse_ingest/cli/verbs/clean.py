"""`lakehouse-ingest clean`: removes what was downloaded. No table, broker or setting is touched."""

from lakehouse_ingest.environment.jars import remove_cache
from lakehouse_ingest.environment.terminal import Terminal


def clean() -> None:
    where, size = remove_cache()
    console = Terminal(soft_wrap=True)
    if size:
        console.print(f"Removed {size / 2**20:.0f} MB of jars from {where}; the next start downloads what it needs.")
    else:
        console.print(f"No downloaded jars in {where}.")
