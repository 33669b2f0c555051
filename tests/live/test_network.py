"""Java's clients use a proxy, or go past it, and trust the same certificates as Python's: by the environment.

No name under `.test` leads anywhere, so what answers for it was asked through the proxy; and the proxy shows the
certificate of an authority that only the environment's bundle knows.
"""

import base64
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.io import load_file_io

from lakehouse_ingest.environment.embedded.claim import LOOPBACK
from lakehouse_ingest.environment.embedded.jvm import SPARK_JARS, Jvm
from lakehouse_ingest.environment.jars import download as downloads
from lakehouse_ingest.environment.jars import ensure
from lakehouse_ingest.environment.jars.download import download
from lakehouse_ingest.environment.jars.lock import Jar
from lakehouse_ingest.environment.jars.repository import MIRROR
from lakehouse_ingest.environment.proxies import java_properties, rest_properties, s3_properties, set_system_properties
from lakehouse_ingest.errors import TryAgain
from tests.services.secured_kafka import Authority

pytestmark = pytest.mark.live

ANSWERS: Mapping[str, bytes] = {
    "/v1/config": json.dumps({"defaults": {}, "overrides": {}}).encode(),
    "/v1/namespaces": json.dumps({"namespaces": [["plant"]]}).encode(),
    "/lake/there": b"an object",
}
USER, PASSWORD = "ingest", 'p@ss "word"\\'


