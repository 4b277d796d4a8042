"""Quotes: the service's machine shows one, and a client checks it before its first upload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.errors import AttestationError, ConfigError
from penrose_ray.release.attestation import check, decode, quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.policy import OwnerPolicy
    from penrose_ray.transport.uploader import Uploader
    from penrose_ray.types import TaskId


def quote_of(task_id: TaskId, tcti: str) -> bytes:
    """The quote of this machine's TPM for a task, empty where no TPM is named; raises like `quote`."""
    return quote(task_id, tcti=tcti).encode() if tcti else b""


class AttestedUploader:
    """Sends nothing until the gateway's machine has proved what the owner asks for."""

    def __init__(
        self, uploader: Uploader, policy: OwnerPolicy, task_id: TaskId, fetch: Callable[[], bytes]
    ) -> None:
        self._uploader = uploader
        self._policy = policy
        self._task_id = task_id
        self._fetch = fetch
        self._checked = False

    def send(self, record: bytes) -> None:
        """See `Uploader.send`; before the first report raises like `require_attested`."""
        if not self._checked:
            require_attested(self._policy, self._task_id, self._fetch)
            self._checked = True
        self._uploader.send(record)


def require_attested(policy: OwnerPolicy, task_id: TaskId, fetch: Callable[[], bytes]) -> None:
    """Fetch and check the gateway's quote, if the owner's policy names a key.

    Raises:
        AttestationError: there is no quote, or it does not prove what it should.
        ConfigError: key or state in the policy is not hexadecimal.
    """
    if not policy.attestation_key:
        return
    try:
        key, state = bytes.fromhex(policy.attestation_key), bytes.fromhex(policy.attestation_state)
    except ValueError as error:
        raise ConfigError(
            "attestation_key or attestation_state is not hexadecimal.", remedy="Copy them whole."
        ) from error
    raw = fetch()
    if not raw:
        raise AttestationError(
            "The gateway shows no TPM quote, and the owner's policy asks for one.",
            remedy="Do not upload; ask the service's operator.",
        )
    check(decode(raw), task_id, trusted_key=key, pcr_digest=state)
