"""A purse that ends abruptly before or after one of its writes: HOME URL CREDENTIAL STEP before|after.

HOME holds the task in `task` and tokens in `tokens.sqlite`; a token that was taken goes to `taken`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from penrose_ray.actors.parties import Party
from penrose_ray.actors.purse import Purse
from penrose_ray.clock import ManualClock
from penrose_ray.release.token_store import TokenStore
from penrose_ray.release.tokens import DAY_S
from penrose_ray.task import Task

DAY = 20_000


def main(home: Path, url: str, credential: str, step: str, when: str) -> None:
    real = getattr(TokenStore, step)

    def die(self: TokenStore, *arguments: object) -> object:
        if when == "after":
            found = real(self, *arguments)
            if step == "take":
                (home / "taken").write_bytes(found)
        os._exit(9)

    setattr(TokenStore, step, die)
    task = msgspec.msgpack.decode((home / "task").read_bytes()[1:], type=Task)
    clock = ManualClock(DAY * DAY_S + 50.0)
    purse = Purse(task, Party("issuer", url, bytes.fromhex(credential)), clock, home / "tokens.sqlite")
    purse.fill()
    purse.take(DAY)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
