"""The spool against a model, a crash, a thief and a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penrose_ray.clock import ManualClock
from penrose_ray.errors import KeyPermissionError, RefusedReportError, SpoolError, TransportError
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.queue import MemoryQueue
from penrose_ray.transport.spool import MOST_AGE_S, Spool, spool_key
from penrose_ray.transport.uploader import StuckError

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(32))
RECORD = bytes(range(256)) * 16
PAGE_BYTES = 16_384
SEALED_BYTES = len(RECORD) + 12 + 8 + 16


def records(spool: Spool, now_s: float = 0.0) -> list[bytes]:
    found = []
    while waiting := spool.first(now_s):
        found.append(waiting.record)
        spool.remove(waiting.number)
    return found


def test_what_was_put_is_there_after_a_restart(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        for text in (b"1", b"2", b"3"):
            spool.put(text, 0.0)
        first = spool.first(0.0)
        assert first is not None
        spool.remove(first.number)

    with Spool(tmp_path / "spool", KEY) as again:
        assert len(again) == 2
        assert records(again) == [b"2", b"3"]
        assert len(again) == 0


WRITER = """
import sys
from pathlib import Path
from penrose_ray.transport.spool import Spool
spool = Spool(Path(sys.argv[1]), bytes(range(32)))
for number in range(10**6):
    spool.put(number.to_bytes(4, "big") * 1024, 0.0)
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_had_kept(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "spool"], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) >= 20:
            writer.send_signal(signal.SIGKILL)
            break
    kept = 21 + len(writer.stdout.readlines())
    writer.wait()
    writer.stdout.close()

    with Spool(tmp_path / "spool", KEY) as spool:
        found = records(spool)
    assert kept <= len(found) <= kept + 1, "a record in flight may be there or not"
    assert found == [number.to_bytes(4, "big") * 1024 for number in range(len(found))]


def test_past_its_bytes_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY, most_bytes=3 * SEALED_BYTES) as spool:
        for number in range(5):
            spool.put(bytes([number]) + RECORD[1:], 0.0)
        assert (len(spool), spool.dropped) == (3, 2)
        assert [record[0] for record in records(spool)] == [2, 3, 4]


def test_the_file_stays_bounded_however_much_passes_through(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY, most_bytes=20 * SEALED_BYTES) as spool:
        for _ in range(200):
            spool.put(RECORD, 0.0)
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 2 * 20 * SEALED_BYTES + (1 << 17)


