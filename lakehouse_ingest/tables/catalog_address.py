"""Where the catalog of the settings answers: at an address, or embedded and served by us meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse_ingest.environment.embedded.catalog import is_warehouse
from lakehouse_ingest.environment.scratch import scratch_folder
from lakehouse_ingest.errors import SettingsRefused, TryAgain
from lakehouse_ingest.settings import CatalogSettings, Settings
from lakehouse_ingest.tables.clients import embedded, refuse_what_is_no_rest_catalog


@contextmanager
def catalog_at(settings: Settings, jars: Path | None, *, make: bool = False, serve: bool = True) -> Iterator[str]:
    """The catalog of the settings: where it is, or the embedded one, served by whoever has it or by us meanwhile."""
    refuse_what_is_no_rest_catalog(settings.catalog)
    if settings.catalog.uri:
        yield settings.catalog.uri
        return
    if not (make or is_warehouse(settings.catalog.path)):
        raise SettingsRefused(
            f"`catalog.path` is {settings.catalog.path}, where no warehouse is: nothing has been ingested into it yet"
        )
    catalog = embedded(settings.catalog, settings.s3, jars)
    if served := catalog.served:
        yield served
        return
    if not serve:  # for as long as somebody looks on, no pipeline could begin
        raise TryAgain(f"nobody serves the warehouse {settings.catalog.path} now; look at it without --watch")
    try:
        uri = catalog.start(passing=True)
    except (SettingsRefused, TryAgain):
        if not (served := catalog.served):
            raise
        yield served  # by whoever has just begun to
        return
    try:
        yield uri
    finally:
        catalog.stop()


@contextmanager
def address_or_empty(settings: Settings, jars: Path | None) -> Iterator[CatalogSettings]:
    """With its address; where there is no warehouse yet, an empty one elsewhere: not even its folder is made.

    What somebody makes there meanwhile is theirs.
    """
    with scratch_folder() as folder:
        if not (settings.catalog.uri or is_warehouse(settings.catalog.path)):
            empty = settings.catalog.model_copy(update={"path": folder})
            settings = settings.model_copy(update={"catalog": empty})
        with catalog_at(settings, jars, make=True) as uri:
            yield settings.catalog.model_copy(update={"uri": uri})
