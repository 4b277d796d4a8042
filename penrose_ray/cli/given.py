"""What options name: hexadecimal texts and files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from penrose_ray.cli.output import say
from penrose_ray.errors import ConfigError, PenroseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penrose_ray.settings import LinkSettings

_BYTES: Final = 32
SocksOption = Annotated[str, typer.Option("--socks", help="HOST:PORT of a running tor, for .onion.")]
LedgerSignerOption = Annotated[
    str,
    typer.Option(
        "--ledger-signer",
        "--signer",
        help="The pinned key of the ledger, hexadecimal, as penrose release list prints it.",
    ),
]
AuthoritiesOption = Annotated[
    Path | None,
    typer.Option("--authorities", help="For https: PEM of its authority, or of itself; else this machine's."),
]
PlainOption = Annotated[
    bool,
    typer.Option("--allow-plain-http", help="Take http to another machine: a VPN or tunnel protects it."),
]


def link_settings(
    address: str, authorities: Path | None, *, allow_plain_http: bool, socks: str
) -> LinkSettings:
    """How the one party at `address` is reached; raises ConfigError for a `socks` that would not be used."""
    from penrose_ray.settings import LinkSettings  # noqa: PLC0415 - pydantic
    from penrose_ray.transport.route import check_socks  # noqa: PLC0415 - as above

    check_socks(socks, address)
    return LinkSettings(authorities=authorities, allow_plain_http=allow_plain_http, socks=socks)


def warn_of_plain_http(gateways: Iterable[str]) -> None:
    """Say once which gateways would be spoken to in the clear over a network."""
    from penrose_ray.transport.link import is_loopback  # noqa: PLC0415 - pydantic
    from penrose_ray.transport.route import kind_of  # noqa: PLC0415 - as above

    plain = [each for each in gateways if kind_of([each]) == "http"]
    hosts = [host for each in plain if not is_loopback(host := urlsplit(each).hostname or "")]
    if hosts:
        say(
            f"warning: plain http to {', '.join(hosts)}: whoever is on the way sees that this host sends "
            "reports and what a report's header says, and can take or alter them. Unless a VPN, tunnel or a "
            "cluster's own network protects the way, use https:// or an onion address: docs/transport.md"
        )


def hexadecimal(option: str, text: str, *, source: str = "") -> bytes:
    """The 32 bytes of a key, id or hash in hexadecimal.

    Raises:
        ConfigError: it is none; the remedy names the command that prints it.
    """
    remedy = f"Copy it from {source}." if source else "Copy it whole."
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is not hexadecimal.", remedy=remedy) from error
    if len(raw) != _BYTES:
        raise ConfigError(f"{option} {text!r} has {len(raw)} bytes, not {_BYTES}.", remedy=remedy)
    return raw


def refuse_design_key(ledger_signer: bytes, signer: bytes) -> None:
    """Raise ConfigError where the design server's key was given as that of the ledger."""
    if ledger_signer == signer:
        raise ConfigError(
            f"--ledger-signer {signer.hex()} is the design server's key, which signs tasks.",
            remedy="Give the ledger's key, which penrose up and penrose release list print.",
        )


def quoted(path: Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def content_of(path: Path, kind: type[PenroseError], *, remedy: str = "Check the path.") -> bytes:
    """The bytes of a file; raises an error of that kind when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise kind(f"{path} cannot be read: {error.strerror}.", remedy=remedy) from error