def test_a_record_older_than_36_hours_is_dropped_not_sent(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(b"old", 0.0)
        spool.put(b"new", 100.0)
        assert spool.first(MOST_AGE_S) is not None
        waiting = spool.first(MOST_AGE_S + 1.0)
        assert waiting is not None
        assert (waiting.record, spool.dropped, len(spool)) == (b"new", 1, 1)


def test_a_record_that_others_go_before_keeps_its_age(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(b"stuck", 0.0)
        spool.put(b"next", MOST_AGE_S)
        spool.put_behind(1)
        assert records(spool, MOST_AGE_S + 1) == [b"next"]
        assert (len(spool), spool.dropped) == (0, 1)


def test_a_clock_that_was_set_back_drops_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(b"1", 1e9)
        assert spool.first(0.0) is not None


def test_the_file_holds_nothing_in_the_clear_and_is_private(tmp_path: Path) -> None:
    marker = b"a signature that gives its application away"
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(marker * 90, 0.0)
        assert all(marker not in each.read_bytes() for each in tmp_path.iterdir())
        modes = {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert modes == {0o600}


def test_another_key_is_refused_with_the_count_and_drops_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(b"1", 0.0)
        spool.put(b"2", 0.0)
    with pytest.raises(SpoolError, match="None of the 2 reports") as caught:
        Spool(tmp_path / "spool", bytes(32))
    assert "Restore the key" in caught.value.remedy
    with Spool(tmp_path / "spool", KEY) as spool:
        assert records(spool) == [b"1", b"2"]


def test_a_lost_key_is_not_replaced_while_reports_wait_for_it(tmp_path: Path) -> None:
    path, file = tmp_path / "spool.key", tmp_path / "spool"
    key = spool_key(path, file)
    with Spool(file, key) as spool:
        spool.put(b"1", 0.0)
        spool.put(b"2", 0.0)
    path.rename(tmp_path / "backup")
    with pytest.raises(SpoolError, match="the 2 reports"):
        spool_key(path, file)
    assert not path.exists()
    (tmp_path / "backup").rename(path)
    with Spool(file, spool_key(path, file)) as spool:
        assert records(spool) == [b"1", b"2"]
        for number in (1, 2):
            spool.remove(number)
    path.unlink()
    assert spool_key(path, file) != key, "nothing waits: a new one does"


def test_a_changed_or_moved_row_is_dropped_and_the_next_one_sent(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        for text in (b"1", b"2", b"3"):
            spool.put(text, 0.0)
    with sqlite3.connect(tmp_path / "spool") as db:
        db.execute("UPDATE waiting SET sealed = x'00' WHERE number = 1")
        db.execute(
            "UPDATE waiting SET sealed = (SELECT sealed FROM waiting WHERE number = 3) WHERE number = 2"
        )
    db.close()
    with Spool(tmp_path / "spool", KEY) as spool:
        assert records(spool) == [b"3"]
        assert spool.dropped == 2


def cells_of(path: Path) -> dict[int, int]:
    """Where each record of 4 KiB begins in the file; its number is the byte five before."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT number, sealed FROM waiting").fetchall()
    raw = path.read_bytes()
    return {number: raw.index(sealed) for number, sealed in rows}


def test_a_row_out_of_order_is_the_spools_error_and_no_endless_loop(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with Spool(path, KEY) as spool:
        for _ in range(5):
            spool.put(RECORD, 0.0)
    raw = bytearray(path.read_bytes())
    at = cells_of(path)[1] - 5
    assert raw[at] == 1
    raw[at] = 127  # on the first page, where no such number is looked for
    path.write_bytes(raw)
    with Spool(path, KEY) as spool:
        outbox = Outbox(DirectUploader(lambda _: None), ManualClock(), queue=spool)
        assert not outbox.flush()
        assert isinstance(outbox.last_error, SpoolError)
        assert "not where it belongs" in outbox.last_error.message


def test_rows_that_are_gone_are_the_spools_error_and_no_endless_loop(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY, most_bytes=2 * SEALED_BYTES) as spool:
        for _ in range(2):
            spool.put(RECORD, 0.0)
        spool._db.execute("DELETE FROM waiting")
        spool._bytes += SEALED_BYTES
        with pytest.raises(SpoolError, match="are gone"):
            spool.put(RECORD, 0.0)


def test_a_spool_damaged_anywhere_is_the_spools_error_or_loses_what_lay_there(tmp_path: Path) -> None:
    path, damaged = tmp_path / "spool", tmp_path / "damaged"
    wanted = [bytes([number]) * 4096 for number in range(5)]
    with Spool(path, KEY) as spool:
        for each in wanted:
            spool.put(each, 0.0)
    raw, refused = path.read_bytes(), 0
    for page in range(0, len(raw), PAGE_BYTES):
        for place in (*range(0, 120, 7), *range(PAGE_BYTES - 130, PAGE_BYTES, 5)):
            changed = bytearray(raw)
            changed[page + place] ^= 1 + 37 * place % 255
            damaged.write_bytes(changed)
            damaged.with_name("damaged-wal").unlink(missing_ok=True)
            try:
                with Spool(damaged, KEY) as spool:
                    while found := spool.first(0.0):
                        assert found.record in wanted
                        spool.remove(found.number)
            except SpoolError:
                refused += 1
    assert refused > 20


def test_a_second_client_is_told_that_the_spool_is_in_use(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY), pytest.raises(SpoolError, match="locked") as caught:
        Spool(tmp_path / "spool", KEY)
    assert "other client" in caught.value.remedy


def test_what_is_no_spool_or_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(SpoolError, match="cannot be used"):
        Spool(tmp_path / "text", KEY)
    with sqlite3.connect(tmp_path / "newer") as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(SpoolError, match="version 9"):
        Spool(tmp_path / "newer", KEY)


def test_a_full_disk_drops_the_new_record_and_the_client_goes_on(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        outbox = Outbox(DirectUploader(lambda _: None), ManualClock(), queue=spool)
        outbox.put(RECORD)
        (pages,) = spool._db.execute("PRAGMA page_count").fetchone()
        spool._db.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(5):
            outbox.put(RECORD)
        assert isinstance(outbox.last_error, SpoolError)
        assert 1 <= outbox.counts.dropped < 5
        assert len(outbox) + outbox.counts.dropped == 6
        assert outbox.flush()


def test_a_disk_that_is_full_from_the_start_is_the_spools_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("penrose_ray.durable.os.fsync", full)
    with pytest.raises(SpoolError, match="No space left"):
        spool_key(tmp_path / "spool.key")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match="cannot be used"):
        Spool(tmp_path / "file" / "spool", KEY)


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "spool.key"
    key = spool_key(path)
    assert len(key) == 32
    assert spool_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(KeyPermissionError):
        spool_key(path)


def test_an_outage_of_the_service_and_restarts_of_the_client_lose_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    taken: list[bytes] = []
    tried: list[bytes] = []
    up = False

    def take(record: bytes) -> None:
        tried.append(record)
        if not up:
            raise TransportError("Down.", remedy="Wait.")
        taken.append(record)

    for hour in range(10):
        up = hour == 9
        with Spool(tmp_path / "spool", KEY) as spool:
            outbox = Outbox(DirectUploader(take), clock, queue=spool)
            outbox.put(bytes([hour]) + RECORD[1:])
            outbox.flush()
            clock.advance(3600.0)
            outbox.flush()
    assert taken == [bytes([hour]) + RECORD[1:] for hour in range(10)]
    assert set(tried[:18]) == {taken[0]}, "the same bytes, again and again"


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.binary(min_size=1, max_size=40)),
        st.tuples(st.just("send"), st.sampled_from(["ok", "down", "refused", "stuck"])),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


@given(actions=ACTIONS)
@hypothesis_settings(max_examples=25, deadline=None)
def test_it_behaves_as_the_queue_in_memory_and_survives_restarts(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    clock = ManualClock()
    answer: list[object] = ["ok"]
    got: list[list[bytes]] = [[], []]

    def taker(index: int) -> DirectUploader:
        def take(record: bytes) -> None:
            if answer[0] == "down":
                raise TransportError("Down.", remedy="Wait.")
            if answer[0] == "refused":
                raise RefusedReportError("No.", remedy="Nothing.")
            if answer[0] == "stuck":
                raise StuckError("Failed with 507.", remedy="Later.")
            got[index].append(record)

        return DirectUploader(take)

    memory = MemoryQueue(10**6)
    model = Outbox(taker(0), clock, queue=memory)
    spool = Spool(path, KEY)
    real = Outbox(taker(1), clock, queue=spool)
    for action, value in actions:
        clock.advance(60.0)
        if action == "put":
            model.put(value)  # type: ignore[arg-type]
            real.put(value)  # type: ignore[arg-type]
        elif action == "send":
            answer[0] = value
            assert model.flush() == real.flush()
        else:
            spool.close()
            spool = Spool(path, KEY)
            model = Outbox(taker(0), clock, queue=memory)
            real = Outbox(taker(1), clock, queue=spool)
        assert len(model) == len(real)
        assert got[0] == got[1]
    spool.close()


def test_a_spool_needs_no_more_files_than_its_own(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", KEY) as spool:
        spool.put(b"1", 0.0)
    assert {os.fspath(each.name) for each in tmp_path.iterdir()} <= {"spool", "spool-wal", "spool-shm"}