@dataclass
class Proxy:
    """Answers by itself for every host that it is asked for, in the clear or in a tunnel."""

    tls: ssl.SSLContext
    answers: Mapping[str, bytes] = field(default_factory=lambda: ANSWERS)
    asked: Counter[str] = field(default_factory=Counter)  # by method and host, as a proxy or not
    login: str | None = None
    port: int = 0

    def environment(self, bundle: str) -> dict[str, str]:
        login = "ingest:p%40ss%20%22word%22%5C@" if self.login else ""
        address = f"http://{login}{LOOPBACK}:{self.port}"
        return {"HTTP_PROXY": address, "https_proxy": address, "REQUESTS_CA_BUNDLE": bundle}

    @contextmanager
    def serving(self) -> Iterator["Proxy"]:
        handler = type("Bound", (Handler,), {"proxy": self})
        with ThreadingHTTPServer((LOOPBACK, 0), handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    proxy: Proxy
    tunnel = False

    def do_CONNECT(self) -> None:
        if not self.let_in():
            return
        self.proxy.asked[f"CONNECT {self.path}"] += 1
        self.send_response(200)
        self.end_headers()
        try:
            self.connection = self.proxy.tls.wrap_socket(self.connection, server_side=True)
        except OSError:  # the client does not trust us
            self.close_connection = True
            return
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.tunnel = True
        self.close_connection = False  # though urllib3 asks for the tunnel in HTTP/1.0

    def do_GET(self) -> None:
        if not self.tunnel:
            if self.path.startswith("http") and not self.let_in():
                return
            self.proxy.asked[f"GET {urlsplit(self.path).netloc}"] += 1
        answer = self.proxy.answers.get(urlsplit(self.path).path)
        self.answer(404 if answer is None else 200, answer or b"")

    do_HEAD = do_GET  # noqa: N815 - by this name it is looked up

    def let_in(self) -> bool:
        given = self.headers.get("Proxy-Authorization", "").removeprefix("Basic ")
        if self.proxy.login is None or base64.b64decode(given).decode() == self.proxy.login:
            return True
        self.answer(407, b"", {"Proxy-Authenticate": 'Basic realm="tests"'})
        return False

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def finish(self) -> None:
        super().finish()
        self.connection.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("proxy", "DNS:catalog.test,DNS:store.test,DNS:jars.test")
    return made


@pytest.fixture(params=["open", "locked"])
def proxy(authority: Authority, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.path("proxy.pem"))
    with Proxy(tls, login=f"{USER}:{PASSWORD}" if request.param == "locked" else None).serving() as serving:
        yield serving


@contextmanager
def jvm(folder: Path, jars: list[Path]) -> Iterator[Jvm]:
    with (folder / "lock").open("w") as lock:
        running = Jvm("spark", jars, ["-Xmx256m"], folder / "java.log", lock.fileno())
        try:
            yield running
        except Py4JJavaError as failure:
            raise AssertionError(str(failure)) from None  # told while the JVM can be asked
        finally:
            running.stop()


def namespaces(running: Jvm, uri: str, environ: Mapping[str, str]) -> list[str]:
    java = running.classes.org.apache
    properties = {"type": "rest", "uri": uri, "rest.client.max-retries": "1", **rest_properties(uri, environ)}
    lake = java.iceberg.CatalogUtil.buildIcebergCatalog("lake", properties, java.hadoop.conf.Configuration())
    return [str(each) for each in lake.listNamespaces()]


def holds(running: Jvm, endpoint: str, place: str, client: str = "apache") -> bool:
    java = running.classes.org.apache
    properties = {
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.retry.num-retries": "0",
        "client.region": "us-east-1",
        "http-client.type": client,
    }
    files = java.iceberg.CatalogUtil.loadFileIO(
        "org.apache.iceberg.aws.s3.S3FileIO", properties, java.hadoop.conf.Configuration()
    )
    try:
        return bool(files.newInputFile(place).exists())
    finally:
        files.close()


class TestProxy:
    def test_leads_iceberg_for_java_to_catalog_and_object_store(
        self, proxy: Proxy, authority: Authority, spark_jars: list[Path], tmp_path: Path
    ) -> None:
        environ = {**proxy.environment(authority.path("ca.crt")), "NO_PROXY": "past.test"}
        with jvm(tmp_path, [*spark_jars, SPARK_JARS / "*"]) as running:
            set_system_properties(running.classes, java_properties(tmp_path, environ))
            for scheme, port in (("https", 443), ("http", 80)):
                proxy.asked.clear()
                assert namespaces(running, f"{scheme}://catalog.test", environ) == ["plant"]
                assert holds(running, f"{scheme}://store.test", "s3://lake/there")
                assert not holds(running, f"{scheme}://store.test", "s3://lake/absent")
                through = {"https": f"CONNECT {{}}:{port}", "http": "GET {}"}[scheme]
                assert set(proxy.asked) == {through.format(host) for host in ("catalog.test", "store.test")}
            proxy.asked.clear()
            here = f"http://{LOOPBACK}:{proxy.port}"
            assert namespaces(running, here, environ) == ["plant"]
            assert holds(running, here, "s3://lake/there")
            assert set(proxy.asked) == {"GET "}, "what is on this machine is asked itself"
            proxy.asked.clear()
            with pytest.raises(Py4JJavaError, match="UnknownHost"):
                namespaces(running, "http://past.test", environ)
            with pytest.raises(Py4JJavaError, match="UnknownHost"):
                holds(running, "http://past.test", "s3://lake/there")
            with pytest.raises(Py4JJavaError, match="UnknownHost"):
                namespaces(running, "http://catalog.test", {})  # by the JVM's properties alone: not Iceberg's way
            assert not proxy.asked
            assert PASSWORD.encode() not in Path(f"/proc/{running.pid}/cmdline").read_bytes()

    @pytest.mark.parametrize("proxy", ["open"], indirect=True)  # its S3 client gives a proxy no password
    def test_leads_the_embedded_catalog_to_its_object_store(
        self, proxy: Proxy, authority: Authority, spark_jars: list[Path], jars_folder: Path | None, tmp_path: Path
    ) -> None:
        environ = proxy.environment(authority.path("ca.crt"))
        sdk = [jar for jar in spark_jars if jar.name.startswith("iceberg-aws-bundle")]
        own = [jar for kind in ("catalog", "catalog-s3") for jar in ensure(kind, folder=jars_folder)]
        hadoop = sorted(SPARK_JARS.glob("hadoop-client-*.jar"))
        with jvm(tmp_path, [*own, *hadoop, *sdk]) as running:
            set_system_properties(running.classes, java_properties(tmp_path, environ))
            assert holds(running, "https://store.test", "s3://lake/there", "urlconnection")
            assert holds(running, "http://store.test", "s3://lake/there", "urlconnection")
        assert set(proxy.asked) == {"CONNECT store.test:443", "GET store.test"}

    def test_leads_pyiceberg_to_its_object_store(self, proxy: Proxy, authority: Authority) -> None:
        """In the clear: whom pyarrow trusts is settled when its process starts."""
        endpoint = "http://store.test"
        found = s3_properties(endpoint, proxy.environment(authority.path("ca.crt")))
        keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
        files = load_file_io({"s3.endpoint": endpoint, **keys, **found}, "s3://lake")
        assert files.new_input("s3://lake/there").exists()
        assert not files.new_input("s3://lake/absent").exists()
        assert set(proxy.asked) == {"GET store.test"}

    def test_leads_the_download_of_jars_to_the_mirror(
        self, proxy: Proxy, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = bytes(100_000)
        jar = Jar("org/tukaani/xz/1.10/xz-1.10.jar", sha256(content).hexdigest(), len(content))
        proxy.answers = {f"/repository/{jar.path}": content}
        for variable in ("SSL_CERT_FILE", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in proxy.environment(authority.path("ca.crt")).items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv(MIRROR, "https://jars.test/repository/")
        received = [*download("small", [jar], tmp_path)]
        assert [each.file for each in received if each.file] == ["xz-1.10.jar"]
        assert (tmp_path / "xz-1.10.jar").read_bytes() == content
        assert proxy.asked.keys() == {"CONNECT jars.test:443"}

    @pytest.mark.parametrize("wrong", ["login", "certificate"])
    def test_that_stops_a_download_is_named_without_a_password(
        self, wrong: str, authority: Authority, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("SSL_CERT_FILE", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in proxy.environment(authority.path("ca.crt")).items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setattr(downloads, "PAUSE_S", 0.01)
        monkeypatch.setenv(MIRROR, "https://jars.test/repository/")
        if wrong == "login":
            proxy.login = f"{USER}:another"
            monkeypatch.setenv("https_proxy", f"http://{USER}:forgotten@{LOOPBACK}:{proxy.port}")
        else:
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
        with pytest.raises(TryAgain, match=r"407|certificate verify failed") as refused:
            [*download("small", [Jar("a/b/1/b-1.jar", "0" * 64, 1)], tmp_path)]
        assert "forgotten" not in str(refused.value)
        assert PASSWORD not in str(refused.value)


class TestJava:
    @pytest.mark.parametrize("proxy", ["open"], indirect=True)
    def test_trusts_no_authority_outside_the_bundle(
        self, proxy: Proxy, authority: Authority, spark_jars: list[Path], tmp_path: Path
    ) -> None:
        environ = {**proxy.environment(authority.path("ca.crt")), "REQUESTS_CA_BUNDLE": ""}
        with jvm(tmp_path, [*spark_jars, SPARK_JARS / "*"]) as running:
            set_system_properties(running.classes, java_properties(tmp_path, environ))
            with pytest.raises(Py4JJavaError, match="PKIX path building failed"):
                namespaces(running, "https://catalog.test", environ)

    def test_keeps_properties_that_are_already_set(self, tmp_path: Path) -> None:
        with jvm(tmp_path, []) as running:
            for host in ("first", "second"):
                set_system_properties(running.classes, {"http.proxyHost": host})
            assert running.classes.java.lang.System.getProperty("http.proxyHost") == "first"
