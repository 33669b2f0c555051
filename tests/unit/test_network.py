"""What the environment says of proxies and authorities, in Java's words."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import getproxies_environment

import certifi
import pytest
import requests

from lakehouse_ingest.environment.java import find_java
from lakehouse_ingest.environment.proxies import java_properties, reach_this_machine, rest_properties, s3_properties
from lakehouse_ingest.errors import SettingsRefused

BUNDLE = Path(certifi.where()).read_text(encoding="utf-8")
ALWAYS = "localhost|127.*|[::1]"


def certificates(bundle: str) -> Iterator[str]:
    yield from re.findall("-----BEGIN.*?-----END CERTIFICATE-----\n", bundle, re.DOTALL)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Three authorities, with a remark of the kind that bundles have."""
    bundle = tmp_path / "few.pem"
    bundle.write_text("# Autoridade é quem assina\n" + "".join([*certificates(BUNDLE)][:3]), encoding="utf-8")
    return bundle


class TestJavaProperties:
    def test_are_empty_where_the_environment_names_nothing(self, tmp_path: Path) -> None:
        assert java_properties(tmp_path, {"NO_PROXY": "*", "HTTPS_PROXY": "", "SSL_CERT_FILE": ""}) == {}
        assert not [*tmp_path.iterdir()]
        assert rest_properties("https://catalog.example", {}) == {}

    def test_name_a_proxy_by_its_host_and_port(self, tmp_path: Path) -> None:
        assert java_properties(tmp_path, {"HTTPS_PROXY": "http://Proxy.example:3128", "http_proxy": "other"}) == {
            "https.proxyHost": "proxy.example",
            "https.proxyPort": "3128",
            "http.proxyHost": "other",
            "http.proxyPort": "80",
            "http.nonProxyHosts": ALWAYS,
        }

    def test_follow_the_variable_in_small_letters_first_as_python_does(self, tmp_path: Path) -> None:
        assert java_properties(tmp_path, {"HTTPS_PROXY": "http://proxy:3128", "https_proxy": ""}) == {}

    def test_and_icebergs_hold_the_password(self, tmp_path: Path) -> None:
        environ = {"https_proxy": "http://me:s%40cret@proxy:3128"}
        found = java_properties(tmp_path, environ)
        assert found["https.proxyPassword"] == "s@cret"
        assert not [name for name in found if name.startswith("http.proxy")]
        assert rest_properties("https://catalog.example/v1", environ) == {
            "rest.client.proxy.hostname": "proxy",
            "rest.client.proxy.port": "3128",
            "rest.client.proxy.username": "me",
            "rest.client.proxy.password": "s@cret",
        }

    @pytest.mark.parametrize(
        "environ",
        [
            {"http_proxy": "http://small:1", "HTTP_PROXY": "http://large:2"},
            {"HTTP_PROXY": "http://large:2", "HTTPS_PROXY": "http://large:3"},
            {"https_proxy": "", "HTTPS_PROXY": "http://large:3"},
            {"https_proxy": "http://small:1", "HTTPS_PROXY": ""},
            {"HTTPS_PROXY": "", "HTTP_PROXY": "http://large:2"},
        ],
    )
    def test_name_the_proxy_that_urllib_finds(
        self, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        theirs, ours = getproxies_environment(), java_properties(tmp_path, environ)
        for scheme in ("http", "https"):
            found = f"http://{ours[f'{scheme}.proxyHost']}:{ours[f'{scheme}.proxyPort']}" if scheme in theirs else None
            assert found == theirs.get(scheme)
            assert (f"{scheme}.proxyHost" in ours) == (scheme in theirs)

    @pytest.mark.parametrize(
        "proxy", ["socks5://me:secret@proxy:1080", "https://proxy", "http://proxy:many", "http://", ":1"]
    )
    def test_refuse_a_proxy_that_java_cannot_use(self, proxy: str, tmp_path: Path) -> None:
        with pytest.raises(SettingsRefused, match=r"^HTTPS_PROXY should be http://HOST:PORT,") as refused:
            java_properties(tmp_path, {"HTTPS_PROXY": proxy})
        assert "secret" not in str(refused.value)

    @pytest.mark.parametrize(
        ("said", "patterns"),
        [
            ("", ""),
            ("*", "*"),
            ("Corp.example", "corp.example|*.corp.example"),
            (".corp.example , *.other", "corp.example|*.corp.example|other|*.other"),
            ("catalog:8181", "catalog|*.catalog"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.0.0.0/8,192.168.0.0/23", "10.*|192.168.0.*|192.168.1.*"),
            ("10.1.2.4/31", "10.1.2.4|10.1.2.5"),
            ("fe80::1,[fe80::2],fe80::/10", "[fe80::1]|[fe80::2]"),
        ],
    )
    def test_list_who_is_asked_directly(self, said: str, patterns: str, tmp_path: Path) -> None:
        found = java_properties(tmp_path, {"HTTPS_PROXY": "proxy:1", "NO_PROXY": said})["http.nonProxyHosts"]
        assert found == "|".join(filter(None, [ALWAYS, patterns]))


class TestProxyOfAClient:
    @pytest.mark.parametrize(
        "uri",
        [
            "http://127.0.0.1:8181",
            "https://localhost",
            "https://[::1]:8181/",
            "https://a.corp.example",
            "https://CORP.example/catalog",
            "https://10.9.9.9",
            "http://catalog.example",  # only https has a proxy
        ],
    )
    def test_is_none_for_a_catalog_that_is_near(self, uri: str) -> None:
        environ = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".corp.example,10.0.0.0/8"}
        assert rest_properties(uri, environ) == {}
        assert rest_properties("https://acorp.example", environ)

    def test_is_for_an_object_store_that_of_its_scheme(self) -> None:
        environ = {"HTTPS_PROXY": "http://me:s%40cret%2F@[fe80::1]:3128", "NO_PROXY": ".near.example"}
        assert s3_properties(None, environ) == {"s3.proxy-uri": environ["HTTPS_PROXY"]}
        for direct in ("https://store.near.example", "http://store.example"):
            assert s3_properties(direct, environ) == {}

    def test_is_never_asked_for_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("no_proxy", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, "")  # or what is set below would stay after the test
            monkeypatch.delenv(variable)
        monkeypatch.setenv("NO_PROXY", "catalog.example")
        monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
        for _ in range(2):
            reach_this_machine()
            assert os.environ["no_proxy"] == "catalog.example,localhost,127.0.0.1,::1"
        for near in ("http://127.0.0.1:8181", "http://localhost", "http://catalog.example"):
            assert requests.utils.should_bypass_proxies(near, None)
        assert not requests.utils.should_bypass_proxies("http://other.example", None)

    def test_is_none_where_a_star_stands_already(self) -> None:
        environ = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}
        reach_this_machine(environ)
        assert environ == {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "*"}


