"""A shard in a process of its own, for tests that kill it: run with socket, journal and task paths."""

from __future__ import annotations

import sys
from multiprocessing.connection import Listener
from pathlib import Path

from penrose_ray.actors.shard import Shard
from penrose_ray.aggregate.moving import Placement
from penrose_ray.aggregate.routing import BUCKETS
from penrose_ray.types import BucketId


def serve(socket: Path, journal: Path, task: Path) -> None:
    shard = Shard(journal, task.read_bytes())
    shard.settle(Placement(1, frozenset(BucketId(bucket) for bucket in range(BUCKETS))))
    with Listener(str(socket), family="AF_UNIX") as listener, listener.accept() as connection:
        while True:
            try:
                method, arguments = connection.recv()
            except EOFError:
                return
            connection.send(getattr(shard, method)(*arguments))


if __name__ == "__main__":
    serve(*(Path(argument) for argument in sys.argv[1:4]))
