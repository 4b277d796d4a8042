"""The key server's keys go on with each epoch, and it forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penrose_ray.clock import ManualClock
from penrose_ray.errors import ClockError, KeyFormatError, QuotaError
from penrose_ray.release.points import Points
from penrose_ray.snippet.key_server import EpochKeys, LocalKeyServer

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("voprf.ristretto", reason="the extra `oprf` is not installed")

EPOCH_S = 3_600
START_S = 1_000 * EPOCH_S + 5.0


def public_of(keys: EpochKeys) -> bytes:
    return bytes(keys.evaluator().public_key.serialize())


def test_each_epoch_has_its_key_however_often_the_server_was_asked(tmp_path: Path) -> None:
    keys = EpochKeys.generate(START_S, epoch_s=EPOCH_S)
    keys.write(tmp_path / "key")
    seen = []
    for hour in range(3):
        keys.advance(START_S + hour * EPOCH_S)
        keys.advance(START_S + hour * EPOCH_S)
        seen.append(public_of(keys))
    at_once = EpochKeys.read(tmp_path / "key")
    assert at_once.advance(START_S + 2 * EPOCH_S)

    assert len(set(seen)) == 3
    assert public_of(at_once) == seen[2]
    assert at_once.public() == keys.public()


def test_a_server_forgets_the_epochs_that_are_over(tmp_path: Path) -> None:
    path, clock = tmp_path / "key", ManualClock(START_S)
    keys = EpochKeys.generate(START_S, epoch_s=EPOCH_S)
    keys.write(path, passphrase=b"p")
    first = path.read_bytes()
    server = LocalKeyServer(
        keys,
        Points(tmp_path / "points.sqlite", per_epoch=1),
        clock,
        keep=lambda advanced: advanced.write(path, passphrase=b"p", replace=True),
    )
    before = server.current()
    assert path.read_bytes() == first
    clock.advance(EPOCH_S)
    after = server.current()

    assert (before.epoch, before.ends_s) == (1_000, 1_001 * EPOCH_S)
    assert after.public_key != before.public_key
    kept = EpochKeys.read(path, passphrase=b"p")
    assert kept.epoch == after.epoch
    with pytest.raises(ClockError, match="1000"):
        kept.advance(START_S)
    assert [each.name for each in tmp_path.glob("*key*")] == ["key"], "no copy of the old file is left"


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "key"
    EpochKeys.generate(START_S).write(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(KeyFormatError, match="damaged"):
        EpochKeys.read(path)


def test_points_stay_spent_after_a_restart_and_come_back_with_the_epoch(tmp_path: Path) -> None:
    points = Points(tmp_path / "points.sqlite", per_epoch=10)
    one, two = points.enrol("one"), points.enrol("two")
    points.spend(one, 7, 6)
    with pytest.raises(QuotaError, match="10 an epoch"):
        points.spend(one, 7, 5)
    points.spend(one, 7, 4)
    points.close()

    again = Points(tmp_path / "points.sqlite", per_epoch=10)
    with pytest.raises(QuotaError, match="10 an epoch"):
        again.spend(one, 7, 1)
    again.spend(two, 7, 10)
    again.spend(one, 8, 10)
    with pytest.raises(QuotaError, match="not enrolled"):
        again.spend(b"stranger", 8, 1)
    again.close()
