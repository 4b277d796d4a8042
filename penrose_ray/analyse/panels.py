"""The report's parts that show data: findings, table of classes, figures with captions and texts."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penrose_ray.analyse import page
from penrose_ray.analyse.charts import interval_bars
from penrose_ray.analyse.figures import MOST_CLASSES, distribution, fleet_share, joint_use
from penrose_ray.analyse.fleet import fleet_shares
from penrose_ray.analyse.frames import counter_set_of, records
from penrose_ray.analyse.joint import QUADRANTS, joint_sets, quadrants
from penrose_ray.analyse.kinds import by_kind
from penrose_ray.analyse.svg import inline
from penrose_ray.analyse.theme import CLASSES
from penrose_ray.analyse.wording import NOTHING, interval, percent, plain_name, quantity, unit_apart, whole
from penrose_ray.kernel_names import KIND_COUNTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from penrose_ray.histogram import CounterSet

MOST_TABLE_CLASSES = 100
"""Classes in the table, the largest first; the release holds all."""
_HEAD = ("Counter", "Source", "Reports", "Real", "Samples")
_VALUES = {"mean": "Mean", "robust_mean": "Robust mean", "p50": "Median", "p95": "p95"}


def findings(table: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """HTML sentences with the first things to know."""
    shares = records(fleet_shares(frame))
    if not shares:
        return ["The release holds no sample: there is nothing to show."]
    first = shares[0]
    texts = [f"Class {_code(first['label'])} makes {percent(first['launch_share'])} of the launches."]
    busiest = max(shares, key=lambda each: float(each["time_share"]))
    if busiest["time_share"] > 0:
        also = "also takes" if busiest is first else "takes"
        texts.append(
            f"Class {_code(busiest['label'])} {also} most GPU time: {percent(busiest['time_share'])}."
        )
    durations = records(table[(table["counter"] == "duration") & (table["samples"] > 0)])
    if durations:
        longest = max(durations, key=lambda each: float(each["p95"]))
        texts.append(
            f"The longest kernels run in class {_code(longest['label'])}: one launch in twenty takes "
            f"{quantity(longest['p95'], longest['unit'])} or more."
        )
    for name in joint_sets(frame)[:1]:
        fleet = quadrants(frame, name)
        apart = fleet[(fleet["label"] == "all") & fleet["quadrant"].isin(["tensor only", "DRAM only"])]
        texts.append(
            f"In {percent(float(apart['share'].sum()))} of the samples memory or tensor cores work alone; "
            "overlapping them could save time there."
        )
    return texts


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def share_panel(frame: pd.DataFrame) -> str:
    """The figure of fleet shares."""
    shares = records(fleet_shares(frame).head(MOST_CLASSES))
    spoken = "; ".join(f"class {row['label']} {percent(row['launch_share'])} of launches" for row in shares)
    caption = (
        "A class's share of samples estimates its share of kernel launches; weighted with the mean duration, "
        "its share of GPU time."
    )
    figure = fleet_share(frame)
    return page.figure(inline(figure, name="share", alt=f"Bars. {spoken or 'No sample'}."), caption)


def class_panel(table: pd.DataFrame, order: Sequence[str], *, sub_batches: bool = False) -> str:
    """The table of classes, the largest first; with `sub_batches` it has the robust means, too."""
    if table.empty:
        return "<p>No class.</p>"
    values = [name for name in _VALUES if sub_batches or name != "robust_mean"]
    kept = ["keep_share"] if (table["keep_share"] < 1).any() else []
    head = (*_HEAD, *("Kept under load" for _ in kept), *(_VALUES[name] for name in values))
    shown = list(order[:MOST_TABLE_CLASSES])
    place = {label: index for index, label in enumerate(shown)}
    listed = table[table["label"].isin(shown)]
    listed = listed.assign(place=listed["label"].map(place)).sort_values("place", kind="stable")
    rows = [
        row
        for _, group in groupby(records(listed), key=lambda record: (record["place"], record["gpu_model"]))
        for row in _class_rows(table, list(group), [*kept, *values], len(head))
    ]
    left_out = f" The {len(shown)} largest of {len(order):,} are shown." if len(order) > len(shown) else ""
    caption = f"One row a class and counter, batches added up.{left_out} Percentiles have 95 % intervals."
    return page.table(head, rows, caption=caption, numbers=range(2, len(head)))


def _class_rows(
    table: pd.DataFrame, group: list[dict[str, Any]], columns: Sequence[str], width: int
) -> Iterator[str]:
    """A heading row with class and GPU model, then a row a counter."""
    place = group[0]["place"] % len(CLASSES) + 1
    yield (
        f'<tr class="group"><th colspan="{width}" scope="rowgroup">'
        f'<span class="dot" style="background:var(--class-{place})"></span>{_code(group[0]["label"])} '
        f"<span>{escape(group[0]['gpu_model'])}</span></th></tr>"
    )
    for record in group:
        yield _row(record, counter_set_of(table, record["counter_set"]), columns)


def _row(record: dict[str, Any], counter_set: CounterSet, columns: Sequence[str]) -> str:
    number = '<td class="number">'
    values = [name for name in columns if name in _VALUES]
    if counter_set.categories:
        typical = f'<td colspan="{len(values)}" class="number">mostly {escape(record["most_common"])}</td>'
    else:
        typical = "".join(f"{number}{_value(record, name, counter_set)}</td>" for name in values)
    counts = "".join(f"{number}{whole(record[name])}</td>" for name in ("reports", "real_reports", "samples"))
    if "keep_share" in columns:
        counts += f"{number}{percent(record['keep_share'])}</td>"
    unit = f"<small>{escape(unit_apart(record['unit'])[0])}</small>"
    return (
        f"<tr><td>{escape(plain_name(record['counter']))}{unit}</td><td>{escape(record['source'])}</td>"
        f"{counts}{typical}</tr>"
    )


def _value(record: dict[str, Any], name: str, counter_set: CounterSet) -> str:
    """A value, with its interval below it where it has one."""
    shown = _bounded(record, name, counter_set)
    if f"{name}_low" not in record:
        return shown
    ends = [_bounded(record, f"{name}{end}", counter_set) for end in ("_low", "_high")]
    return shown if shown == NOTHING else f"{shown}<br><small>{' to '.join(ends)}</small>"


def _bounded(record: dict[str, Any], name: str, counter_set: CounterSet) -> str:
    """A value; marked when it lies in an open-ended bin, of which only the edge is known."""
    value = float(record[name])
    counter = [each.name for each in counter_set.counters].index(record["counter"])
    axis = counter_set.axes[counter]
    sign = ""
    if not name.endswith("mean"):
        sign = "&ge; " if value >= axis.high else "&le; " if value <= axis.low else ""
    return sign + escape(quantity(value, unit_apart(record["unit"])[1]))


def distribution_panels(frame: pd.DataFrame) -> Iterator[str]:
    """A figure for every counter with an axis."""
    drawn = 0
    for name in frame.attrs["counter_sets"]:
        known = counter_set_of(frame, name)
        for axis, counter in enumerate(known.counters if known.axes else ()):
            if counter.name == KIND_COUNTER:
                continue
            drawn += 1
            figure = distribution(frame, name, axis)
            alt = f"Distribution of {counter.label} in each of the largest classes; the table has the values."
            yield page.figure(inline(figure, name=f"d{drawn}", alt=alt), _distribution_caption(frame))
    if not drawn:
        yield "<p>The release has no counter with a value axis.</p>"


def _distribution_caption(frame: pd.DataFrame) -> str:
    classes = frame["label"].nunique()
    shown = f" The {MOST_CLASSES} largest of {classes:,} classes." if classes > MOST_CLASSES else ""
    return f"Each row is scaled to its own peak. Solid line: median; dashed: 95th percentile.{shown}"


def kind_panel(frame: pd.DataFrame) -> str:
    """The fleet's launches, or its time where kinds carry durations, by kind of kernel."""
    table = by_kind(frame, fleet=True)
    basis = "time" if table["time_share"].notna().any() else "launch"
    said = {"time": "GPU time", "launch": "Launches"}[basis]
    names = {end: f"{basis}_share{end}" for end in ("", "_low", "_high")}
    figure = interval_bars(
        table,
        value=names[""],
        low=names["_low"],
        high=names["_high"],
        rows="kind",
        title=f"{said} by kind of kernel",
    )
    spoken = ", ".join(f"{row['kind']} {percent(row[names['']])}" for row in records(table))
    caption = "All classes together. The line at the end of a bar is the 95 % interval of sampling."
    return page.figure(inline(figure, name="kinds", alt=f"Bars. {said}: {spoken or 'none'}."), caption)


