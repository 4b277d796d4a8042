"""`penrose keys`: the design server's key file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.cli.passphrase import VariableOption
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.crypto.keyfile import DesignKeys
from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.unlock import Unlock
from penrose_ray.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Make and look at the design server's keys.")
FileArgument = Annotated[Path, typer.Argument(help="The key file.")]
BitsOption = Annotated[int, typer.Option("--bits", min=2048, max=16_384, help="Size of the modulus n.")]
HsmOption = Annotated[
    str,
    typer.Option(
        "--hsm",
        metavar="TOKEN",
        help="Label of a token; PENROSE_HSM_MODULE and PENROSE_HSM_PIN say how to open it.",
    ),
]


def _place(path: Path) -> None:
    """Make the folder of a new key file, and find out before a key is made that it cannot be written."""
    if path.exists():
        raise ConfigError(f"{path} exists; keys are never overwritten.", remedy="Name another file.")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)


@app.command("new")
def new(
    path: FileArgument, passphrase_variable: VariableOption = "", hsm: HsmOption = "", bits: BitsOption = 3072
) -> None:
    """Make a Paillier key and a signing key and write them to a new file of mode 0600.

    Example: PASS=... penrose keys new design_server.key --passphrase-variable PASS

    It takes seconds, with more bits minutes: n is a product of two safe primes. A missing folder is made.
    """
    unlock = Unlock(passphrase_variable, hsm)
    unlock.check()
    _place(path)
    paillier = PrivateKey.generate(bits, progress=say)
    keys = DesignKeys(paillier, Ed25519PrivateKey.generate())
    unlock.write(path, keys)
    say(f"{path} written; keep a copy in a safe place, nothing opens a release without it")
    typer.echo(paillier.public_key.fingerprint)


@app.command("rotate")
def rotate(
    old: Annotated[Path, typer.Argument(help="The key file in use; it is kept.")],
    new_path: Annotated[Path, typer.Argument(metavar="NEW", help="The key file to make.")],
    passphrase_variable: VariableOption = "",
    hsm: HsmOption = "",
) -> None:
    """Make a new Paillier key under the same signing key, so that clients keep their pinned signer.

    Example: penrose keys rotate design_server.key design_server-2.key

    A rotated key is a new task: sign the draft again. Keep the old file until its last batch is opened.
    """
    _place(new_path)
    unlock = Unlock(passphrase_variable, hsm)
    signing = unlock.read(old).signing
    paillier = PrivateKey.generate(progress=say)
    unlock.write(new_path, DesignKeys(paillier, signing))
    say(f"{new_path} written; sign a new task with it and keep {old} until its last batch is opened")
    typer.echo(paillier.public_key.fingerprint)


@app.command("show")
def show(
    path: FileArgument,
    passphrase_variable: VariableOption = "",
    hsm: HsmOption = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the public halves of a key file.

    Example: penrose keys show design_server.key --format json
    """
    keys = Unlock(passphrase_variable, hsm).read(path)
    row = {
        "bits": keys.paillier.public_key.bits,
        "fingerprint": keys.paillier.public_key.fingerprint,
        "signer": keys.signing.public_key().public_bytes_raw().hex(),
        "modulus": f"{keys.paillier.public_key.n:x}",
    }
    print_rows([row], ("bits", "fingerprint", "signer"), form, str(path))


@app.command("deal")
def deal_shares(
    path: FileArgument,
    out: Annotated[Path, typer.Option("--out", help="The directory for the shares, a new file each.")],
    threshold: Annotated[int, typer.Option("--threshold", min=2, help="Parties that open together.")] = 2,
    parties: Annotated[int, typer.Option("--parties", min=2, help="Parties that get a share.")] = 3,
    passphrase_variable: VariableOption = "",
    hsm: HsmOption = "",
    share_variable: Annotated[
        str,
        typer.Option(
            "--share-passphrase-variable",
            metavar="NAME",
            help="Protect share 1 by the passphrase in the environment variable NAME_1, and so on.",
        ),
    ] = "",
) -> None:
    """Split the Paillier key into shares, so that no single party opens a release.

    Example: penrose keys deal design_server.key --out shares --threshold 2 --parties 3

    Do this on a machine without network, hand each share to its party and destroy the key file.
    """
    locks = [Unlock(f"{share_variable}_{party}" if share_variable else "") for party in range(1, parties + 1)]
    for lock in locks:
        lock.check()
    shares = deal(Unlock(passphrase_variable, hsm).read(path).paillier, threshold=threshold, parties=parties)
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    for lock, share in zip(locks, shares, strict=True):
        lock.write_share(out / f"share-{share.index}.key", share)
    say(f"{parties} shares written to {out}; any {threshold} open a release together")


@app.command("service")
def service(path: FileArgument) -> None:
    """Make the key to which reports' tags are sealed, unless it is there, and print its public half.

    Example: penrose keys service out/state/keys/service.key
    """
    typer.echo(ServiceKey.own(path).public.hex())


@app.command("fingerprint")
def fingerprint(path: FileArgument, passphrase_variable: VariableOption = "", hsm: HsmOption = "") -> None:
    """Print the fingerprint of the Paillier key; clients pin the signer, see `penrose keys show`.

    Example: penrose keys fingerprint design_server.key
    """
    typer.echo(Unlock(passphrase_variable, hsm).read(path).paillier.public_key.fingerprint)


def load_keys(path: Path, passphrase_variable: str, hsm: str = "") -> DesignKeys:
    """Read a key file for another command."""
    return Unlock(passphrase_variable, hsm).read(path)
