"""A client asks over HTTP for the ledger and for the proof that its report was released."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from release.conftest import Parts

from penrose_ray.actors.proofs import application
from penrose_ray.clock import ManualClock
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.release.ledger import check_chain, read_lines
from penrose_ray.release.published import Inclusion, read_members
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


@pytest.fixture
def desk(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Desk:
    task = make_task(min_contributors=5)
    parts = Parts(design_keys, task)
    desk = Desk(tmp_path, task, ManualClock(task.batch_s * 12.0), tmp_path / "keys" / "ledger.key")
    for batch in (7, 8):
        many = [parts.one("a", 5 + batch, batch=batch), parts.one("rare", 2, batch=batch)]
        desk.release(BatchId(batch), lambda many=many: make(task, many, lambda _: "GPU", parts.encryptor))
        desk.withheld = many[1].ids[0]  # type: ignore[attr-defined]
    return desk


def get(desk: Desk, *paths: str, classes: bool = False) -> list[tuple[int, bytes]]:
    async def asked() -> list[tuple[int, bytes]]:
        async with TestClient(TestServer(application(desk, classes=classes))) as client:
            answers = [await client.get(path) for path in paths]
            return [(answer.status, await answer.read()) for answer in answers]

    return asyncio.run(asked())


def test_the_ledger_is_there_and_each_batchs_reports_have_proofs(desk: Desk) -> None:
    ids = [read_members(desk.members_path(BatchId(batch)).read_bytes())[0][-1] for batch in (7, 8)]
    (status, raw), *proofs = get(desk, "/ledger", *(f"/proofs/{each.hex()}" for each in ids))
    assert status == 200
    entries = check_chain(read_lines(raw), signer=desk.signer)
    assert [entry.facts.batch for entry in entries] == [0, 7, 8]
    for report_id, (code, body), entry in zip(ids, proofs, entries[1:], strict=True):
        assert code == 200
        inclusion = msgspec.json.decode(body, type=Inclusion)
        inclusion.check(report_id, signer=desk.signer)
        assert inclusion.line.check(desk.signer) == entry


def test_reports_that_were_withheld_and_ids_that_are_none_are_named(desk: Desk) -> None:
    (missing, body), (wrong, _), (short, _) = get(
        desk, f"/proofs/{'77' * 32}", "/proofs/nonsense", "/proofs/77"
    )
    assert (missing, wrong, short) == (404, 400, 400)
    problem = msgspec.json.decode(body)
    assert (problem["title"], problem["remedy"]) == (
        "ledger",
        "Ask again after the report's batch is released.",
    )


def test_the_class_of_a_released_report_is_told_to_its_sender_where_the_operator_allows_it(
    desk: Desk,
) -> None:
    withheld: bytes = desk.withheld  # type: ignore[attr-defined]
    (released,) = read_members(desk.members_path(BatchId(7)).read_bytes())
    made = desk.releases.find(desk._task.task_id, BatchId(7))
    assert made is not None
    path = f"/classes/{released[3].hex()}"
    (status, body), (kept, unlike), (stranger, alike), (wrong, _) = get(
        desk, path, f"/classes/{withheld.hex()}", f"/classes/{'77' * 32}", "/classes/x", classes=True
    )
    assert status == 200
    expected = {"class_id": made.entries[0].class_id.hex(), "gpu_model": "GPU", "batch": 7}
    assert msgspec.json.decode(body) == expected
    assert (kept, stranger, wrong) == (404, 404, 400)
    assert unlike.replace(withheld.hex()[:16].encode(), b"") == alike.replace(b"77" * 8, b"")
    assert get(desk, path)[0][0] == 404
