"""Numbers and counters as a reader wants them."""

from __future__ import annotations

import math

NOTHING = "\N{EN DASH}"
_TIME = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_LEAST_COUNT_SHORTENED = 100_000


def quantity(value: float, unit: str) -> str:
    """Three significant digits with their unit: `12.3 µs`, `38 %`, `1.2 M work-items/us`; a dash for NaN."""
    if math.isnan(value):
        return NOTHING
    if unit == "ns":
        for size, name in _TIME:
            if abs(value) >= size:
                return f"{_digits(value / size)} {name}"
    shown = plain_unit(unit)
    for size, prefix in _LARGE:
        if abs(value) >= size:
            return f"{_digits(value / size)} {prefix} {shown}".rstrip()
    return f"{_digits(value)} {shown}".rstrip()


def plain_unit(unit: str) -> str:
    """A unit as it is read: `work-items/us` is `work-items/µs`, and `1` is nothing."""
    return "" if unit == "1" else unit.removesuffix("/us") + ("/µs" if unit.endswith("/us") else "")


def unit_apart(unit: str) -> tuple[str, str]:
    """A unit for a heading and the one for its values: long units are said once."""
    return ("", unit) if unit in {"ns", "%", "1"} else (f" [{plain_unit(unit)}]", "1")


def _digits(value: float) -> str:
    if value and abs(value) < 0.001:  # noqa: PLR2004 - where an exponent is shorter
        return f"{value:.2g}"
    return f"{value:.0f}" if abs(value) >= 99.95 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def whole(value: float) -> str:
    """A count: `12,345`; `1.2 M` from a hundred thousand on."""
    if value < _LEAST_COUNT_SHORTENED:
        return f"{value:,.0f}"
    return quantity(value, "1")


def percent(share: float) -> str:
    """`61.4 %`; `< 0.1 %` where it would round to nothing; a dash for NaN."""
    if math.isnan(share):
        return NOTHING
    if 0 < share < 0.0005:  # noqa: PLR2004 - 0.05 %, which rounds to 0.1
        return "< 0.1 %"
    return f"{share:.1%}".replace("%", " %")


def interval(low: float, high: float) -> str:
    """`37.2 to 38.8 %`, with two decimals where the ends are within half a percent; a dash for NaN."""
    if math.isnan(low) or math.isnan(high):
        return NOTHING
    decimals = 1 if high - low >= 0.005 else 2  # noqa: PLR2004 - half a percent
    return f"{100 * low:.{decimals}f} to {100 * high:.{decimals}f} %"


def plain_name(counter: str) -> str:
    """`queue_delay` as a title: `Queue delay`."""
    words = counter.replace("_", " ").strip()
    words = words[:1].upper() + words[1:]
    return words.replace("Dram", "DRAM").replace("dram", "DRAM").replace("Gpu", "GPU").replace(" sm ", " SM ")
