"""A reference program as an enrolled client: its cover reports ask which classes it falls into.

Its snippets are cut and grouped by the code that every client runs, so its reports meet the class of the same
program elsewhere. They are cover reports: on the wire like any other, and they add no sample, so that a
program run on purpose does not stand in the fleet's histograms.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.actors.client import NOT_ENROLLED, Enrolled
from penrose_ray.capture.events import KernelKind
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.errors import ConfigError, QuotaError, SourceError
from penrose_ray.release.tokens import DAY_S
from penrose_ray.seal import Sealer, cover
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import scheme

if TYPE_CHECKING:
    from penrose_ray.capture.recording import Recording
    from penrose_ray.clock import Clock
    from penrose_ray.snippet.identity import Identity
    from penrose_ray.snippet.minhash import Signature
    from penrose_ray.task import Task
    from penrose_ray.wire import Report

MOST_REPORTS = 16
"""Reports of one reference run in a task without tokens."""


class ReferenceClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One class of the program's own snippets."""

    gpu_model: str
    share: float
    """Of the program's launches."""
    reports: tuple[str, ...]
    """Ids of the reports that ask for it, hexadecimal, one a counter set."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was sent, to be asked with later. Whoever has the ids can ask, too: keep it private."""

    version: int = 1
    task_id: str
    name: str
    classes: tuple[ReferenceClass, ...]


def reference_reports(
    recording: Recording,
    task: Task,
    name: str,
    *,
    clock: Clock,
    enrolled: Enrolled = NOT_ENROLLED,
) -> tuple[list[Report], Receipt]:
    """Cover reports for every class of a recording, the largest class first, as many as tokens pay for.

    Raises:
        SourceError: the recording has too few launches for one snippet, or the key server hides none.
        ConfigError: the task has tokens, and this client no issuer.
        QuotaError: there is no token left today.
    """
    tokens = enrolled.purse if task.tokens_per_day else None
    if task.tokens_per_day and tokens is None:
        raise ConfigError(
            "This task pays reports with tokens, and this client has no issuer.",
            remedy="Set issuer_url and credential_variable in the file of --enrolment.",
        )
    classes = _classes(recording, task, enrolled.identity)
    launches = sum(count for _, _, count in classes)
    day = int(clock.now_s() // DAY_S)
    left = tokens.left(day) if tokens else MOST_REPORTS
    if not left:
        raise QuotaError("There is no token left today.", remedy="Come back tomorrow.")
    encryptor = Encryptor(task.key(), task.profile())
    sets = _counter_sets(recording, task)
    reports: list[Report] = []
    found: list[ReferenceClass] = []
    for device, signature, count in classes:
        model = recording.devices[device]
        sealer = Sealer(task, model, encryptor)
        asked = sets[: left - len(reports)]
        mine = [
            sealer.seal(cover(at), signature, now_s=clock.now_s(), token=tokens.take(day) if tokens else b"")
            for at in asked
        ]
        reports += mine
        ids = tuple(each.report_id.hex() for each in mine)
        found.append(ReferenceClass(gpu_model=model, share=count / launches, reports=ids))
    receipt = Receipt(
        task_id=task.task_id.hex(), name=name, classes=tuple(each for each in found if each.reports)
    )
    return reports, receipt


def _counter_sets(recording: Recording, task: Task) -> list[int]:
    """Those that a client with this source reports about; all where the recording measured none of them."""
    measured = set(recording.counters)
    found = [at for at, each in enumerate(task.counter_sets) if measured.issuperset(each.counters)]
    return found or list(range(len(task.counter_sets)))


def _classes(recording: Recording, task: Task, identity: Identity) -> list[tuple[int, Signature, int]]:
    """Device, representative's signature and launches of each local class, the largest first."""
    batch = recording.batch
    launches = batch.take(batch.kind == KernelKind.KERNEL)
    cutter = SnippetCutter(task.snippet_launches, scheme(task.signature_scheme), identity)
    snippets = [*cutter.push(launches, recording.names), *cutter.finish()]
    if not snippets:
        raise SourceError(
            f"{len(launches)} launches make no snippet.",
            remedy="Let the program run longer, or record all of it.",
        )
    indexes: dict[int, SnippetIndex[int]] = {}
    sizes: Counter[tuple[int, int]] = Counter()
    for each in snippets:
        index = indexes.setdefault(each.device, SnippetIndex(task.signature_scheme, task.similarity))
        hit = index.find(each.signature)
        local = hit[0] if hit else len(index)
        if not hit:
            index.add(local, each.signature)
        sizes[each.device, local] += each.launches
    return [
        (device, indexes[device].representative(local), count)
        for (device, local), count in sizes.most_common()
    ]
