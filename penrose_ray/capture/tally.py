"""The running account behind `SourceHealth`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from penrose_ray.capture.events import SourceHealth

_MOST_WARNINGS = 20


@dataclass(slots=True)
class Tally:
    """Counts that a source moves; `snapshot` freezes them."""

    seen: int = 0
    delivered: int = 0
    dropped: int = 0
    bad_timestamps: int = 0
    gaps: int = 0
    duplicates: int = 0
    damaged: int = 0
    unread: int = 0
    late_arms: int = 0
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Note something once; past 20 texts only the counts go on."""
        if text not in self.warnings and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(text)

    def snapshot(self) -> SourceHealth:
        """The account now; what is neither delivered nor dropped is pending."""
        values = asdict(self)
        values["warnings"] = tuple(self.warnings)
        return SourceHealth(pending=self.seen - self.delivered - self.dropped, **values)
