"""Files of every format that a recording can have, 120 launches each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from capture.rigs.base import Rig
from capture.rigs.writers import WRITERS, Written

from penrose_ray.capture.replay import ReplaySource

if TYPE_CHECKING:
    from penrose_ray.capture.source import EventSource

LAUNCHES = 120


class Recorded(Rig):
    live = False
    sees_ends = True
    format: ClassVar[str]
    cut_bytes: ClassVar = 12
    """So many bytes less end the file in the middle of its last launch."""
    salvaged: ClassVar[int | None] = LAUNCHES - 1
    """Launches that such a file still yields."""

    def make(self) -> EventSource:
        self.path = self.folder / "recording"
        WRITERS[self.format](self.path, [Written(number) for number in range(1, LAUNCHES + 1)])
        return ReplaySource(self.path)

    def cut_short(self, count: int) -> int | None:
        del count
        self.path.write_bytes(self.path.read_bytes()[: -self.cut_bytes])
        return self.salvaged

    def repeat(self, count: int) -> int:
        self.path.unlink()
        launches = [Written(number) for number in range(1, count + 1) for _ in range(2)]
        WRITERS[self.format](self.path, launches)
        return count


class Kineto(Recorded):
    format = "kineto"


class Ncu(Recorded):
    format = "ncu"


class RocprofCsv(Recorded):
    format = "rocprof-csv"


class ComputeCsv(Recorded):
    format = "compute-csv"


class RocprofJson(Recorded):
    format = "rocprof-json"
    salvaged = None


class Xplane(Recorded):
    format = "xplane"
    salvaged = None


class _Sqlite(Recorded):
    cut_bytes = 2000
    salvaged = None


class Nsys(_Sqlite):
    format = "nsys"


class Rpd(_Sqlite):
    format = "rpd"


class ComputeSqlite(_Sqlite):
    format = "compute-sqlite"
