"""Opening: sums of sealed reports become checked, decrypted rows and a Parquet file.

Nothing here holds a key: whoever can decrypt hands itself in as a `Decryptor`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.crypto.packing import check_sum, unpack
from penrose_ray.crypto.plain import plaintexts_of
from penrose_ray.durable import replace
from penrose_ray.errors import CiphertextError, PenroseError, SumRuleError, WrongKeyError
from penrose_ray.histogram import above_noise, marginal, median_of_means

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.histogram import CounterSet
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ClassId

FORMAT = "penrose-release"
FORMAT_VERSION = 2


class Decryptor(Protocol):
    """Whoever holds the private key."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key that it opens."""
        ...

    def decrypt_many(self, blobs: Sequence[bytes], profile: SlotProfile) -> list[tuple[int, ...]]:
        """Plaintexts of each blob."""
        ...


class SealedSum(Protocol):
    """A gated sum of reports, as the aggregation service hands it over."""

    @property
    def class_id(self) -> ClassId:
        """Snippet class."""
        ...

    @property
    def gpu_model(self) -> str:
        """GPU model of the class."""
        ...

    @property
    def counter_set(self) -> int:
        """Position in the task's counter_sets."""
        ...

    @property
    def weight(self) -> int:
        """Reports in the sum."""
        ...

    @property
    def blob(self) -> bytes:
        """The ciphertexts."""
        ...

    @property
    def sub_batch(self) -> int:
        """Number among the sums of one class and counter set."""
        ...

    @property
    def keep_share(self) -> float:
        """Share of the class' reports that the service kept under load."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """A decrypted histogram that obeys the sum rule."""

    class_id: ClassId
    gpu_model: str
    counter_set: CounterSet
    batch: BatchId
    reports: int
    real_reports: int
    samples: int
    counts: NDArray[np.int64]
    """128 counts; with noise some may be negative, which keeps their sums unbiased."""
    sub_batch: int = 0
    """Number among the sums of one (class, counter set, batch), which hold different reports."""
    keep_share: float = 1.0
    """Share of the class' reports that the service kept, the others being dropped at random under load."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """A sum that was handed over and not kept; nothing of its content is shown."""

    class_id: ClassId
    counter_set: str
    sub_batch: int
    error: PenroseError


@dataclass(frozen=True, slots=True)
class Opening:
    """What came out of one batch."""

    task: Task
    batch: BatchId
    sums: tuple[OpenedSum, ...]
    discarded: tuple[Discarded, ...]
    spent_epsilon: float = 0.0
    """What noisy releases of the task have spent, this batch included."""


def open_sums(
    task: Task,
    batch: BatchId,
    sums: Sequence[SealedSum],
    decryptor: Decryptor,
    *,
    spent_epsilon: float = 0.0,
) -> Opening:
    """Decrypt a batch's sums and check each against the sum rule.

    A sum that breaks the rule, or has too few real reports, is discarded and named; the others are kept, the
    other sub-batches of its class too.

    Raises:
        WrongKeyError: the task's key is not the decryptor's.
    """
    if task.key().fingerprint != decryptor.fingerprint:
        raise WrongKeyError(
            f"The release is sealed for key {task.key().fingerprint}, this key is {decryptor.fingerprint}.",
            remedy="Open it with the design server whose key the task names.",
        )
    opened: list[OpenedSum] = []
    discarded: list[Discarded] = []
    for sealed, plaintext in zip(sums, _plaintexts(task, sums, decryptor), strict=True):
        try:
            if isinstance(plaintext, CiphertextError):
                raise plaintext
            opened.append(_checked(task, batch, sealed, plaintext))
        except (CiphertextError, SumRuleError) as error:
            name = _set_name(task, sealed.counter_set)
            discarded.append(Discarded(sealed.class_id, name, sealed.sub_batch, error))
    return Opening(task, batch, tuple(opened), tuple(discarded), spent_epsilon)


def _plaintexts(
    task: Task, sums: Sequence[SealedSum], decryptor: Decryptor
) -> list[tuple[int, ...] | CiphertextError]:
    """Of all sums at once; one by one where a ciphertext among them is malformed."""
    try:
        if not task.profile().sealed:
            return [plaintexts_of(each.blob, task.profile()) for each in sums]
        return [*decryptor.decrypt_many([each.blob for each in sums], task.profile())]
    except CiphertextError as error:
        if len(sums) == 1:
            return [error]
    return [one for each in sums for one in _plaintexts(task, [each], decryptor)]


def least_real_reports(task: Task) -> int:
    """Fewest real reports of a sum that is kept; 1 in a demo, where k counts cover reports, too."""
    return task.real_reports_needed() if task.tokens_per_day else 1


def _set_name(task: Task, index: int) -> str:
    return task.counter_sets[index].name if 0 <= index < len(task.counter_sets) else f"#{index}"


def _checked(task: Task, batch: BatchId, sealed: SealedSum, plaintext: tuple[int, ...]) -> OpenedSum:
    if not 0 <= sealed.counter_set < len(task.counter_sets):
        raise SumRuleError(
            f"The sum is of counter set {sealed.counter_set}, the task has {len(task.counter_sets)}.",
            remedy="It is discarded; ask the service's operator.",
        )
    slots = unpack(plaintext, task.profile())
    noise = task.noise_offsets()
    check_sum(slots, weight=sealed.weight, samples_per_histogram=task.samples_per_histogram, noise=noise)
    counts = slots.bins - noise.bin
    if slots.real_reports < least_real_reports(task):
        raise SumRuleError(
            f"The sum has {slots.real_reports} real reports, {least_real_reports(task)} are needed.",
            remedy="It is discarded; wait for a batch with more contributors.",
        )
    return OpenedSum(
        class_id=sealed.class_id,
        gpu_model=sealed.gpu_model,
        counter_set=task.counter_sets[sealed.counter_set],
        batch=batch,
        reports=sealed.weight,
        real_reports=slots.real_reports,
        samples=int(counts.sum()),
        counts=counts,
        sub_batch=sealed.sub_batch,
        keep_share=sealed.keep_share,
    )


