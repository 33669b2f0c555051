"""The one way to a terminal for the answers of commands. Text from elsewhere has no effect as markup or escapes."""

from collections.abc import Iterable
from typing import IO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from lakehouse_ingest.printable import printable


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Prints plain text, which may have several lines."""
    typer.echo(printable(text, lines=True), err=err, nl=nl)


class Terminal(Console):
    """rich's console without markup and emoji codes: names may hold brackets and colons."""

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
        """Everything that is printed passes here in pieces; the control pieces among them are rich's own."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text, lines=True), piece.style)
