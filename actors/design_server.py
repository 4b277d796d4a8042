"""The design server: publishes the task, holds the private key, opens what the gate lets through.

It runs in a process of its own and is the only one that reads the key file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.actors.opened import opened, written
from penrose_ray.crypto.keyfile import DesignKeys
from penrose_ray.crypto.threshold import Partial
from penrose_ray.crypto.unlock import Unlock
from penrose_ray.draft import task_from
from penrose_ray.errors import ConfigError, ShareError, WrongKeyError, naming
from penrose_ray.release.approval import context_of
from penrose_ray.release.handover import decode
from penrose_ray.task import read_signed, sign, signer_of, verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.actors.opened import OpenedFile
    from penrose_ray.crypto.key_share import KeyShare
    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.opening import Opening
    from penrose_ray.release.handover import Handover
    from penrose_ray.settings import DesignServerSettings
    from penrose_ray.task import Task
    from penrose_ray.toml_file import TomlFile


class SharedDecryptor:
    """Opens one hand-over with this party's share and the partial decryptions of others.

    Args:
        share: this party's.
        handover: what is opened; proofs are bound to it.
        partials: what each other party answered, entry by entry.

    Raises:
        ShareError: an answer is not one partial decryption for each entry.
    """

    def __init__(self, share: KeyShare, handover: Handover, partials: Sequence[bytes]) -> None:
        self._share = share
        self._handover = handover
        self._partials = [_partials(raw, len(handover.entries)) for raw in partials]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the split key."""
        return self._share.key.public_key.fingerprint

    def decrypt_many(self, blobs: Sequence[bytes], profile: SlotProfile) -> list[tuple[int, ...]]:
        """Plaintexts of the hand-over's entries, in their order.

        Raises:
            ShareError: too few right partial decryptions; a wrong party is named.
        """
        digest = hashlib.sha256(self._handover.encode()).digest()
        plaintexts = []
        for at, (blob, entry) in enumerate(zip(blobs, self._handover.entries, strict=True)):
            context = context_of(digest, entry)
            own = self._share.decrypt(blob, profile, context=context)
            parts = [own, *(each[at] for each in self._partials)]
            plaintexts.append(self._share.key.combine(blob, profile, parts, context=context))
        return plaintexts


def _partials(raw: bytes, count: int) -> list[Partial]:
    try:
        found = msgspec.msgpack.decode(raw, type=list[Partial])
    except msgspec.MsgspecError as error:
        raise ShareError(f"This is no gatekeeper's answer: {error}.", remedy="Ask it again.") from error
    if len(found) != count:
        raise ShareError(f"The gatekeeper answered for {len(found)} of {count} sums.", remedy="Ask it again.")
    return found


class DesignServer:
    """Keys stay inside: callers get the signed task and opened releases."""

    def __init__(self, settings: DesignServerSettings, draft: TomlFile, service_key: bytes = b"") -> None:
        self._keys = _keys(settings)
        self._releases_dir = settings.releases_dir
        task = task_from(draft, self._keys.paillier.public_key)
        self._task = msgspec.structs.replace(task, service_key=service_key or task.service_key)
        self._signed = sign(self._task, self._keys.signing)

    def signed_task(self) -> bytes:
        """The task as clients and the aggregation service get it."""
        return self._signed.encode()

    def sample_task(self) -> bytes:
        """The same task with sealed reports and no gate: for the sealed sample of a simulated fleet.

        Raises:
            ConfigError: the task's own reports are sealed, so it needs no other.
        """
        return sign(self._sample(), self._keys.signing).encode()

    def _sample(self) -> Task:
        task = self._task
        if task.profile().sealed:
            raise ConfigError("This task's reports are sealed.", remedy="Seal the sample for it.")
        name, profile = f"{task.name}, sealed sample", f"std{self._keys.paillier.public_key.bits}"
        return msgspec.structs.replace(task, name=name, slot_profile=profile, min_contributors=1)

    def signer(self) -> bytes:
        """The Ed25519 key that clients pin, 32 bytes."""
        return self._signed.signer

    def open(
        self, handovers: Sequence[bytes], path: Path, partials: Sequence[Sequence[bytes]] = ()
    ) -> OpenedFile:
        """Decrypt hand-overs of this task, check them and write one Parquet file.

        Args:
            handovers: as the release desk gave them.
            path: the file to write.
            partials: gatekeepers' answers, of which a whole key has no need.

        Raises:
            ReleaseFormatError: not a hand-over, or of another task.
            WrongKeyError: sealed for another key.
        """
        del partials
        return written([self._open_one(raw) for raw in handovers], path, self._releases_dir)

    def _open_one(self, raw: bytes) -> Opening:
        handover, task = decode(raw), self._task
        if handover.task_id != task.task_id and not task.profile().sealed:
            task = self._sample()
        return opened(task, handover, self._keys.paillier)


