"""From settings to the properties that let both clients in: those of Spark's catalog `lake`, and pyiceberg's.

Both talk to the same REST catalog and to the same files, and spell most properties alike; where they don't is
said here. What they are told of the files is `storage`'s. `catalog.properties` come last, over all.
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from lakehouse_ingest.environment import storage
from lakehouse_ingest.environment.embedded.catalog import EmbeddedCatalog
from lakehouse_ingest.environment.proxies import rest_properties
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings import CatalogSettings, S3Settings
from lakehouse_ingest.settings.field_types import given
from lakehouse_ingest.settings.secret_words import SECRET_KEYS, revealed
from lakehouse_ingest.tables import Connection

# What would make something else of either client than one of a REST catalog.
KIND_OF_CATALOG = ("type", "catalog-impl", "py-catalog-impl")

TOKENS = "v1/oauth/tokens"  # of the catalog itself

Properties = dict[str, str]


def connection_of(catalog: CatalogSettings, s3: S3Settings, uri: str) -> Connection:
    """pyiceberg's way."""
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
    """Spark's way."""
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


def embedded(catalog: CatalogSettings, s3: S3Settings, jars: Path | None, port: int | None = None) -> EmbeddedCatalog:
    """The catalog where there is no `uri`, not started yet."""
    store = storage.at(catalog.warehouse, catalog, s3) if catalog.warehouse else None
    return EmbeddedCatalog(catalog.path, port, jars=jars, place=catalog.warehouse, store=store)


def embedded_token(catalog: CatalogSettings, uri: str) -> str:
    """What lets in to the embedded catalog over `path`, where it is what is served at this address."""
    told = catalog.token or catalog.credential or catalog.sign_for or "authorization" in map(str.lower, catalog.headers)
    # The address in the properties goes over all others: the token is for none but its own catalog's.
    return "" if told else EmbeddedCatalog(catalog.path).token_of(catalog.properties.get("uri", uri))


def refuse_what_is_no_rest_catalog(catalog: CatalogSettings) -> None:
    """The two clients would take other kinds for different catalogs, or for none."""
    for key in KIND_OF_CATALOG:
        if (kind := catalog.properties.get(key, "rest")) != "rest":
            raise SettingsRefused(
                f"`catalog.properties` say {key} = {kind[:60]!r}: only Iceberg REST catalogs are served."
            )
    for name, uri in (("catalog.uri", catalog.uri), ("catalog.properties", catalog.properties.get("uri"))):
        if uri is not None and not re.match(r"https?://[^/\s]", uri):
            scheme = re.match(r"[A-Za-z][\w+.-]*:?", uri)
            said = f", not {scheme[0][:40]}" if scheme else ""
            raise SettingsRefused(
                f"`{name}` should be the http:// or https:// address of an Iceberg REST catalog{said}."
            )
    if catalog.sign_for and not importlib.util.find_spec("boto3"):
        raise SettingsRefused("`catalog.sign_for` needs boto3: install lakehouse-ingest[s3].")


def _shared(catalog: CatalogSettings, s3: S3Settings, uri: str) -> Properties:
    """What both clients spell alike."""
    credential, token = revealed(catalog.credential), embedded_token(catalog, uri)
    files = [each.properties(keys=not catalog.vended_credentials) for each in storage.for_both_clients(catalog, s3)]
    return {
        **_merged(files),
        **{f"header.{name}": value.get_secret_value() for name, value in catalog.headers.items()},
        **given(
            {
                "credential": credential,
                # Java's client would try to exchange a `token` for a new one each hour, and this one stays as it is.
                "header.Authorization": f"Bearer {token}" if token else None,
                # A new token is had by the credential, as the first one was: servers of others than the catalog
                # know no exchange of Iceberg's kind.
                "token-exchange-enabled": "false" if credential else None,
                # Left out it would be the same, with a warning at each start that it won't be for ever.
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
    """The keys that requests are signed with, under each client's own names."""
    keys = {"access-key-id": s3.access_key, "secret-access-key": s3.secret_key, "session-token": s3.session_token}
    return {f"{prefix}.{name}": revealed(key) for name, key in keys.items()} if catalog.sign_for else {}


def _merged(properties: Iterable[Mapping[str, str]]) -> Properties:
    return {key: value for each in properties for key, value in each.items()}