def robust_means(sums: Sequence[OpenedSum], noise_sigma: float = 0.0) -> list[float]:
    """Median of the means of sub-batches, a value for each counter, in its unit.

    Args:
        sums: the sub-batches of one class, counter set and batch.
        noise_sigma: the task's; bins that noise alone explains are left out of the means.

    Returns:
        NaN where no sub-batch has a sample; nothing for categories, whose numbers have no mean.
    """
    counter_set = sums[0].counter_set
    clear = [above_noise(each.counts, noise_sigma) for each in sums]
    return [
        median_of_means([marginal(counter_set, each, at) for each in clear], axis.centres())
        for at, axis in enumerate(counter_set.axes)
    ]


def write_parquet(openings: Iterable[Opening], path: Path) -> None:
    """Write openings as one Parquet file, whole or not at all, for everyone to read.

    One row a (batch, class, counter set, sub-batch); `bins` holds the 128 counts, `counters`, `axes` and
    `categories` say what they mean. The file's metadata carry format, version and, as `discarded`, a JSON
    list of the sums that were handed over and not kept. docs/analysis.md explains every column.
    """
    import pyarrow as pa  # noqa: PLC0415 - 120 ms that only a design server pays
    import pyarrow.parquet as pq  # noqa: PLC0415

    openings = list(openings)
    rows = [row for opening in openings for row in _rows(opening)]
    discarded = json.dumps([line for opening in openings for line in discarded_lines(opening)])
    table = pa.Table.from_pylist(rows, schema=_schema(discarded))
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content.getvalue(), mode=0o644)


def discarded_lines(opening: Opening) -> list[dict[str, object]]:
    """A plain record for each sum that was discarded: which and why, nothing of its content."""
    return [
        {
            "batch": opening.batch,
            "class_id": each.class_id.hex(),
            "counter_set": each.counter_set,
            "sub_batch": each.sub_batch,
            "code": each.error.code,
            "error": each.error.message,
        }
        for each in opening.discarded
    ]


def _rows(opening: Opening) -> list[dict[str, object]]:
    groups: dict[tuple[ClassId, str], list[OpenedSum]] = defaultdict(list)
    for each in opening.sums:
        groups[each.class_id, each.counter_set.name].append(each)
    means = {key: robust_means(group, opening.task.noise_sigma) for key, group in groups.items()}
    return [
        _row(opening, each) | {"robust_means": means[each.class_id, each.counter_set.name]}
        for each in opening.sums
    ]


def _row(opening: Opening, each: OpenedSum) -> dict[str, object]:
    task = opening.task
    return {
        "task_id": task.task_id.hex(),
        "task_name": task.name,
        "demo": task.demo,
        "batch": each.batch,
        "batch_start_s": each.batch * task.batch_s,
        "batch_s": task.batch_s,
        "min_contributors": task.min_contributors,
        "class_id": each.class_id.hex(),
        "gpu_model": each.gpu_model,
        "counter_set": each.counter_set.name,
        "counters": [
            {"name": one.name, "unit": one.unit, "source": one.source, "vendor": one.vendor}
            for one in each.counter_set.counters
        ],
        "axes": [
            {"scale": one.scale, "low": one.low, "high": one.high, "bins": one.bins}
            for one in each.counter_set.axes
        ],
        "categories": list(each.counter_set.categories),
        "reports": each.reports,
        "real_reports": each.real_reports,
        "samples": each.samples,
        "samples_per_histogram": task.samples_per_histogram,
        "sampling_interval": task.sampling_interval,
        "noise_sigma": task.noise_sigma,
        "spent_epsilon": opening.spent_epsilon,
        "sub_batch": each.sub_batch,
        "keep_share": each.keep_share,
        "estimated_samples": each.samples / each.keep_share,
        "bins": np.asarray(each.counts, np.int64),
    }


def _schema(discarded: str) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    counter = pa.struct([(name, text) for name in ("name", "unit", "source", "vendor")])
    axis = pa.struct([("scale", text), ("low", real), ("high", real), ("bins", whole)])
    fields: list[tuple[str, pa.DataType]] = [
        ("task_id", text),
        ("task_name", text),
        ("demo", pa.bool_()),
        ("batch", whole),
        ("batch_start_s", whole),
        ("batch_s", whole),
        ("min_contributors", whole),
        ("class_id", text),
        ("gpu_model", text),
        ("counter_set", text),
        ("counters", pa.list_(counter)),
        ("axes", pa.list_(axis)),
        ("categories", pa.list_(text)),
        ("reports", whole),
        ("real_reports", whole),
        ("samples", whole),
        ("samples_per_histogram", whole),
        ("sampling_interval", whole),
        ("noise_sigma", real),
        ("spent_epsilon", real),
        ("sub_batch", whole),
        ("keep_share", real),
        ("estimated_samples", real),
        ("robust_means", pa.list_(real)),
        ("bins", pa.list_(whole)),
    ]
    metadata = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "discarded": discarded}
    return pa.schema(fields, metadata=metadata)
