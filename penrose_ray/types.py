"""Identifiers that cross module edges."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", bytes)
"""32 bytes: SHA-256 of the task's canonical encoding."""

ReportId = NewType("ReportId", bytes)
"""32 bytes: SHA-256 of the spent token, random where a task has no tokens."""

ClassId = NewType("ClassId", bytes)
"""16 random bytes: one snippet class of one task and GPU model, all that the design server sees of it."""

BucketId = NewType("BucketId", int)
"""0 to 255: the unit of placement on shards, a function of the report id."""

BatchId = NewType("BatchId", int)
"""Number of a collection interval: floor(creation time / batch length)."""
