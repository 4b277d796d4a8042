"""`penrose report` on releases that a real desk handed over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from release.conftest import Parts

from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.labels import Label, add_labels
from penrose_ray.clock import ManualClock
from penrose_ray.opening import open_sums, write_parquet
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

    Call = Callable[..., tuple[int, str, str]]


class Released:
    """Batches 7 and 8, in a file each, and their ledger: 6 reports handed over a batch, 2 withheld."""

    def __init__(self, folder: Path, task: Task, keys: DesignKeys) -> None:
        self.task = task
        parts = Parts(keys, task)
        clock = ManualClock(task.batch_s * 12.0)
        desk = Desk(folder / "releases", task, clock, folder / "ledger.key")
        self.files = []
        for batch in map(BatchId, (7, 8)):
            many = [parts.one("a", 6, batch=batch), parts.one("rare", 2, batch=batch)]
            made = desk.release(batch, lambda many=many: make(task, many, lambda _: "GPU", parts.encryptor))
            self.files.append(folder / f"{batch}.parquet")
            write_parquet([open_sums(task, batch, made.entries, keys.paillier)], self.files[-1])
        self.ledger = desk.ledger_path
        self.signer = desk.signer.hex()


@pytest.fixture
def released(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Released:
    return Released(tmp_path, make_task(min_contributors=5), design_keys)


def test_several_releases_become_one_page(call: Call, tmp_path: Path, released: Released) -> None:
    out = tmp_path / "page" / "report.html"
    ledger = ("--ledger", released.ledger, "--signer", released.signer)
    code, printed, err = call("report", *released.files, "-o", out, *ledger)
    assert (code, printed) == (0, ""), err
    assert f"{out} written" in err
    text = out.read_text()
    assert "2 batches" in text
    assert "DEMO" in text
    assert "12 reports were added" in text
    assert "Coverage reached: <b>75.0 %</b>" in text  # 12 of 16
    assert "withheld 2 sums with 4 reports" in text
    assert "no epsilon is spent" in text
    assert len(text.encode()) < 3_000_000


def test_what_the_run_took_and_what_a_class_is_called(call: Call, tmp_path: Path, released: Released) -> None:
    frame = open_release(released.files)
    class_id = str(frame["class_id"].iloc[0])
    names = tmp_path / "names.json"
    task_id = released.task.task_id.hex()
    add_labels(names, [Label(task_id=task_id, class_id=class_id, gpu_model="GPU", name="resnet50 train")])
    run = tmp_path / "run.json"
    run.write_text(json.dumps({"seconds": {"open": 0.5}, "peak_pss_mb": 1234, "discarded": []}))
    out = tmp_path / "report.html"
    code, _, err = call("report", released.files[0], "-o", out, "--labels", names, "--run", run)
    assert code == 0, err
    text = out.read_text()
    assert "resnet50 train" in text
    assert f"<code>{class_id[:8]}</code>" not in text
    assert "1,234 MB" in text
    assert "withheld is not in this file" in text


def test_what_does_not_fit_together_is_named(
    call: Call,
    tmp_path: Path,
    released: Released,
    make_task: Callable[..., Task],
    design_keys: DesignKeys,
) -> None:
    first, second = released.files
    out = tmp_path / "r.html"
    other = Released(tmp_path / "other", make_task(min_contributors=4), design_keys)
    for arguments, wanted, text in (
        ([first, first], 62, "both hold batch 7"),
        ([first, other.files[0]], 62, "mixes tasks"),
        ([tmp_path / "none.parquet"], 62, "There is no file"),
        ([second, "--ledger", other.ledger], 65, "ledger of another task"),
        ([second, "--ledger", released.ledger, "--signer", "00" * 32], 65, "not signed"),
        ([second, "--ledger", released.ledger, "--signer", "zz"], 10, "not hexadecimal"),
        ([second, "--ledger-signer", "00" * 32], 10, "would not be used"),
        ([second, "--ledger", tmp_path / "none"], 10, "cannot be read"),
        ([second, "--run", first], 10, "not the summary of a run"),
        ([second, "--labels", tmp_path / "none"], 10, "There is no file"),
    ):
        code, _, err = call("report", *arguments, "-o", out)
        assert (code, text in err) == (wanted, True), (arguments, err)
    lines = released.ledger.read_bytes().splitlines(keepends=True)
    released.ledger.write_bytes(b"".join(lines[:-1]))
    code, _, err = call("report", second, "-o", out, "--ledger", released.ledger)
    assert (code, "has no entry for batch 8" in err) == (65, True), err
    assert not out.exists()
    assert call("report", first)[0] == 2, "-o is required"
