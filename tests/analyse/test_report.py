from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.report import write_report
from penrose_ray.analyse.wording import quantity
from penrose_ray.errors import ReleaseFormatError, SumRuleError
from penrose_ray.opening import Discarded, Opening
from penrose_ray.types import ClassId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penrose_ray.histogram import CounterSet

VOID = {"meta", "br", "path", "use", "rect"}


class Page(HTMLParser):
    """Elements with attributes, ids, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def make_release(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
    kinds: CounterSet,
) -> Callable[..., Path]:
    def make(*, demo: bool = False, name: str = "fleet survey") -> Path:
        random = np.random.default_rng(11)
        sums = [
            opened(each, random.binomial(50 * (4 - number), 0.5, 128).astype(np.int64), name=number)
            for number in (1, 2, 3)
            for each in (duration, joint, kinds)
        ]
        return write_release(make_task(duration, joint, kinds, demo=demo, name=name), sums)

    return make


def written(release: Path, tmp_path: Path, **options: object) -> str:
    out = tmp_path / "out" / "report.html"
    write_report(release, out, **options)  # type: ignore[arg-type]
    assert [each.name for each in out.parent.iterdir()] == ["report.html"]
    return out.read_text(encoding="utf-8")


def test_one_file_that_needs_nothing_else(make_release: Callable[..., Path], tmp_path: Path) -> None:
    text = written(make_release(), tmp_path)
    page = Page(text)
    assert page.open == []
    assert not [tag for tag, _ in page.seen if tag in {"script", "link", "img", "iframe"}]
    for _, attributes in page.seen:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "@import" not in text
    assert "url(http" not in text
    assert len(text.encode()) < 3_000_000


def test_every_figure_has_an_alternative_text(make_release: Callable[..., Path], tmp_path: Path) -> None:
    page = Page(written(make_release(), tmp_path))
    figures = [attributes for tag, attributes in page.seen if tag == "svg"]
    assert len(figures) == 6  # fleet, duration, DRAM, tensor, joint, kinds
    for attributes in figures:
        assert attributes["role"] == "img"
        assert attributes["preserveaspectratio"] == "xMinYMid"
        assert len(attributes["aria-label"] or "") > 20


def test_ids_are_unique_and_every_reference_resolves(
    make_release: Callable[..., Path], tmp_path: Path
) -> None:
    text = written(make_release(), tmp_path)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(ids)


def test_what_was_kept_and_robust_means_are_shown_where_they_say_something(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    make_release: Callable[..., Path],
    duration: CounterSet,
    kinds: CounterSet,
    tmp_path: Path,
) -> None:
    usual, odd = np.zeros(128, np.int64), np.zeros(128, np.int64)
    usual[40], odd[127] = 1_000, 1_000
    sums = [
        dataclasses.replace(opened(one, counts), sub_batch=place, keep_share=0.25)
        for one in (duration, kinds)
        for place, counts in enumerate((usual, usual, odd))
    ]
    thinned = written(write_release(make_task(duration, kinds), sums), tmp_path)
    assert Page(thinned).open == []
    centre = quantity(duration.axes[0].centres()[40], "ns")
    for text in ("Kept under load", "25.0 %", "Robust mean", f">{centre}</td>", ">333 ms</td>"):
        assert text in thinned
    plain = written(make_release(), tmp_path)
    assert "Kept under load" not in plain
    assert "obust mean" not in plain
    assert re.search(r"<br><small>[\d.]+ \S+ to [\d.]+ \S+</small>", plain), "intervals of percentiles"


def test_demo_stands_in_the_title(make_release: Callable[..., Path], tmp_path: Path) -> None:
    demo = written(make_release(demo=True), tmp_path)
    assert "<title>fleet survey (DEMO)" in demo
    assert '<span class="badge">DEMO</span>' in demo
    assert "DEMO" not in written(make_release(), tmp_path)


def test_privacy_statement_has_the_numbers(make_release: Callable[..., Path], tmp_path: Path) -> None:
    text = written(make_release(), tmp_path, run={"coverage": 0.991})
    assert "k = 200" in text
    assert "adds 220 reports, 198 of them real" in text  # 3 classes x 3 sets, a tenth cover
    assert "1,980 reports were added, 1,782 of them real" in text
    assert "Cover rate 10.0 %" in text
    assert "no epsilon is spent" in text
    assert "Coverage reached: <b>99.1 %</b>" in text


def test_noise_and_what_was_discarded_are_stated(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    tmp_path: Path,
) -> None:
    task = make_task(duration, noise_sigma=28_197.0, sampling_interval=5_000)
    gone = Discarded(ClassId(bytes(16)), "duration", 0, SumRuleError("It breaks the rule.", remedy="None."))
    kept = opened(duration, np.full(128, 10**6))
    opening = Opening(task, kept.batch, (kept,), (gone,), spent_epsilon=1.75)
    text = written(write_release(task, [], opening), tmp_path)
    assert "Noise of standard deviation 28,197" in text
    assert "epsilon spent 1.75" in text
    assert "Discarded on opening: 1 sums" in text
    assert "samples one in 5,000" in text


def test_names_are_text_never_markup(make_release: Callable[..., Path], tmp_path: Path) -> None:
    text = written(make_release(name='<script>alert("x")</script>'), tmp_path)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_steps_of_the_run(make_release: Callable[..., Path], tmp_path: Path) -> None:
    text = written(make_release(), tmp_path, run={"seconds": {"open": 0.5}, "peak_pss_mb": 1810.4})
    assert "0.50 s" in text
    assert "1,810 MB" in text


def test_same_release_same_bytes(make_release: Callable[..., Path], tmp_path: Path) -> None:
    release = make_release()
    assert written(release, tmp_path) == written(release, tmp_path)


def test_empty_release_gives_a_report_that_says_so(
    make_task: Callable[..., Any], write_release: Callable[..., Path], tmp_path: Path
) -> None:
    text = written(write_release(make_task(), []), tmp_path)
    assert Page(text).open == []
    assert "there is nothing to show" in text


def test_not_a_release_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ReleaseFormatError):
        write_report(tmp_path / "none.parquet", tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_class_of_cover_reports_only_has_no_numbers_and_no_error(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
    kinds: CounterSet,
    tmp_path: Path,
) -> None:
    task, zero = make_task(duration, joint, kinds), np.zeros(128, np.int64)
    some = [opened(each, np.arange(128), name=1) for each in (duration, joint, kinds)]
    none = [opened(each, zero, name=2) for each in (duration, joint, kinds)]
    for sums in (some + none, none):
        text = written(write_release(task, sums), tmp_path)
        assert Page(text).open == []
        assert "nan" not in text.lower().replace("nano", "")


def test_noise_below_zero_is_drawn(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
    tmp_path: Path,
) -> None:
    noisy = np.rint(np.random.default_rng(15).normal(20, 40, 128)).astype(np.int64)
    assert (noisy < 0).any()
    sums = [opened(each, noisy, name=1) for each in (duration, joint)]
    assert Page(written(write_release(make_task(duration, joint), sums), tmp_path)).open == []
