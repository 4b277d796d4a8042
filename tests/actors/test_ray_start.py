"""What is said when Ray does not come up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
import ray
from e2e.service_config import settings_in

from penrose_ray.actors.topology import build
from penrose_ray.errors import PlacementError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ("The current node timed out during startup. This could happen because ...", PlacementError),
        ("something that Ray never said before", RuntimeError),
    ],
)
def test_a_ray_too_slow_to_start_is_one_error_and_another_fault_keeps_its_own(
    tmp_path: Path,
    design_keys: DesignKeys,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    raised: type[Exception],
) -> None:
    def init(**_: object) -> NoReturn:
        raise RuntimeError(said)

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(raised) as caught:
        build(*settings_in(tmp_path, design_keys))
    if raised is PlacementError:
        assert "less busy" in str(caught.value)
