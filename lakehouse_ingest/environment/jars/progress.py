"""What is downloaded, where to, and how far it is: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lakehouse_ingest.environment.terminal import Terminal


@dataclass(frozen=True)
class Step:
    """How far a kind's download is; `current` is the file on its way, empty at both ends."""

    kind: str
    done: int
    total: int
    megabytes: int
    where: Path
    current: str = ""

    @property
    def starting(self) -> bool:
        return not self.done and not self.current

    def at(self, done: int, current: str) -> "Step":
        return replace(self, done=done, current=current)


Report = Callable[[Step], None]


@contextmanager
def shown(given: Report | None) -> Iterator[Report]:
    """The caller's own way to show it, or ours on standard error."""
    if given is not None:
        yield given
        return
    console = Terminal(stderr=True)
    if not console.is_terminal:
        yield lambda step: _line(console, step)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[current]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("jars", total=None, current="looking them up")

        def move(step: Step) -> None:
            if step.starting:
                bar.console.print(_announced(step))
            bar.update(task, completed=step.done, total=step.total, current=step.current)

        yield move


def _announced(step: Step) -> str:
    size = f"{step.total} {step.kind} jars, about {step.megabytes} MB"
    return f"Downloading {size}, once; they are kept in {step.where}"


def _line(console: Terminal, step: Step) -> None:
    text = f"  {step.done + 1}/{step.total} {step.current}" if step.current else f"The {step.kind} jars are complete."
    console.print(_announced(step) if step.starting else text, soft_wrap=True)
