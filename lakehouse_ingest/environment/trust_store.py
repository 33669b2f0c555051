"""The certificates that Python's clients trust, as a key store for Java."""

import hashlib
import re
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import certifi

from lakehouse_ingest.errors import SettingsRefused

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def trusted_by_java(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    certificates = dict.fromkeys(_trusted(environ))
    if not certificates:
        return {}
    store = folder / "trusted.jks"
    store.write_bytes(_key_store(list(certificates)))
    return {"javax.net.ssl.trustStore": str(store), "javax.net.ssl.trustStoreType": "JKS"}


def _trusted(environ: Mapping[str, str]) -> Iterator[bytes]:
    """What any of Python's clients trusts: Java has one store for all of its own."""
    named = [(variable, environ[variable]) for variable in BUNDLES if environ.get(variable)][:1]
    if environ.get(BUNDLE_FOR_S3):
        # It is said of S3 only, so for all else what they trust when nothing is said.
        named = [*(named or [("", certifi.where())]), (BUNDLE_FOR_S3, environ[BUNDLE_FOR_S3])]
    for variable, bundle in named:
        try:
            found = CERTIFICATE.findall(Path(bundle).read_text(encoding="latin-1"))
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(found))
        except (OSError, ValueError) as broken:
            raise SettingsRefused(
                f"{variable} names {bundle}, where no certificates can be read ({broken}): name a file of them "
                "in PEM, or unset it."
            ) from None
        yield from map(ssl.PEM_cert_to_DER_cert, found)


def _key_store(certificates: list[bytes]) -> bytes:
    """Java's JKS: each entry the mark of a trusted certificate, a name, a date, the certificate; then a seal."""
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


BUNDLE_FOR_S3 = "AWS_CA_BUNDLE"
