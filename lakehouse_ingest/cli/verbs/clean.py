"""`lakehouse-ingest clean`: removes what was downloaded or made for quick starts. No table or setting is touched."""

from lakehouse_ingest.environment.jars import remove_cache
from lakehouse_ingest.environment.terminal import Terminal


def clean() -> None:
    where, size = remove_cache()
    console = Terminal(soft_wrap=True)
    if size:
        removed = f"Removed {size / 2**20:.0f} MB of jars and Java's classes from {where}"
        console.print(f"{removed}; the next start downloads what it needs.")
    else:
        console.print(f"No jars and no classes of Java in {where}.")
