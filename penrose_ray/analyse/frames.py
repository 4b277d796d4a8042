"""Releases as tidy, typed DataFrames.

A frame's `attrs` carry the facts of its task (demo, min_contributors, ...) and `counter_sets`, which says
what the bins mean; both survive filtering.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
import numpy as np
import pandas as pd

from penrose_ray.analyse.intervals import noisy_share
from penrose_ray.analyse.percentiles import PERCENTILES, percentile_along
from penrose_ray.analyse.released import Histograms, Paths, read_histograms
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS, CounterSet, above_noise, marginal, mean
from penrose_ray.kernel_names import KIND_COUNTER

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

LABEL_LENGTH = 8
"""Digits of a class id that stand for it in tables and figures."""
_MANY = 32_768
"""Texts from which on their codes no longer fit 16 bits."""
_ACCOUNT = (
    *("reports", "real_reports", "samples"),
    *("keep_share", "estimated_samples", "launches", "sub_batches"),
)
_COUNTER_FIELDS = ("name", "unit", "source", "vendor")


def open_release(
    path: Paths,
    *,
    batches: Literal["each", "sum"] = "each",
    labels: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """The opened histograms of a release, one row a (batch, class, counter set, bin).

    Args:
        path: the Parquet file of an opened release, or several files of one task, which are joined.
        batches: "each" keeps batches apart; "sum" adds them up, one row a (class, counter set, bin), with
            `batch` and `batch_start` of the first and `batch_end` of the last.
        labels: a file that `penrose label ask` wrote; `labels.json` beside the release, if there is one.

    Returns:
        task_id, task_name, demo, batch, batch_start, batch_end (UTC), class_id, label, gpu_model,
        counter_set, counter, unit, source, vendor, bin, low, high (closed-open edges in the counter's unit,
        -inf and inf at the open ends, NaN for categories), count, share (of the histogram's samples),
        share_low, share_high (95 %, of sampling and noise), noise_sigma (standard deviation of the noise in
        `count`), reports, real_reports, samples, keep_share (0 to 1: of the class' reports, what the service
        kept under load), estimated_samples (samples / keep_share: what all reports would have held), launches
        (of the class in the fleet: estimated_samples times the sampling interval), sub_batches (sums of
        different reports that were added), robust_mean (median of the sub-batches' means, in `unit`; NaN for
        categories), epsilon (that the task had spent); `category` for categorical sets; counter_2, unit_2,
        source_2, vendor_2, low_2, high_2 for the second axis of joint ones, and robust_mean_2 (in `unit_2`).

    Raises:
        ReleaseFormatError: not Parquet, not a release, of another format version, of several tasks, with bins
            that make no sense, or two files hold the same sum.
        ConfigError: the file of labels is missing, or none.
    """
    return tidy(read_histograms(path, batches=batches, labels=labels))


def class_table(path: Paths, *, labels: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """One row a (class, counter set), batches added up; a joint set has a row for each of its counters.

    Returns:
        class_id, label, gpu_model, counter_set, counter, unit, source, vendor, reports, real_reports,
        samples, keep_share, estimated_samples, launches, sub_batches (as in `open_release`), mean,
        robust_mean (median of the means of sub-batches, which a few hostile clients cannot move far), p50,
        p50_low, p50_high, p95, p95_low, p95_high (percentiles with their 95 % intervals, of bins that stand
        out of the noise; means and percentiles are in `unit`, NaN for categories), most_common (text of the
        fullest bin).

    Raises:
        ReleaseFormatError, ConfigError: as `open_release`.
    """
    return summarise(read_histograms(path, batches="sum", labels=labels))


def counter_set_of(frame: pd.DataFrame, name: str) -> CounterSet:
    """The counter set of a frame that `open_release` made.

    Raises:
        ConfigError: the frame has none of that name.
    """
    known: dict[str, str] = frame.attrs.get("counter_sets", {})
    if name not in known:
        raise ConfigError(
            f"The frame has no counter set {name!r}.",
            remedy=f"Use one of {', '.join(known) or 'none: it is not a frame of open_release'}.",
        )
    return _decoded(known[name])


@functools.lru_cache(maxsize=256)
def _decoded(text: str) -> CounterSet:
    return msgspec.json.decode(text, type=CounterSet)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dicts of plain values, for texts and tables of few rows."""
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def tidy(histograms: Histograms) -> pd.DataFrame:
    """One row a bin; see `open_release`."""
    rows, facts = histograms.rows, histograms.facts
    sets = [histograms.counter_sets[name] for name in rows["counter_set"].cat.categories]
    set_code = np.repeat(rows["counter_set"].cat.codes.to_numpy().astype(np.int64), BINS)
    rows = rows.assign(**_account(histograms))
    long = rows.loc[rows.index.repeat(BINS)].reset_index(drop=True)
    counters = _counter_columns(sets, set_code)
    columns: dict[str, Any] = {
        "task_id": _constant(facts["task_id"], len(long)),
        "task_name": _constant(facts["task_name"], len(long)),
        "demo": np.full(len(long), bool(facts["demo"])),
        **{name: long[name] for name in ("batch", "batch_start", "batch_end", "class_id")},
        "label": _labels(long["class_id"], histograms.names),
        **{name: long[name] for name in ("gpu_model", "counter_set")},
        **counters,
        **_edge_columns(sets, set_code),
        **_share_columns(histograms),
        **{name: long[name] for name in _ACCOUNT},
        "robust_mean": long["robust_mean"],
        **({"robust_mean_2": long["robust_mean_2"]} if "counter_2" in counters else {}),
        "epsilon": long["epsilon"],
    }
    frame = pd.DataFrame(columns)
    if any(each.categories for each in sets):
        unused = frame["category"].eq("") & frame["low"].isna() & frame["count"].eq(0)
        frame = frame[~unused].reset_index(drop=True)
    frame.attrs = _attributes(histograms)
    return frame


def _account(histograms: Histograms) -> dict[str, pd.Series[Any] | NDArray[np.int64]]:
    """What stands behind the counts of each row, beside `reports`, `real_reports` and `samples`."""
    rows = histograms.rows
    estimated = rows["estimated_samples"]
    return {
        "keep_share": rows["samples"] / estimated.where(estimated != 0),
        "estimated_samples": estimated,
        "launches": estimated * (histograms.facts["sampling_interval"] or 1),
        "sub_batches": histograms.added,
    }


def _attributes(histograms: Histograms) -> dict[Hashable, Any]:
    # as text: pandas copies the attrs deeply at every step
    sets = {name: msgspec.json.encode(one).decode() for name, one in histograms.counter_sets.items()}
    return {**histograms.facts, "counter_sets": sets}


def _categorical(codes: ArrayLike, texts: Sequence[str]) -> pd.Series[Any]:
    """Texts by code, a byte or two a row."""
    kind = pd.CategoricalDtype(pd.Index(list(texts), dtype="str"))
    numbers = cast("Sequence[int]", np.asarray(codes, np.int16 if len(texts) < _MANY else np.int64))
    return pd.Series(pd.Categorical.from_codes(numbers, dtype=kind))


def _constant(value: str | None, length: int) -> pd.Series[Any]:
    return _categorical(np.zeros(length), [value or ""])


def _labels(class_ids: pd.Series[Any], names: Mapping[str, str]) -> pd.Series[Any]:
    """Names, and short ids of classes without one; made longer until no two are the same."""
    whole = list(class_ids.cat.categories)
    length = LABEL_LENGTH
    while length < max(map(len, whole), default=0) and len({each[:length] for each in whole}) < len(whole):
        length += 1
    short = [each[:length] for each in whole]
    taken = Counter([*short, *(names[each] for each in whole if each in names)])
    texts = [
        id_ if not (name := names.get(each)) else name if taken[name] == 1 else f"{name} {id_}"
        for each, id_ in zip(whole, short, strict=True)
    ]
    return _categorical(class_ids.cat.codes, texts)


def _counter_columns(sets: list[CounterSet], set_code: NDArray[np.int64]) -> dict[str, pd.Series[Any]]:
    columns = {}
    for axis in range(max((len(each.counters) for each in sets), default=1)):
        for field in _COUNTER_FIELDS:
            texts = [
                getattr(each.counters[axis], field) if axis < len(each.counters) else "" for each in sets
            ]
            known = sorted(set(texts))
            name = ("counter" if field == "name" else field) + (f"_{axis + 1}" if axis else "")
            codes = np.array([known.index(each) for each in texts], np.int64)
            columns[name] = _categorical(codes[set_code], known)
    return columns


def _edge_columns(sets: list[CounterSet], set_code: NDArray[np.int64]) -> dict[str, Any]:
    bins = np.tile(np.arange(BINS), len(set_code) // BINS)
    columns: dict[str, Any] = {"bin": bins.astype(np.int16)}
    for axis in range(max((len(each.axes) for each in sets), default=1) or 1):
        edges = np.array([_bin_edges(each, axis) for each in sets]).reshape(-1, 2, BINS)
        suffix = f"_{axis + 1}" if axis else ""
        columns[f"low{suffix}"] = edges[set_code, 0, bins]
        columns[f"high{suffix}"] = edges[set_code, 1, bins]
    if any(each.categories for each in sets):
        texts = [each.labels() if each.categories else ("",) * BINS for each in sets]
        known = sorted({text for each in texts for text in each})
        codes = np.array([[known.index(text) for text in each] for each in texts])
        columns["category"] = _categorical(codes[set_code, bins], known)
    return columns


def _bin_edges(counter_set: CounterSet, axis: int) -> NDArray[np.float64]:
    """Low and high of all 128 bins along one axis, shape (2, 128); NaN where the set has no such axis."""
    if axis >= len(counter_set.axes):
        return np.full((2, BINS), np.nan)
    edges = np.concatenate(([-np.inf], counter_set.axes[axis].edges(), [np.inf]))
    places = np.indices([each.bins for each in counter_set.axes])[axis].ravel()
    return np.stack((edges[places], edges[places + 1]))


def _share_columns(histograms: Histograms) -> dict[str, Any]:
    counts, totals = histograms.counts, histograms.rows["samples"].to_numpy(np.int64)[:, None]
    sigma = (histograms.facts["noise_sigma"] or 0.0) * np.sqrt(histograms.added)[:, None]
    share, low, high = noisy_share(counts, totals, sigma)
    shares = {"share": share, "share_low": low, "share_high": high}
    noise = np.repeat(sigma, BINS)
    return {
        "count": counts.ravel(),
        **{key: each.ravel() for key, each in shares.items()},
        "noise_sigma": noise,
    }


def summarise(histograms: Histograms) -> pd.DataFrame:
    """One row a (class, counter set, counter) of histograms with batches added up; see `class_table`."""
    rows = histograms.rows.assign(**_account(histograms))
    columns = ["class_id", "gpu_model", "counter_set", *_ACCOUNT]
    robust = rows[["robust_mean", "robust_mean_2"]].to_numpy()
    sigma = (histograms.facts["noise_sigma"] or 0.0) * np.sqrt(histograms.added)
    clear = above_noise(histograms.counts, sigma)
    texts = {name: one.labels() for name, one in histograms.counter_sets.items()}
    out: list[dict[str, object]] = []
    labels = _labels(rows["class_id"], histograms.names).to_list()
    for place, values in enumerate(rows[columns].itertuples(index=False, name=None)):
        known = dict(zip(columns, values, strict=True))
        counter_set = histograms.counter_sets[known["counter_set"]]
        counts, kept = histograms.counts[place], clear[place]
        fullest = texts[known["counter_set"]][int(kept.argmax())] if kept.any() else ""
        for axis, counter in enumerate(counter_set.counters):
            typical = dict.fromkeys(_STATISTICS, float("nan"))
            if counter_set.axes and counter.name != KIND_COUNTER:
                middle, high = (
                    percentile_along(counter_set, counts, axis, share, float(sigma[place]))
                    for share in (0.5, 0.95)
                )
                average = mean(counter_set.axes[axis], marginal(counter_set, kept, axis))
                found = (average, float(robust[place, axis]), *middle, *high)
                typical = dict(zip(_STATISTICS, found, strict=True))
            fields = {field: getattr(counter, field) for field in _COUNTER_FIELDS}
            fields["counter"] = fields.pop("name")
            out.append({**known, "label": labels[place], "most_common": fullest, **fields, **typical})
    table = pd.DataFrame(out, columns=list(_TABLE_TYPES)).astype(_TABLE_TYPES)
    table.attrs = _attributes(histograms)
    return table


_STATISTICS = ("mean", "robust_mean", *PERCENTILES)
_TABLE_TYPES = {
    **dict.fromkeys(("class_id", "label", "gpu_model", "counter_set", "counter"), "str"),
    **dict.fromkeys(("unit", "source", "vendor"), "str"),
    **dict.fromkeys(("reports", "real_reports", "samples"), "int64"),
    **dict.fromkeys(("keep_share", "estimated_samples", "launches"), "float64"),
    "sub_batches": "int64",
    **dict.fromkeys(_STATISTICS, "float64"),
    "most_common": "str",
}
