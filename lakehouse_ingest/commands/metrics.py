"""`lakehouse-ingest metrics`: the catalogue of what is measured, read off what measures."""

import json

import typer

from lakehouse_ingest import observing


def metrics(*, as_json: bool) -> None:
    typer.echo(json.dumps(observing.metrics(), indent=2) if as_json else observing.metrics_page(), nl=as_json)