class SharedDesignServer:
    """The design server of a split key: it has a share and the signed task, and opens nothing alone.

    Raises:
        WrongKeyError: the share is of another key than the task's.
        TaskError, KeyMissingError, KeyPermissionError, KeyFormatError: the files are missing or wrong.
    """

    def __init__(self, settings: DesignServerSettings) -> None:
        self._signed = read_signed(settings.task_file or "")
        with naming(settings.task_file):
            self._task = verify(self._signed)
        self._share = Unlock(settings.passphrase_variable).read_share(settings.share_file or Path())
        self._releases_dir = settings.releases_dir
        if self._share.key.public_key.fingerprint != self._task.key().fingerprint:
            raise WrongKeyError("This share is not of the task's key.", remedy="Give the share of this task.")

    def signed_task(self) -> bytes:
        """The task as clients and the aggregation service get it."""
        return self._signed

    def signer(self) -> bytes:
        """The Ed25519 key that clients pin, 32 bytes."""
        return signer_of(self._signed)

    def open(self, handovers: Sequence[bytes], path: Path, partials: Sequence[Sequence[bytes]]) -> OpenedFile:
        """Open hand-overs with what the gatekeepers answered for each, and write one Parquet file.

        Raises:
            ShareError: too few right partial decryptions; a wrong party is named.
            ReleaseFormatError: not a hand-over, or of another task.
        """
        return _opened_together(
            self._task, self._share, zip(handovers, partials, strict=True), path, self._releases_dir
        )


def _keys(settings: DesignServerSettings) -> DesignKeys:
    unlock = Unlock(settings.passphrase_variable, settings.hsm_token)
    path = settings.key_file
    if path is None:
        raise ConfigError("The design server has no key.", remedy="Set design_server.key_file.")
    if settings.create_key and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        keys = DesignKeys.generate()
        unlock.write(path, keys)
        return keys
    return unlock.read(path)


def open_with_share(
    share_file: Path,
    passphrase_variable: str,
    task: Task,
    raw: bytes,
    partials: Sequence[bytes],
    path: Path,
) -> OpenedFile:
    """Open a hand-over of a split key: this party's share and what the gatekeepers answered.

    Args:
        share_file: this party's share.
        passphrase_variable: environment variable that holds its passphrase; empty for none.
        task: verified.
        raw: the hand-over.
        partials: what gatekeepers answered.
        path: the Parquet file to write.

    Raises:
        ShareError: too few right partial decryptions; a wrong party is named.
        WrongKeyError: the share is of another key than the task's.
        ReleaseFormatError: not a hand-over, or of another task.
    """
    share = Unlock(passphrase_variable).read_share(share_file)
    return _opened_together(task, share, [(raw, partials)], path, path.parent)


def _opened_together(
    task: Task,
    share: KeyShare,
    releases: Iterable[tuple[bytes, Sequence[bytes]]],
    path: Path,
    directory: Path,
) -> OpenedFile:
    openings = []
    for raw, partials in releases:
        handover = decode(raw)
        decryptor = SharedDecryptor(share, handover, partials)
        openings.append(opened(task, handover, decryptor))
    return written(openings, path, directory)
