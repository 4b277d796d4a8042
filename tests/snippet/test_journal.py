from __future__ import annotations

import itertools
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError, JournalError, JournalVersionError
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.minhash import Signature
from penrose_ray.snippet.scheme import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEME = "g8-plain-v1"
GPU = "NVIDIA A100"


def signature_of(seed: int) -> Signature:
    return Signature(SCHEME, np.random.default_rng(seed).integers(0, 2**32, FUNCTIONS, dtype=np.uint32))


def close_to(signature: Signature, changed: int) -> Signature:
    values = signature.values.copy()
    values[:changed] += np.uint32(2)
    return Signature(SCHEME, values)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], ClassJournal]]:
    """Opens the journal, after closing the one that was open, with ids 1, 2, 3 ..."""
    numbers = itertools.count(1)
    journals: list[ClassJournal] = []

    def reopen() -> ClassJournal:
        for each in journals:
            each.close()
        journals.append(
            ClassJournal(
                tmp_path / "state" / "classes.sqlite",
                SCHEME,
                0.85,
                new_id=lambda size: next(numbers).to_bytes(size, "big"),
            )
        )
        return journals[-1]

    yield reopen
    for each in journals:
        each.close()


def test_a_new_signature_founds_a_class_and_a_near_one_joins_it(opened: Callable[[], ClassJournal]) -> None:
    journal, founder = opened(), signature_of(1)

    first, second, third = journal.match(
        [(GPU, founder), (GPU, close_to(founder, 10)), (GPU, signature_of(2))]
    )

    assert first == second != third
    assert first.snippet_hash == founder.digest()
    assert len(journal) == 2
    assert journal.classes() == [first, third]


