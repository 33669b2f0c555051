"""How far a download is: a bar on a terminal, plain lines elsewhere, both on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from lakehouse_ingest.environment.jars.download import Received
from lakehouse_ingest.environment.terminal import Terminal
from lakehouse_ingest.printable import many


@contextmanager
def shown(kind: str, files: int, size: int, where: Path) -> Iterator[Callable[[Received], None]]:
    """Announces the download of that many files and bytes; what the block is given shows how far it is."""
    console = Terminal(stderr=True)
    about = f"{many(files, f'{kind} jar')}, {size / 2**20:.1f} MB"
    console.print(f"Downloading {about}, once; they are kept in {where}", soft_wrap=True)
    with _bar(console, kind, size) if console.is_terminal else _lines(console, files) as report:
        yield report
    console.print(f"The {kind} jars are complete.", soft_wrap=True)


@contextmanager
def _bar(console: Terminal, kind: str, size: int) -> Iterator[Callable[[Received], None]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(kind, total=size)
        yield lambda received: bar.update(task, completed=received.size)


@contextmanager
def _lines(console: Terminal, files: int) -> Iterator[Callable[[Received], None]]:
    done = 0

    def line(received: Received) -> None:
        nonlocal done
        if received.file:
            done += 1
            console.print(f"  {done}/{files} {received.file}", soft_wrap=True)

    yield line