def aliases(properties: dict[str, str]) -> int:
    """How many authorities Java's own tool sees, which also looks at the seal."""
    keytool = str(find_java().with_name("keytool"))
    store = properties["javax.net.ssl.trustStore"]
    words = [keytool, "-list", "-keystore", store, "-storepass", "changeit"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.count("trustedCertEntry")


class TestTrustStore:
    @pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
    def test_trusts_who_the_bundle_trusts(self, variable: str, few: Path, tmp_path: Path) -> None:
        assert aliases(java_properties(tmp_path, {variable: str(few)})) == 3

    def test_comes_from_the_first_of_several_bundles(self, few: Path, tmp_path: Path) -> None:
        environ = {"SSL_CERT_FILE": str(few), "REQUESTS_CA_BUNDLE": certifi.where()}
        assert aliases(java_properties(tmp_path, environ)) == 3

    def test_keeps_everybody_who_is_trusted_beside_a_bundle_for_s3(self, few: Path, tmp_path: Path) -> None:
        own = tmp_path / "own.pem"
        own.write_text("".join([*certificates(BUNDLE)][2:5]))
        assert aliases(java_properties(tmp_path, {"SSL_CERT_FILE": str(few), "AWS_CA_BUNDLE": str(own)})) == 5
        assert aliases(java_properties(tmp_path, {"AWS_CA_BUNDLE": str(own)})) == len([*certificates(BUNDLE)])

    def test_is_refused_for_a_bundle_that_cannot_be_read(self, tmp_path: Path) -> None:
        whole, torn, none = (tmp_path / name for name in ("whole", "torn", "none"))
        torn.write_text(next(certificates(BUNDLE)).replace("M", "*"))
        none.write_text("-----BEGIN PRIVATE KEY-----")
        for bundle in (whole, torn, none, tmp_path):
            with pytest.raises(
                SettingsRefused, match=rf"^CURL_CA_BUNDLE names {bundle}, where no certificates can be read"
            ):
                java_properties(tmp_path, {"CURL_CA_BUNDLE": str(bundle)})
