"""The way to one catalog: every request with a time limit, every failure in our own words."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CREDENTIAL, SNAPSHOT_LOADING_MODE, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, NoopAuthManager
from pyiceberg.table import Table
from requests import Session

from catalog.errors import Refused, translated
from catalog.specs import Connection, TableState
from catalog.states import state_of

_SECRET = re.compile(r"(?i)token|secret|password|credential|authorization|access-key|account-key|sas")
_SHORTEST_SECRET = 4


class Lake:
    """A catalog that is ready for use; safe to share between threads."""

    def __init__(self, pyiceberg: Catalog) -> None:
        self.pyiceberg = pyiceberg
        # Read at the end of connecting: a server may hand out credentials in its own configuration.
        self._secrets = secrets_in(pyiceberg.properties)

    def __repr__(self) -> str:
        return f"Lake({self.pyiceberg.name!r})"

    def close(self) -> None:
        """Close the connections; the lake is of no use afterwards."""
        self.pyiceberg.close()

    def calling(self, what: str, *, committing: bool = False) -> AbstractContextManager[None]:
        """Translate what is raised while talking to this catalog."""
        return translated(what, self._secrets, committing=committing)

    def table(self, name: str) -> Table:
        """Load a table as pyiceberg has it."""
        identifier = identifier_of(name)
        with self.calling(f"loading table {name}"):
            return self.pyiceberg.load_table(identifier)

    def state(self, name: str) -> TableState:
        """Load a table as plain values."""
        return state_of(self.table(name))


def connect(connection: Connection) -> Lake:
    """Reach the catalog and read its configuration; Unreachable or Denied where that fails."""
    secrets = secrets_in({**connection.properties, "token": connection.token or ""})
    with translated(f"connecting to {_shown(connection.uri)}", secrets):
        return Lake(_LimitedRestCatalog(connection))


def identifier_of(name: str) -> tuple[str, ...]:
    """Split `namespace.table`."""
    parts = tuple(name.split("."))
    if len(parts) == 1 or not all(parts):
        raise Refused(f"{name!r} is no table's name: it needs a namespace, as in namespace.table")
    return parts


def secrets_in(properties: Mapping[str, object]) -> frozenset[str]:
    """Give the values that must not be shown; of `id:secret` also the part after the colon."""
    values = {str(value) for key, value in properties.items() if value and _SECRET.search(key)}
    parts = {value.partition(":")[2] for value in values} | {value.rpartition(" ")[2] for value in values}
    return frozenset(value for value in values | parts if len(value) >= _SHORTEST_SECRET)


def _shown(uri: str) -> str:
    return re.sub(r"(?<=://)[^/@]+@", "***@", uri)


class _LimitedRestCatalog(RestCatalog):
    """pyiceberg's, with a time limit on every request: requests itself waits for ever."""

    def __init__(self, connection: Connection) -> None:
        self._timeout = (connection.connect_timeout, connection.read_timeout)
        properties = {"uri": connection.uri, **connection.properties}
        # A table without its older snapshots would look as if its history had been pruned.
        properties.pop(SNAPSHOT_LOADING_MODE, None)
        if connection.warehouse is not None:
            properties["warehouse"] = connection.warehouse
        if connection.token is not None:
            properties["token"] = connection.token
        super().__init__("lake", **properties)

    def _config_headers(self, session: Session) -> None:
        super()._config_headers(session)
        # pyiceberg calls this first of all for a new session, before that asks for a token. An adapter with a
        # limit would be put aside by the one that signs requests for AWS.
        session.request = partial(session.request, timeout=self._timeout)  # type: ignore[method-assign]

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # Without a token pyiceberg would send "Bearer None", also in place of a header from the properties.
        if "token" not in self.properties and CREDENTIAL not in self.properties:
            return NoopAuthManager()
        return super()._create_legacy_oauth2_auth_manager(session)
