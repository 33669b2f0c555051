"""The contract: how far data may change a table. The settings, as planning and as the stages need them."""

from catalog import Contract, Rule
from lakehouse_ingest.schema.columns import Aside
from lakehouse_ingest.settings import TableSettings


def contract_of(settings: TableSettings) -> Contract:
    """The contract for planning. Paths begin with the name of a field, which may differ from that of its column."""
    return Contract(
        Rule(settings.contract or "evolve"), {path: Rule(each) for path, each in settings.contracts.items()}
    )


def aside_of(settings: TableSettings) -> Aside | None:
    """What happens to values that no column takes. None is the default: their records are dead-lettered."""
    rule = settings.contract or "evolve"
    if settings.rules == {"evolve"} and not settings.rescue:
        return None
    paths = {path: not settings.keeps(each) for path, each in settings.contracts.items()}
    return Aside(not settings.keeps(rule), paths, settings.rescues)
