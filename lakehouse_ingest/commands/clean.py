"""`lakehouse-ingest clean`: takes away what was downloaded. No table, broker or setting is touched."""

from rich.console import Console

from lakehouse_ingest.jars import remove_cache


def clean() -> None:
    where, size = remove_cache()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if size:
        console.print(f"Removed {size / 2**20:.0f} MB of jars from {where}; the next start downloads what it needs.")
    else:
        console.print(f"No downloaded jars in {where}.")
