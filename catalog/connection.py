"""The client of one catalog: every request has a time limit, every failure is one of our exceptions."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from pyiceberg.catalog import TOKEN, Catalog
from pyiceberg.catalog.rest import CREDENTIAL, SIGV4
from pyiceberg.table import Table

from catalog.class_names import LOCATION_PROVIDER, refuse_code, without_location_provider
from catalog.conversions import state_of
from catalog.errors import Denied, FileMissing, RequestRefused, Unreachable, translated
from catalog.pyiceberg_internals import LimitedRestCatalog
from catalog.retries import LookAgain, look_until_settled
from catalog.specs import HIDDEN_KEYS, Connection, TableState

_SHORTEST_SECRET = 4
_LOADS = 3
_AT_ONCE = 1.0  # seconds: a catalog that takes longer to fail is not asked again


class CatalogClient:
    """The client of a catalog that is ready for use; safe to share between threads.

    `connect` makes one for a REST catalog; any other catalog of pyiceberg's can be given too.
    """

    def __init__(
        self,
        pyiceberg: Catalog,
        settled: Callable[[str], None] = lambda _table: None,
        hidden_keys: str = HIDDEN_KEYS,
    ) -> None:
        self.pyiceberg = pyiceberg
        self.settled = settled  # gets the table of each publication that took effect though its answer was lost
        self.hidden_keys = hidden_keys
        # Read once connected: a server may hand out credentials in its own configuration.
        self._secrets = secrets_in(pyiceberg.properties, hidden_keys)
        self._let_in = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pyiceberg.name!r})"

    def close(self) -> None:
        """Close the connections; the client can't be used afterwards."""
        self.pyiceberg.close()

    @contextmanager
    def calling(self, what: str, *, committing: bool = False) -> Iterator[None]:
        """Translate what is raised while talking to this catalog."""
        with (
            _asked_who(self.pyiceberg.properties, before=self._let_in),
            translated(what, self._secrets, committing=committing),
        ):
            yield
        self._let_in = True

    @contextmanager
    def reading(self, path: str, name: str) -> Iterator[None]:
        """Translate what is raised while reading a file of a table; FileMissing if its store does not have it."""
        with self.calling(f"reading {path} of table {name}"):
            try:
                yield
            except FileNotFoundError:
                missing = FileMissing(f"the file {path} of table {name} is not there")
                missing.path = path
                raise missing from None

    def table(self, name: str) -> Table:
        """Load a table as pyiceberg has it; asks again if the catalog is briefly unavailable, since nothing changes."""
        identifier = identifier_of(name)

        def load() -> Table:
            asked = monotonic()
            try:
                with self.calling(f"loading table {name}"):
                    return without_location_provider(self.pyiceberg.load_table(identifier), self.pyiceberg.properties)
            except Unreachable as silence:
                if monotonic() - asked > _AT_ONCE:
                    raise
                raise LookAgain(silence) from silence

        return look_until_settled(load, _LOADS)

    def state(self, name: str) -> TableState:
        """Load a table as plain values."""
        return state_of(self.table(name))

    def state_for_engines(self, name: str) -> TableState:
        """Load a table before an engine opens it; CodeRefused if the engine would load code that the table names."""
        state = self.state(name)
        self.refuse_code(state)
        return state

    def refuse_code(self, state: TableState) -> None:
        """Raise CodeRefused if an engine that opens the table would load code that the table names."""
        named = {key: text for key, text in state.properties.items() if key == LOCATION_PROVIDER}
        refuse_code(named, self.pyiceberg.properties, f"table {state.name}")


def connect(connection: Connection, settled: Callable[[str], None] = lambda _table: None) -> CatalogClient:
    """Reach the catalog and read its configuration; raises Unreachable or Denied if that fails."""
    properties = {**connection.properties, **({TOKEN: connection.token} if connection.token else {})}
    secrets = secrets_in(properties, connection.hidden_keys)
    with _asked_who(properties), translated(f"connecting to {_shown(connection.uri)}", secrets):
        return CatalogClient(LimitedRestCatalog(connection), settled, connection.hidden_keys)


def identifier_of(name: str) -> tuple[str, ...]:
    """Split `namespace.table`."""
    parts = tuple(name.split("."))
    if len(parts) == 1 or not all(parts):
        raise RequestRefused(f"{name!r} is no table's name: give it a namespace, as in namespace.table")
    return parts


def secrets_in(properties: Mapping[str, object], hidden_keys: str) -> frozenset[str]:
    """Collect the values that must not be shown; for `id:secret` the part after the colon as well."""
    values = {str(value) for key, value in properties.items() if value and re.search(hidden_keys, key)}
    parts = {value.partition(":")[2] for value in values} | {value.rpartition(" ")[2] for value in values}
    return frozenset(value for value in values | parts if len(value) >= _SHORTEST_SECRET)


@contextmanager
def _asked_who(properties: Collection[str], *, before: bool = False) -> Iterator[None]:
    """Add to a refusal which property had told the catalog who we are."""
    try:
        yield
    except Denied as refusal:
        refusal.known_by = next((key for key in (CREDENTIAL, TOKEN, SIGV4) if key in properties), "")
        refusal.before = before
        raise


def _shown(uri: str) -> str:
    return re.sub(r"(?<=://)[^/@]+@", "***@", uri)