def joint_panel(frame: pd.DataFrame) -> str:
    """Heat map of the fleet and the quadrants of each class."""
    name = joint_sets(frame)[0]
    shares = quadrants(frame, name)
    fleet = records(shares[shares["label"] == "all"])
    spoken = ", ".join(f"{row['quadrant']} {percent(row['share'])}" for row in fleet)
    at = "".join(
        f" The lines stand at {row['dram_active']:.3g} and {row['tensor_active']:.3g}." for row in fleet[:1]
    )
    figure = inline(
        joint_use(frame, name), name="joint", alt=f"Heat map. Of all samples: {spoken or 'none'}."
    )
    caption = f"The darker, the more samples (opacity is the root of the share).{at}"
    return page.figure(figure, caption, narrow=True) + _quadrant_table(shares)


def _quadrant_table(shares: pd.DataFrame) -> str:
    kept = shares[shares["label"] != "all"].sort_values("samples", ascending=False, kind="stable")
    rows = []
    for (label, model), group in groupby(records(kept), key=lambda row: (row["label"], row["gpu_model"])):
        share = {row["quadrant"]: row for row in group}
        cells = "".join(
            f'<td class="number">{percent(share[each]["share"])}<br><small>'
            f"{interval(share[each]['share_low'], share[each]['share_high'])}</small></td>"
            for each in QUADRANTS
        )
        rows.append(f"<tr><td>{_code(label)}</td><td>{escape(model)}</td>{cells}</tr>")
    head = ("Class", "GPU model", *(f"{each[0].upper()}{each[1:]}" for each in QUADRANTS))
    caption = "Share of samples in each quadrant, with the 95 % interval of sampling."
    return page.table(head, rows[:MOST_CLASSES], caption=caption, numbers=range(2, len(head)))
