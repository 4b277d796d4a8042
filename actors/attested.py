"""Before the first upload: does the gateway's machine prove the state that the owner asks for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.errors import AttestationError, ConfigError
from penrose_ray.release.attestation import check, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.policy import OwnerPolicy
    from penrose_ray.types import TaskId


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
