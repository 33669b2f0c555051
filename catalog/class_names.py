"""Only our own settings may name code, for a table, its `config` and `/v1/config` are written by others.

Iceberg's libraries load and call the classes that the properties below name. Without this module, anyone who may alter
a table or configure the catalog could run code in this process, with our credentials.

- For pyiceberg, unknown classes are dropped, and pyiceberg takes its default. Nothing is lost by that. Lists and
  mappings (`auth`, `ssl`) are dropped as well: a property is text, and Iceberg for Java takes nothing else.
- Iceberg for Java reads tables and configuration by itself, so nothing can be dropped. An unknown class is refused
  before an engine opens the table. The table may still be altered between this look and the engine's own. It can then
  name only a class on the engine's class path.

This holds for REST catalogs. pyiceberg's other catalogs choose a table's file access themselves, so for those only the
location provider is dropped.
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
_AUTH = {"none", "basic", "oauth2", "sigv4", "google"}  # names for classes of Iceberg's own

LOCATION_PROVIDER = "write.location-provider.impl"
_LOCATION_PROVIDER = "write.py-location-provider.impl"

# Properties whose classes Iceberg for Java loads, and the values that others may give: classes of Iceberg's own.
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
# Properties whose classes pyiceberg imports; catalogs that sign requests for S3 name fsspec's.
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
    """Raise CodeRefused if others name a class that Java would load, unless Iceberg or our own settings know it."""
    for key, known in JAVA.items():
        if key in given and given[key] not in known and given[key] != own.get(key):
            value = repr(given[key])
            raise CodeRefused(
                f"{whose} sets {key} to {value if len(value) <= _SHOWN else f'{value[:_SHOWN]}…'}, code that would run"
                " here with our rights"
            )


def without_code(given: Mapping[str, object], own: Mapping[str, str], whose: str) -> dict[str, str]:
    """Give the properties of others for pyiceberg: only known classes stay, and our own settings win over them."""
    refuse_code(given, own, whose)
    kept = {
        key: value
        for key, value in given.items()
        if isinstance(value, str) and (key not in PYTHON or value in PYTHON[key])
    }
    return {**kept, **{key: own[key] for key in (*JAVA, *PYTHON) if key in own}}


def without_location_provider(table: Table, own: Mapping[str, object]) -> Table:
    """Give the same table without a location provider of others, so that pyiceberg names new files by its own rules."""
    properties = table.metadata.properties
    if properties.get(_LOCATION_PROVIDER) != own.get(_LOCATION_PROVIDER):
        properties.pop(_LOCATION_PROVIDER, None)
    return table
