"""Calling commands in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penrose_ray.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `penrose ARGUMENTS`: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["penrose", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run
