"""`penrose task` and `penrose keys rotate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from e2e.http_party import serving
from e2e.one_shard import OneShard

from penrose_ray.actors.gateway import application
from penrose_ray.actors.intake import Intake
from penrose_ray.crypto.keyfile import DesignKeys, read_keys, write_keys
from penrose_ray.task import sign, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def signed(call: Call, tmp_path: Path, design_keys: DesignKeys) -> Path:
    """A task signed from an unchanged draft, beside `keys` and `draft.toml`."""
    write_keys(tmp_path / "keys", design_keys, passphrase=None)
    assert call("task", "new", tmp_path / "draft.toml")[0] == 0
    code, out, err = call(
        "task", "sign", tmp_path / "draft.toml", "--keys", tmp_path / "keys", "--out", tmp_path / "fleet.task"
    )
    assert (code, len(out.strip())) == (0, 64), err
    return tmp_path / "fleet.task"


def test_a_new_draft_has_a_fleet_s_values_and_can_be_signed(
    call: Call, signed: Path, design_keys: DesignKeys
) -> None:
    code, out, _ = call("task", "show", signed, "--format", "json")
    (shown,) = json.loads(out)
    assert code == 0
    assert shown["key"] == design_keys.paillier.public_key.fingerprint
    assert shown["signer"] == design_keys.signing.public_key().public_bytes_raw().hex()
    assert (shown["min_contributors"], shown["sampling_interval"], shown["demo"]) == (200, 10_000, False)
    assert (shown["reports_per_class"], shown["tokens_per_day"], shown["hostile_clients"]) == (1, 32, 10)


def test_a_draft_is_not_overwritten(call: Call, signed: Path) -> None:
    assert call("task", "new", signed.with_name("draft.toml"))[0] == 10


def test_the_pinned_signer_must_be_the_signer(call: Call, signed: Path, design_keys: DesignKeys) -> None:
    signer = design_keys.signing.public_key().public_bytes_raw().hex()
    assert call("task", "show", signed, "--signer", signer)[0] == 0
    assert call("task", "show", signed, "--signer", "00" * 32)[0] == 13
    assert call("task", "show", signed, "--signer", "xyz")[0] == 10


def test_every_changed_byte_is_found(call: Call, signed: Path) -> None:
    raw = signed.read_bytes()
    for place in range(0, len(raw), 61):
        signed.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        assert call("task", "show", signed)[0] == 13, place
    assert call("task", "show", signed.with_name("missing"))[0] == 13


@pytest.mark.parametrize(
    ("policy", "code", "word"),
    [
        ("least_contributors = 100\n", 0, "allows"),
        ("least_contributors = 201\n", 14, "least_contributors = 200"),
        ("least_sampling_interval = 20_000\n", 14, "least_sampling_interval = 10000"),
        ('allowed_counters = ["queue_delay"]\n', 14, '"duration"'),
        ("least_contributers = 100\n", 10, "Did you mean 'least_contributors'"),
    ],
)
def test_the_owner_s_policy_decides(call: Call, signed: Path, policy: str, code: int, word: str) -> None:
    path = signed.with_name("policy.toml")
    path.write_text(policy)
    ended, _, err = call("task", "show", signed, "--policy", path)
    assert ended == code
    assert word in err


def test_a_rotated_key_keeps_the_signer_and_is_a_new_task(call: Call, signed: Path) -> None:
    old, new = signed.with_name("keys"), signed.with_name("keys-2")
    assert call("keys", "rotate", old, new)[0] == 0
    before, after = read_keys(old), read_keys(new)
    assert before.paillier.public_key != after.paillier.public_key
    assert before.signing.private_bytes_raw() == after.signing.private_bytes_raw()

    ids = {
        call("task", "sign", signed.with_name("draft.toml"), "--keys", keys, "--out", signed)[1]
        for keys in (old, new)
    }
    assert len(ids) == 2


@pytest.fixture
def gateway(signed: Path) -> Iterator[str]:
    """A gateway with the task; its address."""
    with serving(application(Intake(signed.read_bytes(), OneShard(), most_reports=1))) as url:
        yield url


def test_a_fetched_task_is_written_when_the_pinned_signer_signed_it(
    call: Call, signed: Path, gateway: str, design_keys: DesignKeys
) -> None:
    task_id = verify(signed.read_bytes()).task_id.hex()
    signer = design_keys.signing.public_key().public_bytes_raw().hex()
    got = signed.with_name("got.task")
    for pin, code in ((["--signer", "00" * 32], 13), ([], 13), (["--signer", signer], 0)):
        assert not got.exists()
        ended, _, err = call("task", "fetch", f"{gateway}/tasks/{task_id}", "-o", got, *pin)
        assert (ended, "remedy: " in err) == (code, code != 0), err
    assert got.read_bytes() == signed.read_bytes()


def test_a_demo_may_be_fetched_without_a_pin_and_what_is_not_there_is_said(
    call: Call, signed: Path, design_keys: DesignKeys
) -> None:
    demo = msgspec.structs.replace(verify(signed.read_bytes()), demo=True)
    raw = sign(demo, design_keys.signing).encode()
    got = signed.with_name("got.task")
    with serving(application(Intake(raw, OneShard(), most_reports=1))) as url:
        assert call("task", "fetch", f"{url}/tasks/{'00' * 32}", "-o", got)[0] == 40
        assert call("task", "fetch", url, "-o", got)[0] == 10
        assert call("task", "fetch", f"{url}/tasks/xyz", "-o", got)[0] == 10
        assert call("task", "fetch", f"{url}/tasks/{demo.task_id.hex()}", "-o", got)[0] == 0
    assert got.read_bytes() == raw
