"""`lakehouse-ingest metrics`: the catalogue of what is measured, read off what measures."""

import json

from lakehouse_ingest import observing
from lakehouse_ingest.terminal import say


def metrics(*, as_json: bool) -> None:
    say(json.dumps(observing.metrics(), indent=2) if as_json else observing.metrics_page(), nl=as_json)
