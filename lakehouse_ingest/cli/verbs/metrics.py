"""`lakehouse-ingest metrics`: the list of all metrics, made from the instruments themselves."""

import json

from lakehouse_ingest.environment.terminal import say
from lakehouse_ingest.observe import watch


def metrics(*, as_json: bool) -> None:
    say(json.dumps(watch.metrics(), indent=2) if as_json else watch.metrics_page(), nl=as_json)
