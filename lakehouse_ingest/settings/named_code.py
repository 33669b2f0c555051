"""Options and properties of others that name code: a class, a module, a jar, or a Java option that loads one.

Through them, anyone who may write a settings file could run any code. So they need --allow-code, as `module:function`
does. Options that are known to load no foreign code pass. A caller from Python runs code anyway, and needs the
environment variable all the same.
"""

import re
from collections.abc import Iterator, Mapping

from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings.models import Settings

ASKED_FOR = "a settings file may do so only with --allow-code or LAKEHOUSE_INGEST_ALLOW_CODE=1"
SHOWN = 60  # characters of a key

# Whatever their value: they name files to load, programs to start or modules to import.
ALWAYS = re.compile(
    r"spark\.(jars|files|archives|plugins|pyspark|r|repl|executorEnv|submit|metrics\.conf)(\..+)?"
    r"|spark\.python\.(daemon|worker)\.module|spark\.yarn\.(dist|appMasterEnv|jars|archive)(\..+)?"
    r"|spark\..*(extraClassPath|extraLibraryPath|userClassPathFirst|discoveryScript|[iI]mage|podTemplateFile)"
    r"|spark\.sql\.hive\.metastore\.jars.*|ssl\.(engine\.(id|location)|providers)|auth(\..+)?"
)
# Usually the name of a class or a module, if a dot, a slash or a colon is in it; otherwise one of the known words.
AS_A_RULE = re.compile(
    r"(?i).*(impl|class|classes|classpath|module|plugins?|listeners?|extensions?|filters?|factory|providers?|serializer"
    r"|codecs?|registrator|classesToRegister|manager|script(\..+)?|command|signers|mapping|interceptors?|reporters?|strategy|type|packages|jars)"
    r"|spark\.sql\.catalog\.[^.]+"
)
LOOKS_LIKE_CODE = re.compile(r"[./:\\]|\b[A-Z]\w*[a-z]")  # the last alternative: a class without a package
A_CLASS = re.compile(r"(?:[a-z_$][\w$]*\.)+[A-Z][\w$]*")
A_NAME_OR_SECRET = re.compile(r"(?i).*(token|secret|passw|credential|key|user|owner|id|name)")  # may look like a class
JAVA_OPTIONS = re.compile(r"spark\..*JavaOptions")

_ICEBERG, _S3A, _AWS = "org.apache.iceberg.", "org.apache.hadoop.fs.s3a.", "software.amazon.awssdk.auth.credentials."
_KAFKA = "org.apache.kafka.clients.consumer."
# Classes that come with Spark, Iceberg and Kafka, and load no further code.
HARMLESS = frozenset(
    {
        *(f"{_ICEBERG}{each}" for each in ("aws.s3.S3FileIO", "gcp.gcs.GCSFileIO", "azure.adlsv2.ADLSFileIO")),
        *(f"{_ICEBERG}{each}" for each in ("hadoop.HadoopFileIO", "io.ResolvingFileIO", "aliyun.oss.OSSFileIO")),
        *(f"{_ICEBERG}spark.{each}" for each in ("SparkCatalog", "SparkSessionCatalog")),
        f"{_ICEBERG}spark.extensions.IcebergSparkSessionExtensions",
        "pyiceberg.io.pyarrow.PyArrowFileIO",
        "pyiceberg.io.fsspec.FsspecFileIO",
        "org.apache.spark.serializer.JavaSerializer",
        "org.apache.spark.serializer.KryoSerializer",
        *(f"{_S3A}{each}" for each in ("S3AFileSystem", "S3A", "SimpleAWSCredentialsProvider")),
        *(f"{_S3A}{each}" for each in ("TemporaryAWSCredentialsProvider", "AnonymousAWSCredentialsProvider")),
        f"{_S3A}auth.IAMInstanceCredentialsProvider",
        *(f"{_AWS}{each}CredentialsProvider" for each in ("Default", "EnvironmentVariable", "InstanceProfile")),
        *(f"{_AWS}{each}CredentialsProvider" for each in ("Container", "Anonymous", "WebIdentityTokenFile")),
        *(f"{_KAFKA}{each}Assignor" for each in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")),
    }
)
# Java options for memory and garbage collectors, and properties that name no class.
JAVA_HARMLESS = re.compile(
    r"-X(?:m[snx]|ss)\d+[kKmMgGtT]?"
    r"|-XX:\w*(?:Size|Percentage|Percent|Ratio|Level|Threads|Millis)=\d+(?:\.\d+)?[kKmMgGtT]?"
    r"|-XX:[+-](?:Use\w+GC|UseStringDeduplication|UseContainerSupport|UseNUMA|AlwaysPreTouch|TieredCompilation"
    r"|DisableExplicitGC|ExitOnOutOfMemoryError|CrashOnOutOfMemoryError|HeapDumpOnOutOfMemoryError)"
    r"|-D(?:org\.apache\.kafka\.sasl\.oauthbearer\.allowed\.(?:urls|files)|https?\.(?:proxyHost|proxyPort|nonProxyHosts)"
    r"|java\.net\.prefer\w+|java\.io\.tmpdir|user\.timezone|file\.encoding|networkaddress\.cache\.ttl"
    r"|javax\.net\.ssl\.trustStore(?:Password|Type)?)=[^\s\"'\\]*"
)


def refuse_code(settings: Settings, *, allow_code: bool) -> None:
    for name, options in () if allow_code else _of_others(settings):
        if found := next((key for key, value in options.items() if names_code(key, value)), None):
            raise SettingsRefused(f"`{name}.{found[:SHOWN]}` names code: {ASKED_FOR}")


def _of_others(settings: Settings) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield "spark.options", settings.spark.options
    yield "catalog.properties", settings.catalog.properties
    yield "source.options", settings.source.options
    for stream in settings.streams:
        for table in stream.tables:
            yield "streams.tables.properties", table.properties


def names_code(key: str, value: str) -> bool:
    """Whether this option loads or starts code by its name."""
    if JAVA_OPTIONS.fullmatch(key):
        return not all(map(JAVA_HARMLESS.fullmatch, value.split()))
    if ALWAYS.fullmatch(key):
        return True
    parts = [part.strip() for part in value.split(",")]
    if HARMLESS.issuperset(parts):
        return False
    names = re.split(r"[,:]", value)
    by_its_key = AS_A_RULE.fullmatch(key) and LOOKS_LIKE_CODE.search(value)
    return bool(
        by_its_key or (any(A_CLASS.fullmatch(name.strip()) for name in names) and not A_NAME_OR_SECRET.fullmatch(key))
    )
