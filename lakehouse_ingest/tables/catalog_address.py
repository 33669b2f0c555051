"""Find the address of the settings' catalog, or serve the embedded one for as long as it is needed."""

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
    """The address of the settings' catalog. An embedded catalog that no process serves is served until the block ends.

    `make`: create a missing warehouse. `serve`: False refuses instead of serving.
    """
    refuse_what_is_no_rest_catalog(settings.catalog)
    if settings.catalog.uri:
        yield settings.catalog.uri
        return
    if not (make or is_warehouse(settings.catalog.path)):
        raise SettingsRefused(
            f"`catalog.path` is {settings.catalog.path}, where no warehouse is: nothing has been written to it yet;"
            " start the pipeline once, or correct the path"
        )
    catalog = embedded(settings.catalog, settings.s3, jars)
    if served := catalog.served:
        yield served
        return
    if not serve:  # a caller that runs for long would keep every pipeline from starting
        raise TryAgain(
            f"no process serves the warehouse {settings.catalog.path} now; start the pipeline, or run without --watch"
        )
    try:
        uri = catalog.start(passing=True)
    except (SettingsRefused, TryAgain):
        if not (served := catalog.served):
            raise
        yield served  # another process has just begun to serve it
        return
    try:
        yield uri
    finally:
        catalog.stop()


@contextmanager
def address_or_empty(settings: Settings, jars: Path | None) -> Iterator[CatalogSettings]:
    """The catalog settings with an address. A missing warehouse is replaced by an empty one in a scratch folder.

    So nothing is created at `catalog.path`, and a pipeline may create its warehouse there at the same time.
    """
    with scratch_folder() as folder:
        if not (settings.catalog.uri or is_warehouse(settings.catalog.path)):
            empty = settings.catalog.model_copy(update={"path": folder})
            settings = settings.model_copy(update={"catalog": empty})
        with catalog_at(settings, jars, make=True) as uri:
            yield settings.catalog.model_copy(update={"uri": uri})
