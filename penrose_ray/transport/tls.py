"""HTTPS where anonymity is not needed: TLS 1.3 and nothing older.

To a gateway both sides are pinned and no certificate authority is asked: the client accepts a gateway whose
public key it knows; the gateway accepts clients whose certificates (or whose issuer) it was given. A party
(issuer, key server, gatekeeper, release desk) shows a certificate and asks for none.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penrose_ray.errors import ConfigError, TlsError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_PIN_BYTES = 32


def pin_of(certificate: bytes) -> bytes:
    """SHA-256 of the public key (SubjectPublicKeyInfo) of a certificate in PEM or DER.

    Raises:
        ValueError: it is none.
        UnsupportedAlgorithm: its key is of a kind that is not known here.
    """
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
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT)
        _show(self._context, certificate, key)
        self._context.check_hostname = False  # the pin says more than a name
        self._context.verify_mode = ssl.CERT_NONE

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connection to a gateway that was recognised, before anything is sent.

        Raises:
            TlsError: it has another key, or speaks no TLS 1.3.
        """
        connection = _handshake(self._context, host, port, timeout_s)
        try:
            pin = pin_of(connection.getpeercert(binary_form=True) or b"")
        except (ValueError, UnsupportedAlgorithm) as error:
            connection.close()
            raise TlsError(
                f"The gateway's certificate cannot be read: {error}.",
                remedy="Ask its operator; until then nothing is sent.",
            ) from error
        if not any(hmac.compare_digest(pin, known) for known in self._pins):
            connection.close()
            raise TlsError(
                f"The gateway shows another key than the pinned one: {pin.hex()}.",
                remedy="Ask its operator whether the key was replaced; until then nothing is sent.",
            )
        return connection


class AuthorityDial:
    """A `Dial` to a party whose certificate is good for the host that was asked for.

    Args:
        authorities: PEM of the authorities that vouch for it, or its own; None for this machine's.

    Raises:
        ConfigError: a file that holds no certificates.
    """

    scheme = "https"

    def __init__(self, authorities: Path | None = None) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT)
        self._context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # its own is enough
        if authorities is None:
            self._context.load_default_certs()
        else:
            _trust(self._context, authorities)

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connection to the party, before anything is sent.

        Raises:
            TlsError: its certificate has expired, is another host's or nobody vouches for it; or no TLS 1.3.
        """
        return _handshake(self._context, host, port, timeout_s)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a party listens with: its certificate and private key, PEM; raises like `gateway_context`."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    _show(context, certificate, key)
    return context


def gateway_context(certificate: Path, key: Path, clients: Path) -> ssl.SSLContext:
    """What the gateway listens with.

    Args:
        certificate: the gateway's, PEM.
        key: its private key, PEM.
        clients: certificates of clients, or of the authority that issues them, PEM, one after another.

    Raises:
        ConfigError: files that are no certificates or keys.
    """
    context = server_context(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, clients)
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET
    return context


def _trust(context: ssl.SSLContext, certificates: Path) -> None:
    try:
        context.load_verify_locations(cafile=certificates)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{certificates} holds no certificates: {error}.", remedy="Give a PEM file."
        ) from error


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{certificate} and {key} are no certificate and key: {error}.", remedy="Give two PEM files."
        ) from error


def _handshake(context: ssl.SSLContext, host: str, port: int, timeout_s: float) -> ssl.SSLSocket:
    plain = socket.create_connection((host, port), timeout_s)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise TlsError(
            f"{host}:{port} does not prove who it is: {error.verify_message.rstrip('.')}.",
            remedy="Ask its operator for its certificate, or its authority's; until then nothing is sent.",
        ) from error
    except ssl.SSLError as error:
        plain.close()
        raise TlsError(
            f"No TLS 1.3 with {host}:{port}: {error.reason or error}.",
            remedy="Check that the address is the one that listens with a certificate.",
        ) from error
    except BaseException:
        plain.close()
        raise
