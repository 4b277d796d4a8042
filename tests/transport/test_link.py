"""The way to a party: who is believed, what is refused, and that nothing is sent before."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from transport.servers import ONION, Told, certificate, fake_tor, http_server

from penrose_ray.errors import ConfigError, TlsError, TransportError
from penrose_ray.settings import LinkSettings
from penrose_ray.transport.link import Link, is_loopback
from penrose_ray.transport.tls import server_context

if TYPE_CHECKING:
    from pathlib import Path

HERE = ("127.0.0.1", "localhost")


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Path]:
    return certificate(tmp_path, "authority")


def ask(told: Told, settings: LinkSettings, *, scheme: str = "https", host: str = "127.0.0.1") -> bytes:
    told.body = b"evaluated"
    link = Link("key server", f"{scheme}://{host}:{told.port}", settings, timeout_s=10)
    answer = link.ask("POST", "/points", b"blinded", {"Authorization": "Bearer 77"})
    assert answer.status == 200
    return answer.body


def heard(told: Told) -> tuple[list[bytes], list[str]]:
    return told.bodies, [head["Authorization"] for head in told.heads]


@pytest.mark.parametrize("host", HERE)
def test_a_party_is_believed_for_the_hosts_that_its_authority_vouches_for(
    tmp_path: Path, authority: tuple[Path, Path], host: str
) -> None:
    party = certificate(tmp_path, "party", hosts=HERE, authority=authority)
    with http_server(server_context(*party)) as told:
        assert ask(told, LinkSettings(authorities=authority[0]), host=host) == b"evaluated"
        assert heard(told) == ([b"blinded"], ["Bearer 77"])


def test_its_own_certificate_is_enough(tmp_path: Path, authority: tuple[Path, Path]) -> None:
    for signer in (None, authority):
        party = certificate(tmp_path, "party", hosts=HERE, authority=signer)
        with http_server(server_context(*party)) as told:
            assert ask(told, LinkSettings(authorities=party[0])) == b"evaluated"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("another authority", "unable to get local issuer certificate"),
        ("no authority", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
        ("another host", "certificate is not valid for '127.0.0.1'"),
        ("no host", "certificate is not valid for '127.0.0.1'"),
    ],
)
def test_a_party_that_proves_nothing_is_sent_nothing(
    tmp_path: Path, authority: tuple[Path, Path], case: str, why: str
) -> None:
    hosts = {"another host": ("127.0.0.2", "keys.example"), "no host": ()}.get(case, HERE)
    days = -1.0 if case == "expired" else 30.0
    party = certificate(tmp_path, "party", hosts=hosts, authority=authority, days=days)
    others = {"another authority": certificate(tmp_path, "other")[0], "no authority": None}
    believed = others.get(case, authority[0])
    with http_server(server_context(*party)) as told:
        with pytest.raises(TlsError, match="does not prove who it is") as caught:
            ask(told, LinkSettings(authorities=believed))
        assert why in caught.value.message
        assert heard(told) == ([], [])


def test_a_party_with_an_older_tls_is_sent_nothing(tmp_path: Path) -> None:
    party = certificate(tmp_path, "party", hosts=HERE)
    old = server_context(*party)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    with http_server(old) as told:
        with pytest.raises(TlsError, match=r"No TLS 1\.3"):
            ask(told, LinkSettings(authorities=party[0]))
        assert heard(told) == ([], [])


def test_a_client_with_an_older_tls_is_not_answered(tmp_path: Path) -> None:
    party = certificate(tmp_path, "party", hosts=HERE)
    old = ssl.create_default_context(cafile=party[0])
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with http_server(server_context(*party)) as told:
        with (
            socket.create_connection(("127.0.0.1", told.port), 10) as plain,
            pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
        ):
            old.wrap_socket(plain, server_hostname="127.0.0.1")
        assert heard(told) == ([], [])


def test_https_is_not_spoken_plainly_and_plain_http_is_not_secured(tmp_path: Path) -> None:
    party = certificate(tmp_path, "party", hosts=HERE)
    with http_server() as told:
        with pytest.raises(TlsError, match=r"No TLS 1\.3"):
            ask(told, LinkSettings(authorities=party[0]))
        assert heard(told) == ([], [])
    with http_server(server_context(*party)) as told:
        with pytest.raises(TransportError):
            ask(told, LinkSettings(), scheme="http")
        assert heard(told) == ([], [])


def test_plain_http_stays_on_this_machine_unless_allowed() -> None:
    """0.0.0.0 is this machine to the kernel, and any address to the rule."""
    with http_server() as told:
        assert ask(told, LinkSettings(), scheme="http") == b"evaluated"
        assert ask(told, LinkSettings(), scheme="http", host="localhost") == b"evaluated"
        with pytest.raises(ConfigError, match=r"Plain http to the key server at 0\.0\.0\.0") as caught:
            ask(told, LinkSettings(), scheme="http", host="0.0.0.0")  # noqa: S104 - not listened at
        assert "allow_plain_http" in caught.value.remedy
        assert len(told.bodies) == 2
        ask(told, LinkSettings(allow_plain_http=True), scheme="http", host="0.0.0.0")  # noqa: S104
        assert len(told.bodies) == 3


@pytest.mark.parametrize("host", ["10.0.0.9", "keys.example", "[2001:db8::1]", "127.0.0.1.example", "0x7f.1"])
def test_plain_http_to_other_machines_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="Plain http"):
        Link("issuer", f"http://{host}:8470")


def test_what_is_this_machine() -> None:
    assert [each for each in ("127.0.0.1", "127.9.9.9", "::1", "localhost") if not is_loopback(each)] == []
    assert [each for each in ("", "0.0.0.0", "::", "10.0.0.9", "host") if is_loopback(each)] == []  # noqa: S104


def test_an_onion_address_is_asked_over_tor_and_nowhere_else() -> None:
    with http_server() as told, fake_tor(None, told.port) as tor:
        link = Link(
            "issuer", f"http://{ONION}", LinkSettings(socks="{}:{}".format(*tor.address)), timeout_s=10
        )
        assert link.ask("POST", "/tokens", b"blinded").status == 200
        assert (told.bodies, tor.hosts) == ([b"blinded"], [ONION.encode()])
    with pytest.raises(ConfigError, match="reached over tor alone"):
        Link("issuer", f"http://{ONION}", LinkSettings(allow_plain_http=True))


@pytest.mark.parametrize(
    "url", ["issuer", "ftp://127.0.0.1", "https://", "http://127.0.0.1:x", "https://h:99999"]
)
def test_addresses_that_are_none_are_named(url: str) -> None:
    with pytest.raises(ConfigError):
        Link("issuer", url)


def test_a_file_without_certificates_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "text"):
        (tmp_path / "text").write_text("hello")
        with pytest.raises(ConfigError, match="holds no certificates"):
            Link("issuer", "https://127.0.0.1", LinkSettings(authorities=path))


def test_an_answer_is_read_to_its_bound_and_no_further() -> None:
    with http_server() as told:
        told.body = b"x" * 5000
        link = Link("issuer", f"http://127.0.0.1:{told.port}", most_bytes=1000)
        assert len(link.ask("POST", "/tokens", b"").body) == 1000


def test_a_party_that_breaks_off_is_not_there() -> None:
    with http_server() as told:
        told.headers = {"Content-Length": "9"}
        with pytest.raises(TransportError, match="The issuer is not there") as caught:
            Link("issuer", f"http://127.0.0.1:{told.port}").ask("POST", "/tokens", b"one")
        assert isinstance(caught.value.__cause__, http.client.IncompleteRead)
