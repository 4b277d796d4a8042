"""Servers on 127.0.0.1 that transports are tested against."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import queue
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penrose_ray.transport.tor.address import onion_host

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

ONION = onion_host(bytes(range(32)))
"""A well-formed address that nobody has the key of."""


@dataclass
class Told:
    """What a server answers, and what it has got."""

    port: int
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    """Method, path, headers and body of each request."""

    @property
    def url(self) -> str:
        """Its address, without TLS."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def heads(self) -> list[dict[str, str]]:
        """Headers of each request."""
        return [head for _, _, head, _ in self.seen]

    @property
    def bodies(self) -> list[bytes]:
        """Body of each request."""
        return [body for *_, body in self.seen]


@contextmanager
def http_server(context: ssl.SSLContext | None = None, *, port: int = 0) -> Iterator[Told]:
    """A gateway that answers what it is told to."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told.seen.append((self.command, self.path, dict(self.headers), sent))
            self.send_response(told.status)
            for name, value in {"Content-Length": str(len(told.body)), **told.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_POST = answer  # noqa: N815 - the names that http.server asks for

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that is not let in is no news."""

        def finish_request(self, request: object, address: object) -> None:
            if context is None:
                super().finish_request(request, address)  # type: ignore[arg-type]
                return
            with context.wrap_socket(request, server_side=True) as secured:  # type: ignore[arg-type]
                super().finish_request(secured, address)  # type: ignore[arg-type]

    server = Server(("127.0.0.1", port), Handler)
    told = Told(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(repr=False)
class FakeTor:
    """A SOCKS port that behaves as tor's, but leads straight to a port of 127.0.0.1."""

    path: Path | None
    port: int
    address: tuple[str, int] = ("", 0)
    """Without a path: where it listens."""
    refusal: int = 0
    method: int = 2
    login: int = 0
    names: list[bytes] = field(default_factory=list)
    hosts: list[bytes] = field(default_factory=list)
    sent: queue.Queue[bytes] = field(default_factory=queue.Queue)
    """Bytes of each stream from the client to the service, there when the stream has ended."""


@contextmanager
def fake_tor(path: Path | None, port: int) -> Iterator[FakeTor]:
    """A FakeTor that listens at the Unix socket `path`, or at a port of 127.0.0.1."""
    tor = FakeTor(path, port)
    listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
    listener.bind(("127.0.0.1", 0) if path is None else str(path))
    listener.listen()
    if path is None:
        tor.address = listener.getsockname()
    threads: list[threading.Thread] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=_serve_one, args=(tor, client)))
            threads[-1].start()

    acceptor = threading.Thread(target=serve)
    acceptor.start()
    try:
        yield tor
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def _serve_one(tor: FakeTor, client: socket.socket) -> None:
    """A client that goes away in the middle of the greeting ends its stream and nothing else."""
    with contextlib.suppress(IndexError, ConnectionError):
        _stream(tor, client)


def _stream(tor: FakeTor, client: socket.socket) -> None:
    with client, client.makefile("rb") as exact:
        exact.read(exact.read(2)[1])
        client.sendall(bytes([5, tor.method]))
        if tor.method != 2:
            return
        tor.names.append(exact.read(exact.read(2)[1]))
        exact.read(exact.read(1)[0])
        client.sendall(bytes([1, tor.login]))
        if tor.login:
            return
        exact.read(4)
        tor.hosts.append(exact.read(exact.read(1)[0]))
        exact.read(2)
        client.sendall(bytes([5, tor.refusal, 0, 1]) + bytes(6))
        if not tor.refusal:
            _relay(tor, client)


def _relay(tor: FakeTor, client: socket.socket) -> None:
    sent = bytearray()
    with socket.create_connection(("127.0.0.1", tor.port)) as service:

        def back() -> None:
            while data := service.recv(65_536):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        returning = threading.Thread(target=back)
        returning.start()
        while data := client.recv(65_536):
            sent.extend(data)
            service.sendall(data)
        service.shutdown(socket.SHUT_WR)
        returning.join()
    tor.sent.put(bytes(sent))


def certificate(
    folder: Path,
    name: str,
    *,
    hosts: tuple[str, ...] = (),
    authority: tuple[Path, Path] | None = None,
    days: float = 30,
) -> tuple[Path, Path]:
    """A certificate and its key, as files: good for `days` and `hosts`, signed by itself or an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing: ec.EllipticCurvePrivateKey = key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate(authority[0].read_bytes()).subject
        loaded = serialization.load_pem_private_key(authority[1].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing = loaded
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=90))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(each) for each in hosts]), critical=False
        )
    made = builder.sign(signing, hashes.SHA256())
    folder.mkdir(exist_ok=True)
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
