"""What a tool is: three hooks around the ranks of a run, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from penrose_ray.capture.tools.trace import Trace


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to try, what speaks for it, and how sure the tool is."""

    text: str
    evidence: str
    confidence: float
    """0 to 1: the chance, by the tool's own judgement, that following the advice helps."""

    def __post_init__(self) -> None:
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"a confidence lies between 0 and 1, not at {self.confidence}")


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """What one tool found in a run: a table with the tool's columns, single figures, advice, notes."""

    tool: str
    frame: pd.DataFrame
    figures: Mapping[str, float] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    """What the tool could not see in these files."""


class Tool(ABC):
    """Looks at the ranks of a run one after the other; the caller drops each rank afterwards.

    A tool keeps only what it needs for its result, so that memory stays that of one rank.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """Columns of its table, also when nothing was found."""
    secret: ClassVar[tuple[str, ...]] = ("rank",)
    """Columns whose text tells what runs here; `--redact` gives them pseudonyms."""
    blind_to: ClassVar[str]
    """What it cannot see, for the documentation."""

    def begin(self) -> None:  # noqa: B027 - a hook that may stay as it is
        """First hook: forget an earlier run."""

    @abstractmethod
    def visit(self, trace: Trace) -> None:
        """Second hook: look at one rank."""

    @abstractmethod
    def finish(self) -> Findings:
        """Third hook: what was found in all ranks."""

    @final
    def run(self, traces: Iterable[Trace]) -> Findings:
        """All three hooks in their order."""
        self.begin()
        for trace in traces:
            self.visit(trace)
        return self.finish()

    def frame(self, rows: Sequence[Mapping[str, Any]], *, sort_by: str = "") -> pd.DataFrame:
        """Rows as a table with exactly this tool's columns, the largest of `sort_by` first."""
        import pandas as pd  # noqa: PLC0415 - half a second that a listing of tools does not need

        table = pd.DataFrame(list(rows), columns=list(self.columns))
        if sort_by and len(table):
            table = table.sort_values(sort_by, ascending=False, kind="stable")
        return table.reset_index(drop=True)
