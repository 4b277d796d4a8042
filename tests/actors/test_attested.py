"""A client whose owner asks for a quote uploads nothing without the right one."""

from __future__ import annotations

import pytest
from release.test_attestation import POINT, STATE, TASK, made

from penrose_ray.actors.attested import require_attested
from penrose_ray.errors import AttestationError, ConfigError
from penrose_ray.policy import OwnerPolicy

ASKS = OwnerPolicy(attestation_key=POINT.hex(), attestation_state=STATE.hex())


def test_the_right_quote_is_accepted_and_others_are_not() -> None:
    require_attested(ASKS, TASK, lambda: made().encode())
    for raw in (b"", b"nonsense", made(nonce=b"u" * 32).encode(), made(state=bytes(32)).encode()):
        with pytest.raises(AttestationError):
            require_attested(ASKS, TASK, lambda raw=raw: raw)


def test_an_owner_who_does_not_ask_gets_no_quote_fetched() -> None:
    require_attested(OwnerPolicy(), TASK, lambda: pytest.fail("fetched"))


def test_a_policy_that_is_not_hexadecimal_is_named() -> None:
    with pytest.raises(ConfigError, match="not hexadecimal"):
        require_attested(OwnerPolicy(attestation_key="xyz"), TASK, lambda: b"")
