"""The proxies that the environment names, in the words of the clients that do not read them by themselves.

Most of Python's clients read these variables, none of Java's does. A proxy's password must not become an argument of a
process: what is found here is set within a running JVM.

The variables are read as `urllib.request.getproxies_environment` reads them, and a test compares both. That function is
not called, because it reads the environment of this process only and does not say which variable is wrong. Which hosts
are reached directly is decided by Java's patterns for all clients: `requests` would decide otherwise for some hosts
(`corp.example` covers `acorp.example` there), and Java's S3 client and its REST client have to agree.
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
    """Java's system properties; none when the environment names nothing. A trust store is put into `folder`."""
    return {**_proxies(environ), **trusted_by_java(folder, environ)}


def set_system_properties(java: Any, properties: Mapping[str, str]) -> None:
    """Sets them in a running JVM, through py4j's view of its packages: clients read them when they are made.

    What `spark.options` have set already stays.
    """
    present = java.java.lang.System.getProperties()
    for name, value in properties.items():
        present.putIfAbsent(name, value)


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
    """pyiceberg's: pyarrow trusts SSL_CERT_FILE, but reads a proxy from nowhere."""
    proxy = _proxy_for(endpoint or AWS, environ)
    return {"s3.proxy-uri": proxy.uri} if proxy else {}


def reach_this_machine(environ: MutableMapping[str, str] = os.environ) -> None:
    """Adds this machine to NO_PROXY: without that Python's clients ask a proxy for the embedded catalog."""
    named = environ.get("no_proxy", environ.get("NO_PROXY", ""))
    if named.strip() != "*":
        near = [host for host in THIS_MACHINE if host not in named.split(",")]
        environ["no_proxy"] = environ["NO_PROXY"] = ",".join(filter(None, [named, *near]))


def refuse_wrong_proxies(environ: Mapping[str, str] = os.environ) -> None:
    """Before a client of Python's reads them, whose errors may quote half a password."""
    for scheme in SCHEMES:
        _proxy(scheme, environ)


def _proxies(environ: Mapping[str, str]) -> Properties:
    found: Properties = {}
    for scheme in SCHEMES:
        if proxy := _proxy(scheme, environ):
            found |= {f"{scheme}.proxyHost": proxy.host, f"{scheme}.proxyPort": str(proxy.port)}
            if proxy.user is not None:
                found |= {f"{scheme}.proxyUser": proxy.user, f"{scheme}.proxyPassword": proxy.password}
                # Without this Java sends no password to a proxy that it asks for a tunnel.
                found["jdk.http.auth.tunneling.disabledSchemes"] = ""
    return {**found, "http.nonProxyHosts": "|".join(_not_proxied(environ))} if found else {}


def _proxy(scheme: str, environ: Mapping[str, str]) -> Proxy | None:
    """The variable in small letters counts first, also when it is empty."""
    variable = next((name for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY") if name in environ), "")
    named = environ.get(variable, "").strip()
    if not named:
        return None
    try:
        url = urlsplit(named if "://" in named else f"http://{named}")
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
    except ValueError:  # the client that is given this address will say so
        return None
    host = _spelled(address.hostname or "")
    direct = any(fnmatchcase(host, pattern.replace("[", "[[]")) for pattern in _not_proxied(environ))
    return None if direct else _proxy(address.scheme, environ)


def _spelled(host: str) -> str:
    """As it is written within an address."""
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
