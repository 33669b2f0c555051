"""What the machine's environment says about its network, in the words of those who don't ask it.

Most of Python's clients read these variables by themselves, Java's none of them. A proxy's password must not
become a process's argument: what is found here is set within a JVM that runs, or put into a file for its start.

Java takes no PEM, and its own tools take half a second a certificate: the oldest of its key store formats is
written here in a few lines, and read by Java 17 and 21 alike.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lakehouse_ingest.environment.trust_store import trusted_by_java
from lakehouse_ingest.errors import SettingsRefused

SCHEMES = ("http", "https")
NOT_PROXIED = ("localhost", "127.*", "[::1]")  # in Java's words
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")  # in Python's
AWS = "https://s3.amazonaws.com"

Properties = dict[str, str]


@dataclass(frozen=True)
class Proxy:
    host: str
    port: int
    user: str | None
    password: str = field(repr=False)

    @property
    def uri(self) -> str:
        login = "" if self.user is None else f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        return f"http://{login}{_spelled(self.host)}:{self.port}"


def java_properties(folder: Path, environ: Mapping[str, str] = os.environ) -> Properties:
    """Java's system properties; none when the environment says nothing. A trust store is put into `folder`."""
    return {**_proxies(environ), **trusted_by_java(folder, environ)}


def tell(java: Any, properties: Mapping[str, str]) -> None:
    """Sets them in a JVM that runs, through py4j's door to its packages: its clients look when they are made.

    What somebody has set there already, in `spark.options`, stays.
    """
    there = java.java.lang.System.getProperties()
    for name, value in properties.items():
        there.putIfAbsent(name, value)


def rest_properties(uri: str, environ: Mapping[str, str] = os.environ) -> Properties:
    """Iceberg's: its REST client trusts what the JVM trusts, but has properties of its own for a proxy."""
    proxy = _proxy_for(uri, environ)
    if proxy is None:
        return {}
    found = {"hostname": proxy.host, "port": str(proxy.port)}
    if proxy.user is not None:
        found |= {"username": proxy.user, "password": proxy.password}
    return {f"rest.client.proxy.{key}": value for key, value in found.items()}


def s3_properties(endpoint: str | None, environ: Mapping[str, str] = os.environ) -> Properties:
    """pyiceberg's: pyarrow trusts SSL_CERT_FILE, but looks for a proxy nowhere."""
    proxy = _proxy_for(endpoint or AWS, environ)
    return {"s3.proxy-uri": proxy.uri} if proxy else {}


def reach_this_machine(environ: MutableMapping[str, str] = os.environ) -> None:
    """Python's clients ask a proxy for 127.0.0.1 as well, if nobody tells them: the embedded catalog is there."""
    said = environ.get("no_proxy", environ.get("NO_PROXY", ""))
    if said.strip() != "*":
        near = [host for host in THIS_MACHINE if host not in said.split(",")]
        environ["no_proxy"] = environ["NO_PROXY"] = ",".join(filter(None, [said, *near]))


def _proxies(environ: Mapping[str, str]) -> Properties:
    found: Properties = {}
    for scheme in SCHEMES:
        if proxy := _proxy(scheme, environ):
            found |= {f"{scheme}.proxyHost": proxy.host, f"{scheme}.proxyPort": str(proxy.port)}
            if proxy.user is not None:
                # Ivy looks at those of http alone.
                for owner in {scheme, "http"}:
                    found |= {f"{owner}.proxyUser": proxy.user, f"{owner}.proxyPassword": proxy.password}
                # Or Java would send no password to a proxy that is asked for a tunnel.
                found["jdk.http.auth.tunneling.disabledSchemes"] = ""
    return {**found, "http.nonProxyHosts": "|".join(_not_proxied(environ))} if found else {}


def _proxy(scheme: str, environ: Mapping[str, str]) -> Proxy | None:
    """As Python's clients see it: the variable in small letters first, also when it is empty."""
    variable = next((name for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY") if name in environ), "")
    said = environ.get(variable, "").strip()
    if not said:
        return None
    try:
        url = urlsplit(said if "://" in said else f"http://{said}")
        port = url.port or 80
    except ValueError:
        url, port = urlsplit(""), 0
    if url.scheme != "http" or not url.hostname:
        raise SettingsRefused(
            f"{variable} should be http://HOST:PORT, the one kind of proxy that Java's clients know: change it, or "
            "unset it for this command."
        )
    return Proxy(url.hostname, port, unquote(url.username) if url.username else None, unquote(url.password or ""))


def _proxy_for(uri: str, environ: Mapping[str, str]) -> Proxy | None:
    try:
        address = urlsplit(uri)
    except ValueError:  # whoever asks there says so
        return None
    host = _spelled(address.hostname or "")
    direct = any(fnmatchcase(host, pattern.replace("[", "[[]")) for pattern in _not_proxied(environ))
    return None if direct else _proxy(address.scheme, environ)


def _spelled(host: str) -> str:
    """As within an address."""
    return f"[{host}]" if ":" in host else host


def _not_proxied(environ: Mapping[str, str]) -> Iterator[str]:
    """NO_PROXY in Java's patterns, which have a star at one end and know no networks and no ports."""
    yield from NOT_PROXIED
    for entry in environ.get("no_proxy", environ.get("NO_PROXY", "")).lower().split(","):
        yield from _patterns(entry.strip().removeprefix("*.").lstrip("."))


def _patterns(host: str) -> Iterator[str]:
    if host in ("", "*"):
        yield from host
        return
    try:
        network = ip_network(host.strip("[]"), strict=False)
    except ValueError:
        name = host.partition(":")[0]
        yield from (name, f"*.{name}")
        return
    if isinstance(network, IPv4Network):
        octets = max(1, -(-network.prefixlen // 8))
        for each in network.subnets(new_prefix=8 * octets):
            start = ".".join(str(each.network_address).split(".")[:octets])
            yield start if octets == 4 else f"{start}.*"  # noqa: PLR2004 - of an address
    elif network.num_addresses == 1:
        yield f"[{network.network_address}]"
