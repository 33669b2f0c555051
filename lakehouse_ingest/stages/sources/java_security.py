"""What the Java client needs beside its settings: a key that it can read, leave to ask for tokens, and silence."""

from base64 import b64decode, b64encode
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakehouse_ingest.environment.spark_internals import java_array, java_packages
from lakehouse_ingest.errors import SettingsRefused
from lakehouse_ingest.settings.models import SecuritySettings

TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"  # noqa: S105 - the name of a property
REDACTED = "spark.sql.redaction.string.regex"
SECRETS = r'-----BEGIN [^-]+-----[^-]*-----END [^-]+-----|LoginModule required(?: \w+="(?:[^"\\]|\\.)*")+'
LOCKED = "-----BEGIN ENCRYPTED PRIVATE KEY-----"


def allow_token_url(spark: SparkSession, security: SecuritySettings) -> None:
    """The Java client asks for tokens only where a property of its JVM allows it.

    This sets the driver's, which on one machine is the only one. The executors of a cluster are started with
    `-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=…` in `spark.executor.extraJavaOptions`.
    """
    if security.token_url:
        system = java_packages(spark).java.lang.System
        allowed = {*(system.getProperty(TOKEN_URLS) or "").split(","), security.token_url} - {""}
        system.setProperty(TOKEN_URLS, ",".join(sorted(allowed)))


def hide_secrets(spark: SparkSession) -> None:
    """Spark hides options by their keys, but within a plan that was analyzed they stand once more, as plain text."""
    if not spark.conf.get(REDACTED, None):
        spark.conf.set(REDACTED, SECRETS)


def unlocked_key(spark: SparkSession, security: SecuritySettings) -> str | None:
    """The client's key as PEM without its password.

    The Java client itself can't read what openssl has encrypted since its version 1.1 (PBES2), unless Java is newer
    than 17: it asks for the cipher by the name of the scheme.
    """
    if not security.key or not security.key_password or LOCKED not in security.key.get_secret_value():
        return security.key.get_secret_value() if security.key else None
    crypto = java_packages(spark).javax.crypto
    try:
        info = crypto.EncryptedPrivateKeyInfo(_decoded(security.key.get_secret_value()))
        parameters, scheme = info.getAlgParameters(), info.getAlgName()
        cipher_name = parameters.toString() if scheme.startswith("PBES2") or scheme[0].isdigit() else scheme
        password = crypto.spec.PBEKeySpec(_characters(spark, security.key_password.get_secret_value()))
        cipher = crypto.Cipher.getInstance(cipher_name)
        secret = crypto.SecretKeyFactory.getInstance(cipher_name).generateSecret(password)
        cipher.init(crypto.Cipher.DECRYPT_MODE, secret, parameters)
        key = b64encode(info.getKeySpec(cipher).getEncoded()).decode()
    except Py4JJavaError:
        raise SettingsRefused(
            "Java can't read `source.security.key` with its `source.security.key_password`: encrypt it anew with"
            " `openssl pkcs8 -topk8 -v2 aes-256-cbc`"
        ) from None
    return f"-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"


def _decoded(pem: str) -> bytes:
    return b64decode("".join(pem.partition(LOCKED)[2].partition("-----END")[0].split()))


def _characters(spark: SparkSession, text: str) -> Any:
    """A Java char[]."""
    made = java_array(spark, "char", len(text))
    for at, character in enumerate(text):
        made[at] = character
    return made
