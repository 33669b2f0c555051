"""Turn settings into the properties of both clients: Spark's catalog `lake`, and pyiceberg.

Both use the same REST catalog and the same files, and most properties have the same name in both. The differences are
here. The properties of file storage come from `storage`. `catalog.properties` come last and override all others.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.proxies import rest_properties
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.settings.field_types import given
from lakehouse_ingest.settings.secret_words import SECRET_KEYS, revealed
from lakehouse_ingest.tables import Connection

if TYPE_CHECKING:
    from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog

# Properties that would turn either client into something other than a client of a REST catalog.
KIND_OF_CATALOG = ("type", "catalog-impl", "py-catalog-impl")

TOKENS = "v1/oauth/tokens"  # the token path of the catalog itself

Properties = dict[str, str]


def connection_of(catalog: CatalogSettings, s3: S3Settings, uri: str) -> Connection:
    """The properties of pyiceberg."""
    files = [each.of_pyiceberg() for each in storage.for_both_clients(catalog, s3)]
    own = _merged([given(_signing_keys(catalog, s3, "client")), *files])
    return Connection(
        uri,
        catalog.warehouse,
        revealed(catalog.token),
        {**_shared(catalog, s3, uri), **own, **catalog.properties},
        read_timeout=catalog.timeout,
        hidden_keys=SECRET_KEYS,
    )


def spark_properties(catalog: CatalogSettings, s3: S3Settings, uri: str) -> Properties:
    """The properties of Spark's catalog."""
    milliseconds = str(round(catalog.timeout * 1_000))
    own = {
        "uri": uri,
        "warehouse": catalog.warehouse,
        "token": revealed(catalog.token),
        "rest.client.connection-timeout-ms": milliseconds,
        "rest.client.socket-timeout-ms": milliseconds,
        **_signing_keys(catalog, s3, "rest"),
    }
    return {**_shared(catalog, s3, uri), **given(own), **rest_properties(uri), **catalog.properties}


def embedded(catalog: CatalogSettings, s3: S3Settings, jars: Path | None, port: int | None = None) -> "EmbeddedCatalog":
    """The embedded catalog, for settings without `uri`. It is not started yet."""
    from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog  # noqa: PLC0415 - tasks never need it

    store = storage.at(catalog.warehouse, catalog, s3) if catalog.warehouse else None
    return EmbeddedCatalog(catalog.path, port, jars=jars, place=catalog.warehouse, store=store)


def embedded_token(catalog: CatalogSettings, uri: str) -> str:
    """The token of the embedded catalog over `path`, if that catalog is served at this address; otherwise empty."""
    own = catalog.token or catalog.credential or catalog.sign_for or "authorization" in map(str.lower, catalog.headers)
    if own:
        return ""
    from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog  # noqa: PLC0415 - as above

    # The address in the properties overrides all others. Only the embedded catalog itself may get its token.
    return EmbeddedCatalog(catalog.path).token_of(catalog.properties.get("uri", uri))


def refuse_what_is_no_rest_catalog(catalog: CatalogSettings) -> None:
    """Refuse other kinds of catalog: the two clients would not agree on what they are."""
    for key in KIND_OF_CATALOG:
        if (kind := catalog.properties.get(key, "rest")) != "rest":
            raise SettingsRefused(
                f"`catalog.properties` sets {key} = {kind[:60]!r}: only Iceberg REST catalogs are supported; remove it."
            )
    for name, uri in (("catalog.uri", catalog.uri), ("catalog.properties", catalog.properties.get("uri"))):
        if uri is not None and not re.match(r"https?://[^/\s]", uri):
            scheme = re.match(r"[A-Za-z][\w+.-]*:?", uri)
            instead = f", not {scheme[0][:40]}" if scheme else ""
            raise SettingsRefused(
                f"`{name}` should be the http:// or https:// address of an Iceberg REST catalog{instead}."
            )
    if catalog.sign_for and not importlib.util.find_spec("boto3"):
        raise SettingsRefused("`catalog.sign_for` needs boto3: install lakehouse-ingest[s3].")


def _shared(catalog: CatalogSettings, s3: S3Settings, uri: str) -> Properties:
    """The properties that have the same name in both clients."""
    credential, token = revealed(catalog.credential), embedded_token(catalog, uri)
    files = [each.properties(keys=not catalog.vended_credentials) for each in storage.for_both_clients(catalog, s3)]
    return {
        **_merged(files),
        **{f"header.{name}": value.get_secret_value() for name, value in catalog.headers.items()},
        **given(
            {
                "credential": credential,
                # A header, because Java's client tries to exchange a `token` each hour, and this one never changes.
                "header.Authorization": f"Bearer {token}" if token else None,
                # Get each new token with the credential, like the first one. Token servers other than the catalog do
                # not support Iceberg's token exchange.
                "token-exchange-enabled": "false" if credential else None,
                # This is the default as well, but relying on it logs a deprecation warning at each start.
                "oauth2-server-uri": catalog.oauth2_server or (f"{uri.rstrip('/')}/{TOKENS}" if credential else None),
                "scope": catalog.scope,
                "header.X-Iceberg-Access-Delegation": "vended-credentials" if catalog.vended_credentials else None,
                "rest.sigv4-enabled": "true" if catalog.sign_for else None,
                "rest.signing-name": catalog.sign_for,
                "rest.signing-region": (catalog.sign_region or s3.region) if catalog.sign_for else None,
            }
        ),
    }


def _signing_keys(catalog: CatalogSettings, s3: S3Settings, prefix: str) -> dict[str, str | None]:
    """The keys that sign requests, under the names of one client."""
    keys = {"access-key-id": s3.access_key, "secret-access-key": s3.secret_key, "session-token": s3.session_token}
    return {f"{prefix}.{name}": revealed(key) for name, key in keys.items()} if catalog.sign_for else {}


def _merged(properties: Iterable[Mapping[str, str]]) -> Properties:
    return {key: value for each in properties for key, value in each.items()}
