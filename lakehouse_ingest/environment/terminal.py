"""The one way to a terminal, for what commands answer: nothing that is said there is obeyed as markup or escapes."""

from collections.abc import Iterable
from typing import IO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from lakehouse_ingest.printable import printable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Plain text, of as many lines as it has."""
    typer.echo(printable(text, lines=True), err=err, nl=nl)


class Terminal(Console):
    """rich's, where a text means what it says: names hold brackets and colons."""

    def __init__(
        self,
        *,
        stderr: bool = False,
        soft_wrap: bool = False,
        file: IO[str] | None = None,
        width: int | None = None,
        force_terminal: bool | None = None,
    ) -> None:
        super().__init__(
            stderr=stderr,
            soft_wrap=soft_wrap,
            file=file,
            width=width,
            force_terminal=force_terminal,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All that is printed comes by here, in pieces; the controls among them are rich's own."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, lines=True), piece.style)
