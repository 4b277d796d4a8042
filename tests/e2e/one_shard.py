"""What a gateway asks for, answered by one matcher and one shard in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.actors.matcher import Matcher
    from penrose_ray.aggregate.arrival import Answer, Arrival
    from penrose_ray.aggregate.service import ShardService
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ReportId


class OneShard:
    """Its subclass makes the two; `fault` is raised instead of accepting."""

    matcher: Matcher
    shard: ShardService
    fault: Exception | None = None

    async def owner_of(self, _report_id: ReportId) -> str:
        return "only"

    async def refresh(self) -> None:
        raise AssertionError("nothing moves here")

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        return self.matcher.match(wanted)

    async def known(self, _shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        return self.shard.known(ids)

    async def accept(self, _shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        if self.fault:
            raise self.fault
        return self.shard.accept(arrivals)