def test_a_gpu_model_has_classes_of_its_own(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()

    first, second = journal.match([(GPU, signature_of(1)), ("NVIDIA H100", signature_of(1))])

    assert first.class_id != second.class_id
    assert (first.gpu_model, second.gpu_model) == (GPU, "NVIDIA H100")


def test_a_reopened_journal_knows_every_class_that_was_answered(opened: Callable[[], ClassJournal]) -> None:
    founded = opened().match([(GPU, signature_of(seed)) for seed in range(30)])

    journal = opened()

    assert journal.classes() == founded
    assert journal.match([(GPU, close_to(signature_of(seed), 5)) for seed in range(30)]) == founded


def test_merged_classes_stay_merged(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    kept, gone, last = journal.match([(GPU, signature_of(seed)) for seed in range(3)])

    journal.merge(kept.class_id, gone.class_id)
    journal.merge(last.class_id, kept.class_id)

    for _ in range(2):
        assert journal.match([(GPU, signature_of(seed)) for seed in range(3)]) == [last, last, last]
        assert [one.alias_of for one in journal.classes()] == [last.class_id, last.class_id, None]
        journal = opened()


def test_what_is_asked_for_again_is_done_once(opened: Callable[[], ClassJournal]) -> None:
    """A matcher that is killed before it answers is asked again by Ray."""
    journal = opened()
    founder, stranger = signature_of(0), close_to(signature_of(0), 12)
    old, _, other = journal.match([(GPU, founder), (GPU, stranger), (GPU, signature_of(1))])

    journal.merge(old.class_id, other.class_id)
    made = journal.split(old.class_id, stranger)
    journal = opened()
    journal.merge(old.class_id, other.class_id)

    assert journal.split(old.class_id, stranger) == made
    assert [each.class_id for each in journal.classes()] == [old.class_id, other.class_id, made.class_id]


def test_a_merge_is_undone_by_splitting_off_what_was_merged(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    kept, gone, more = journal.match([(GPU, signature_of(seed)) for seed in range(3)])
    for each in (gone, more):
        journal.merge(kept.class_id, each.class_id)

    assert journal.split(kept.class_id, signature_of(1)) == gone

    for _ in range(2):
        near = [(GPU, close_to(signature_of(seed), 5)) for seed in range(3)]
        assert journal.match(near) == [kept, gone, kept]
        journal = opened()


def test_a_snippet_that_founded_another_class_is_not_split_off(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    first, second, third = journal.match([(GPU, signature_of(seed)) for seed in range(3)])
    journal.merge(second.class_id, third.class_id)

    for seed in (0, 2):
        with pytest.raises(ConfigError, match="it is not split off"):
            journal.split(first.class_id, signature_of(seed))


def test_classes_that_cannot_be_merged_are_named(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    first, second, other = journal.match(
        [(GPU, signature_of(1)), (GPU, signature_of(2)), ("NVIDIA H100", signature_of(3))]
    )
    journal.merge(first.class_id, second.class_id)

    for kept, gone, reason in (
        (first.class_id, first.class_id, "cannot be merged"),
        (first.class_id, other.class_id, "cannot be merged"),
        (second.class_id, first.class_id, "There is no class"),
        (b"?" * 16, first.class_id, "There is no class"),
    ):
        with pytest.raises(ConfigError, match=reason):
            journal.merge(kept, gone)


def test_what_was_wrongly_joined_is_split_off(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    founder = signature_of(1)
    stranger = close_to(founder, 12)
    old, wrong = journal.match([(GPU, founder), (GPU, stranger)])
    assert wrong == old

    made = journal.split(old.class_id, stranger)

    further = Signature(SCHEME, stranger.values.copy())
    further.values[-12:] += np.uint32(2)
    wanted = [(GPU, founder), (GPU, stranger), (GPU, further), (GPU, close_to(founder, 3))]
    assert journal.match(wanted) == [old, made, made, old]
    assert opened().match(wanted) == [old, made, made, old]


def test_an_alias_or_a_stranger_cannot_be_split(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    first, second = journal.match([(GPU, signature_of(1)), (GPU, signature_of(2))])
    journal.merge(first.class_id, second.class_id)

    for class_id in (second.class_id, b"?" * 16):
        with pytest.raises(ConfigError, match="There is no class"):
            journal.split(class_id, signature_of(3))


def test_a_signature_of_another_scheme_founds_nothing_and_neither_do_its_neighbours(
    opened: Callable[[], ClassJournal],
) -> None:
    journal = opened()
    other = Signature("g8-recurring-v1", signature_of(2).values)

    with pytest.raises(ConfigError, match="the task's is g8-plain-v1"):
        journal.match([(GPU, signature_of(1)), (GPU, other)])
    assert len(journal) == 0


def test_a_class_that_could_not_be_written_does_not_exist(
    opened: Callable[[], ClassJournal], tmp_path: Path
) -> None:
    journal = opened()
    (known,) = journal.match([(GPU, signature_of(1))])
    journal._database.execute("PRAGMA query_only = ON")

    with pytest.raises(JournalError, match="cannot be written"):
        journal.match([(GPU, signature_of(1)), (GPU, signature_of(2))])
    with pytest.raises(JournalError, match="cannot be written"):
        journal.split(known.class_id, signature_of(3))
    assert journal.classes() == [known]

    journal._database.execute("PRAGMA query_only = OFF")
    (made,) = journal.match([(GPU, signature_of(2))])
    assert opened().classes() == [known, made]
    assert (tmp_path / "state" / "classes.sqlite").exists()


def test_a_second_writer_is_refused(opened: Callable[[], ClassJournal], tmp_path: Path) -> None:
    opened().match([(GPU, signature_of(1))])

    with pytest.raises(JournalError, match="End its other writer"):
        ClassJournal(tmp_path / "state" / "classes.sqlite", SCHEME, 0.85, wait_s=0)


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "classes.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()

    with pytest.raises(JournalVersionError, match="schema 2, this program knows 1"):
        ClassJournal(path, SCHEME, 0.85)


def test_bytes_that_are_no_journal_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "classes.sqlite"
    path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(JournalError, match="cannot be used"):
        ClassJournal(path, SCHEME, 0.85)


def test_a_journal_of_another_scheme_is_refused(opened: Callable[[], ClassJournal], tmp_path: Path) -> None:
    opened().match([(GPU, signature_of(1))])
    opened().close()

    with pytest.raises(JournalError, match="does not fit the task"):
        ClassJournal(tmp_path / "state" / "classes.sqlite", "g8-mended-v1", 0.85)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE classes SET signature = randomblob(length(signature))",
        "UPDATE classes SET snippet_hash = randomblob(32)",
        "UPDATE classes SET alias_of = randomblob(16)",
    ],
)
def test_a_class_that_is_not_what_was_written_is_named(
    opened: Callable[[], ClassJournal], damage: str
) -> None:
    journal = opened()
    (made,) = journal.match([(GPU, signature_of(1))])
    with journal._database:
        journal._database.execute(damage)

    with pytest.raises(JournalError, match=f"class {made.class_id.hex()}"):
        opened()


def test_a_damaged_row_is_refused(opened: Callable[[], ClassJournal]) -> None:
    journal = opened()
    journal.match([(GPU, signature_of(1))])
    with journal._database:
        journal._database.execute("UPDATE classes SET signature = substr(signature, 2)")

    with pytest.raises(JournalError, match="has 400 bytes, not 399"):
        opened()
