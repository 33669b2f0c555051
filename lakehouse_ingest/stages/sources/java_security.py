"""What the Java client needs beside its options: a key that it can read, a permitted token URL, and hidden secrets."""

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
    """Allow the token URL: the Java client asks for tokens only at URLs that a property of its JVM allows.

    This sets the property of the driver, which is the only JVM on one machine. Executors of a cluster need
    `-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=…` in `spark.executor.extraJavaOptions`.
    """
    if security.token_url:
        system = java_packages(spark).java.lang.System
        allowed = {*(system.getProperty(TOKEN_URLS) or "").split(","), security.token_url} - {""}
        system.setProperty(TOKEN_URLS, ",".join(sorted(allowed)))


def hide_secrets(spark: SparkSession) -> None:
    """Hide secrets in Spark's plans. Spark hides options by their keys, but an analyzed plan repeats them as text."""
    if not spark.conf.get(REDACTED, None):
        spark.conf.set(REDACTED, SECRETS)


def unlocked_key(spark: SparkSession, security: SecuritySettings) -> str | None:
    """The client's key as PEM, without its password.

    Before Java 18, the Java client can't read keys that openssl 1.1 or later has encrypted (PBES2): it asks for the
    cipher by the name of the scheme.
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
            "Java can't read `source.security.key` with its `source.security.key_password`; check the password, or"
            " encrypt the key again with `openssl pkcs8 -topk8 -v2 aes-256-cbc`"
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
