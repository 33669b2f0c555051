"""Only our own settings may name code. A table, its `config` and `/v1/config` are written by others.

Iceberg's libraries take the properties below for names of classes, load these, and call them. Whoever may alter a
table, or configure the catalog, would so run code in this process, with our credentials.

- pyiceberg: what is not a known class is dropped, and pyiceberg takes its default. Nothing is lost by that. Lists and
  mappings are dropped as well (`auth`, `ssl`): a property is text, and Iceberg for Java takes nothing else.
- Iceberg for Java reads tables and configuration by itself, so nothing can be dropped. What is not a known class is
  refused before an engine opens the table. Between that look and the engine's own lies a moment in which a table may be
  altered. What can be named is then still only a class on the engine's class path.

This holds for REST catalogs. Of pyiceberg's other ones only the location provider is dropped: they load a table's file
access themselves.
"""

from collections.abc import Mapping

from pyiceberg.table import Table

from catalog.errors import CodeRefused

_ICEBERG = "org.apache.iceberg"
_FILES = {
    f"{_ICEBERG}.{name}"
    for name in (
        *("aws.s3.S3FileIO", "azure.adlsv2.ADLSFileIO", "gcp.gcs.GCSFileIO", "aliyun.oss.OSSFileIO"),
        *("hadoop.HadoopFileIO", "io.ResolvingFileIO"),
    )
}
_KEYS = {
    f"{_ICEBERG}.{name}"
    for name in (
        *("aws.AwsKeyManagementClient", "azure.keymanagement.AzureKeyManagementClient"),
        "gcp.GcpKeyManagementClient",
    )
}
_AUTH = {"none", "basic", "oauth2", "sigv4", "google"}  # words that stand for classes of Iceberg's own

LOCATION_PROVIDER = "write.location-provider.impl"
_LOCATION_PROVIDER = "write.py-location-provider.impl"

# What Iceberg for Java loads, and the values that a catalog may give it: classes of Iceberg's own.
JAVA: Mapping[str, frozenset[str]] = {
    "io-impl": frozenset(_FILES),
    "adls.token-credential-provider": frozenset(),
    "catalog-impl": frozenset(),
    "client.credentials-provider": frozenset({f"{_ICEBERG}.aws.s3.VendedCredentialsProvider"}),
    "client.factory": frozenset(
        {f"{_ICEBERG}.aws.AssumeRoleAwsClientFactory", f"{_ICEBERG}.aws.AwsClientFactories$DefaultAwsClientFactory"}
    ),
    "client.factory-impl": frozenset(),
    "encryption.kms-impl": frozenset(_KEYS),
    "lock-impl": frozenset(),
    "metrics-reporter-impl": frozenset({f"{_ICEBERG}.metrics.LoggingMetricsReporter"}),
    "rest.auth.sigv4.delegate-auth-type": frozenset(_AUTH),
    "rest.auth.type": frozenset(_AUTH),
    "rest.client.tls.configurer-impl": frozenset(),
    "s3.client-factory-impl": frozenset({f"{_ICEBERG}.aws.s3.DefaultS3FileIOAwsClientFactory"}),
    LOCATION_PROVIDER: frozenset(),
}
# What pyiceberg imports; catalogs that sign requests for S3 name fsspec's.
PYTHON: Mapping[str, frozenset[str]] = {
    "py-io-impl": frozenset({"pyiceberg.io.pyarrow.PyArrowFileIO", "pyiceberg.io.fsspec.FsspecFileIO"}),
    "auth": frozenset(),
    "py-catalog-impl": frozenset(),
    "s3.retry-strategy-impl": frozenset(),
    "ssl": frozenset(),
    _LOCATION_PROVIDER: frozenset(),
}
_SHOWN = 40


def refuse_code(given: Mapping[str, object], own: Mapping[str, object], whose: str) -> None:
    """CodeRefused where others name a class that Java would load and that neither Iceberg nor our settings know."""
    for key, known in JAVA.items():
        if key in given and given[key] not in known and given[key] != own.get(key):
            value = repr(given[key])
            raise CodeRefused(
                f"{whose} sets {key} to {value if len(value) <= _SHOWN else f'{value[:_SHOWN]}…'}, code that would run"
                " here with our rights"
            )


def without_code(given: Mapping[str, object], own: Mapping[str, str], whose: str) -> dict[str, str]:
    """What others give, for pyiceberg: of code only what is known, and what our own settings name goes before it."""
    refuse_code(given, own, whose)
    kept = {
        key: value
        for key, value in given.items()
        if isinstance(value, str) and (key not in PYTHON or value in PYTHON[key])
    }
    return {**kept, **{key: own[key] for key in (*JAVA, *PYTHON) if key in own}}


def without_location_provider(table: Table, own: Mapping[str, object]) -> Table:
    """The same table, for which pyiceberg names new files by its own rules."""
    properties = table.metadata.properties
    if properties.get(_LOCATION_PROVIDER) != own.get(_LOCATION_PROVIDER):
        properties.pop(_LOCATION_PROVIDER, None)
    return table
