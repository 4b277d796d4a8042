"""HTTPS for clusters that need no anonymity: TLS 1.3, both sides pinned, no certificate authority asked.

The client accepts a gateway whose public key it knows; the gateway accepts clients whose certificates (or
whose issuer) it was given.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penrose_ray.errors import ConfigError, TransportError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_PIN_BYTES = 32


def pin_of(certificate: bytes) -> bytes:
    """SHA-256 of the public key (SubjectPublicKeyInfo) of a certificate in PEM or DER."""
    pem = certificate.startswith(b"-----BEGIN")
    parsed = (x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate)(certificate)
    key = parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).digest()


class TlsDial:
    """A `Dial` to gateways whose key is one of `pins`; several while a key is being replaced.

    Args:
        pins: see `pin_of`.
        certificate: this client's, PEM.
        key: its private key, PEM.

    Raises:
        ConfigError: no pin, or files that are no certificate and key.
    """

    scheme = "https"

    def __init__(self, pins: Collection[bytes], certificate: Path, key: Path) -> None:
        if not pins or any(len(pin) != _PIN_BYTES for pin in pins):
            raise ConfigError(
                "A gateway is recognised by the SHA-256 of its public key.",
                remedy="Ask its operator for the pin: 64 hexadecimal digits.",
            )
        self._pins = tuple(pins)
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key)
        self._context.check_hostname = False  # the pin says more than a name
        self._context.verify_mode = ssl.CERT_NONE

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connection to a gateway that was recognised, before anything is sent.

        Raises:
            TransportError: it has another key.
        """
        plain = socket.create_connection((host, port), timeout_s)
        try:
            connection = self._context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise
        pin = pin_of(connection.getpeercert(binary_form=True) or b"")
        if not any(hmac.compare_digest(pin, known) for known in self._pins):
            connection.close()
            raise TransportError(
                f"The gateway shows another key than the pinned one: {pin.hex()}.",
                remedy="Ask its operator whether the key was replaced; until then nothing is sent.",
            )
        return connection


def gateway_context(certificate: Path, key: Path, clients: Path) -> ssl.SSLContext:
    """What the gateway listens with.

    Args:
        certificate: the gateway's, PEM.
        key: its private key, PEM.
        clients: certificates of clients, or of the authority that issues them, PEM, one after another.

    Raises:
        ConfigError: files that are no certificates or keys.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cafile=clients)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{clients} holds no certificates: {error}.", remedy="Give a PEM file.") from error
    return context


def _context(protocol: int, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{certificate} and {key} are no certificate and key: {error}.", remedy="Give two PEM files."
        ) from error
    return context
