"""When the fleet idles: by hour of day, from hourly batches or from the operator's own metrics."""

from __future__ import annotations

import pandas as pd

from penrose_ray.analyse.cells import set_with
from penrose_ray.analyse.fleet import bins_of, noise_of, thinning
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import above_noise, mean

_HOUR_S = 3600
_COLUMNS = {"time": "datetime64[s, UTC]", "busy": "float64"}


def busy_by_batch(frame: pd.DataFrame, *, gpus: int, sampling_interval: int) -> pd.DataFrame:
    """Share of the fleet's GPU time that is busy, a row an hour.

    A sample stands for `sampling_interval` launches of its batch's mean duration. Histograms that were not
    sent (too few samples, no token) are missing, so this is a lower bound of busy time.

    Args:
        frame: from `open_release(path, batches="each")` of a task with batches of one hour.
        gpus: GPUs enrolled in the task.
        sampling_interval: S of the task.

    Returns:
        time (start of the hour, UTC), busy (0 to 1).

    Raises:
        ConfigError: batches are not hours, or durations are missing.
    """
    if frame.attrs.get("batch_s") != _HOUR_S:
        raise ConfigError(
            f"Batches last {frame.attrs.get('batch_s')} s; hours of idling need batches of {_HOUR_S} s.",
            remedy="Sign a task with batch_s = 3600, or use the operator's metrics.",
        )
    name = set_with(frame, "duration")
    if name is None:
        raise ConfigError("The frame has no counter 'duration'.", remedy="Add it to the task's counter sets.")
    axis = counter_set_of(frame, name).axes[0]
    rows = frame[frame["counter_set"] == name]
    out = []
    for start, part in rows.groupby("batch_start"):
        weights = thinning(part)
        whole = part.assign(count=part["count"] * weights, noise_sigma=part["noise_sigma"] * weights)
        clear = above_noise(bins_of(whole), noise_of(whole))
        busy_s = mean(axis, clear) * clear.sum() * sampling_interval / 1e9 if clear.any() else 0.0
        out.append({"time": start, "busy": min(1.0, busy_s / (gpus * _HOUR_S))})
    return pd.DataFrame(out, columns=list(_COLUMNS)).astype(_COLUMNS)


def idle_by_hour(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean idle share by day of week and hour of day.

    Args:
        metrics: `time` (UTC) and `busy` (0 to 1), from `busy_by_batch` or the operator's monitoring.

    Returns:
        One row a day (Mon to Sun), one column an hour (0 to 23); NaN where nothing was measured.

    Raises:
        ConfigError: a column is missing, or busy is not a share.
    """
    if not {"time", "busy"} <= set(metrics.columns):
        raise ConfigError("Metrics need the columns time and busy.", remedy="Rename them.")
    if not metrics["busy"].dropna().between(0, 1).all():
        raise ConfigError("busy must be a share of 0 to 1.", remedy="Divide percentages by 100.")
    time = pd.to_datetime(metrics["time"], utc=True)
    idle = pd.DataFrame({"day": time.dt.day_of_week, "hour": time.dt.hour, "idle": 1 - metrics["busy"]})
    table = idle.pivot_table(index="day", columns="hour", values="idle", aggfunc="mean")
    table = table.reindex(index=range(7), columns=range(24))
    table.index = pd.Index(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], name="day")
    return table


def idle_between(metrics: pd.DataFrame, start_hour: int, end_hour: int) -> float:
    """Mean idle share from `start_hour` to before `end_hour` (UTC), such as 2 to 5."""
    time = pd.to_datetime(metrics["time"], utc=True)
    return float((1 - metrics.loc[time.dt.hour.between(start_hour, end_hour - 1), "busy"]).mean())
