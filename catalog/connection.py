"""The way to one catalog: every request with a time limit, every failure in our own words."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic

from pyiceberg.catalog import TOKEN, Catalog
from pyiceberg.catalog.rest import CREDENTIAL, SIGV4, SNAPSHOT_LOADING_MODE, RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import AuthManager, NoopAuthManager
from pyiceberg.table import Table
from requests import Session

from catalog.attempts import patiently
from catalog.class_names import LOCATION_PROVIDER, refuse_code, without_code, without_location_provider
from catalog.errors import Denied, Refused, Unreachable, translated
from catalog.specs import HIDDEN_KEYS, Connection, TableState
from catalog.states import state_of

_SHORTEST_SECRET = 4
_DELEGATION = "X-Iceberg-Access-Delegation"
_LOADS = 3
_AT_ONCE = 1.0  # seconds: whoever took longer to say "not now" has had its time


class Lake:
    """A catalog that is ready for use; safe to share between threads.

    `connect` makes one of a REST catalog; any other of pyiceberg's will do as well.
    """

    def __init__(
        self,
        pyiceberg: Catalog,
        settled: Callable[[str], None] = lambda _table: None,
        hidden_keys: str = HIDDEN_KEYS,
    ) -> None:
        self.pyiceberg = pyiceberg
        self.settled = settled  # told of each commit without a true answer that was found to have landed
        # Read at the end of connecting: a server may hand out credentials in its own configuration.
        self._secrets = secrets_in(pyiceberg.properties, hidden_keys)
        self._let_in = False

    def __repr__(self) -> str:
        return f"Lake({self.pyiceberg.name!r})"

    def close(self) -> None:
        """Close the connections; the lake is of no use afterwards."""
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

    def table(self, name: str) -> Table:
        """Load a table as pyiceberg has it; asked again where the answer is "not now", for it changes nothing."""
        identifier = identifier_of(name)
        for last in patiently(_LOADS):
            asked = monotonic()
            try:
                with self.calling(f"loading table {name}"):
                    return without_location_provider(self.pyiceberg.load_table(identifier), self.pyiceberg.properties)
            except Unreachable:
                if last or monotonic() - asked > _AT_ONCE:
                    raise
        raise AssertionError

    def state(self, name: str) -> TableState:
        """Load a table as plain values."""
        return state_of(self.table(name))

    def state_for_engines(self, name: str) -> TableState:
        """Likewise, before an engine opens it; CodeRefused where it would load code that the table names."""
        state = self.state(name)
        named = {key: text for key, text in state.properties.items() if key == LOCATION_PROVIDER}
        refuse_code(named, self.pyiceberg.properties, f"table {name}")
        return state


def connect(connection: Connection, settled: Callable[[str], None] = lambda _table: None) -> Lake:
    """Reach the catalog and read its configuration; Unreachable or Denied where that fails."""
    properties = {**connection.properties, **({TOKEN: connection.token} if connection.token else {})}
    secrets = secrets_in(properties, connection.hidden_keys)
    with _asked_who(properties), translated(f"connecting to {_shown(connection.uri)}", secrets):
        return Lake(_LimitedRestCatalog(connection), settled, connection.hidden_keys)


def identifier_of(name: str) -> tuple[str, ...]:
    """Split `namespace.table`."""
    parts = tuple(name.split("."))
    if len(parts) == 1 or not all(parts):
        raise Refused(f"{name!r} is no table's name: it needs a namespace, as in namespace.table")
    return parts


def secrets_in(properties: Mapping[str, object], hidden_keys: str) -> frozenset[str]:
    """Give the values that must not be shown; of `id:secret` also the part after the colon."""
    values = {str(value) for key, value in properties.items() if value and re.search(hidden_keys, key)}
    parts = {value.partition(":")[2] for value in values} | {value.rpartition(" ")[2] for value in values}
    return frozenset(value for value in values | parts if len(value) >= _SHORTEST_SECRET)


@contextmanager
def _asked_who(properties: Collection[str], *, before: bool = False) -> Iterator[None]:
    """Note with a refusal what had told who we are."""
    try:
        yield
    except Denied as refusal:
        refusal.known_by = next((key for key in (CREDENTIAL, TOKEN, SIGV4) if key in properties), "")
        refusal.before = before
        raise


def _shown(uri: str) -> str:
    return re.sub(r"(?<=://)[^/@]+@", "***@", uri)


class _LimitedRestCatalog(RestCatalog):
    """pyiceberg's, with a time limit on every request: requests itself waits for ever."""

    def __init__(self, connection: Connection) -> None:
        self._timeout = (connection.connect_timeout, connection.read_timeout)
        properties = {"uri": connection.uri, **connection.properties}
        if connection.warehouse is not None:
            properties["warehouse"] = connection.warehouse
        if connection.token is not None:
            properties[TOKEN] = connection.token
        self._own = properties
        super().__init__("lake", **properties)
        # A table without its older snapshots would look as if its history had been pruned, whoever asks for that: the
        # catalog's own configuration is among them by now.
        self.properties.pop(SNAPSHOT_LOADING_MODE, None)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = without_code(self.properties, self._own, "/v1/config")

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """As pyiceberg does, but the table's own properties don't say how its files are reached.

        Whoever alters the table could otherwise send our rows elsewhere. Iceberg for Java does not ask them either.
        """
        location, credentials = table_response.metadata_location, table_response.storage_credentials
        whose = f"the catalog's answer for table {'.'.join(identifier_tuple)}"
        for each in credentials:
            refuse_code(each.config, self._own, whose)
        config = without_code(table_response.config, self._own, whose)
        vended = without_code(self._resolve_storage_credentials(credentials, location), self._own, whose)
        return Table(
            identifier_tuple,
            table_response.metadata,
            location,  # type: ignore[arg-type]
            self._load_file_io({**config, **vended}, location),
            self,
            config,
        )

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # pyiceberg asks for credentials of the files unasked, and would take them in place of ours.
        if f"header.{_DELEGATION}".lower() not in map(str.lower, self.properties):
            session.headers.pop(_DELEGATION, None)
        # pyiceberg calls this first of all for a new session, before that asks for a token. An adapter with a
        # limit would be put aside by the one that signs requests for AWS.
        session.request = partial(session.request, timeout=self._timeout)  # type: ignore[method-assign]

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # Without a token pyiceberg would send "Bearer None", also in place of a header from the properties.
        if TOKEN not in self.properties and CREDENTIAL not in self.properties:
            return NoopAuthManager()
        return super()._create_legacy_oauth2_auth_manager(session)
