"""The certificates that Python's clients trust, as a key store for Java.

Java takes no PEM, and its own tools take half a second a certificate. Its JKS format holds certificates in the clear
and is written here in a few lines; Java 17 and 21 read it. The package `cryptography` writes PKCS 12 instead. We tried
its version 50 with Java 17, and kept JKS:

- A PKCS 12 store with a password is read as an empty one wherever a client passes no password, and nothing says so.
  A store without a password is refused by Java's keytool.
- It parses each certificate more strictly than Python and Java do. In certifi's bundle it finds a serial number that is
  not positive, and warns that a later version will refuse such a certificate.
- With its own dependencies it adds 17 MB.
"""

import hashlib
import re
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import certifi

from lakehouse_ingest.errors import SettingsRefused

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # the first that is set counts
BUNDLE_FOR_S3 = "AWS_CA_BUNDLE"
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def trusted_by_java(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Java's properties for a store that is written into `folder`; none when the environment names no certificates."""
    certificates = dict.fromkeys(_trusted(environ))
    if not certificates:
        return {}
    store = folder / "trusted.jks"
    store.write_bytes(_key_store(list(certificates)))
    return {"javax.net.ssl.trustStore": str(store), "javax.net.ssl.trustStoreType": "JKS"}


def named_bundle(environ: Mapping[str, str]) -> str | None:
    """The file of certificates that the environment names for all clients, after a look into it."""
    for variable in BUNDLES:
        if bundle := environ.get(variable):
            _certificates(variable, bundle)
            return bundle
    return None


def _trusted(environ: Mapping[str, str]) -> Iterator[bytes]:
    """What any of Python's clients trusts: Java has one store for all of its own."""
    named = [(variable, environ[variable]) for variable in BUNDLES if environ.get(variable)][:1]
    if environ.get(BUNDLE_FOR_S3):
        # This variable is about S3 only: all other clients trust what they trust without it.
        named = [*(named or [("", certifi.where())]), (BUNDLE_FOR_S3, environ[BUNDLE_FOR_S3])]
    for variable, bundle in named:
        yield from map(ssl.PEM_cert_to_DER_cert, _certificates(variable, bundle))


def _certificates(variable: str, bundle: str) -> list[str]:
    try:
        found = CERTIFICATE.findall(Path(bundle).read_text(encoding="latin-1"))
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(found))
    except (OSError, ValueError) as broken:
        raise SettingsRefused(
            f"{variable} names {bundle}, where no certificates can be read ({broken}): name a file of them "
            "in PEM, or unset it."
        ) from None
    return found


def _key_store(certificates: list[bytes]) -> bytes:
    """JKS: an entry is the mark of a trusted certificate, a name, a date and the certificate; a seal is at the end."""
    entries = (
        struct.pack(">I", 2) + _text(str(number)) + struct.pack(">Q", 0) + _text("X.509") + _counted(">I", each)
        for number, each in enumerate(certificates)
    )
    store = struct.pack(">III", 0xFEEDFEED, 2, len(certificates)) + b"".join(entries)
    seal = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"  # the password that Java's own store has
    return store + hashlib.sha1(seal + store, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    return _counted(">H", text.encode())


def _counted(size: str, content: bytes) -> bytes:
    return struct.pack(size, len(content)) + content
