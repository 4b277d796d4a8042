"""Tokens, releases, opening, proofs and the gatekeeper's part: one core, a 3,072-bit key.

The release is of 2,000 classes x 4 counter sets with noise; `--sums N` does fewer and scales the times, and
says so in `scaled_from`.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from benchmarks.harness import Contender, frozen_keys, machine, significant, take_turns
from penrose_ray.aggregate.arrival import PartialSum
from penrose_ray.aggregate.sums import id_checksum
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.opening import open_sums
from penrose_ray.release.budget import epsilon
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.release.issuing import IssuerKeys
from penrose_ray.release.ledger import read_lines
from penrose_ray.release.noise import discrete_gaussian
from penrose_ray.release.published import Prover
from penrose_ray.release.tokens import DAY_S, Asker, Verifier
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId, ReportId, TaskId

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

CLASSES, COUNTER_SETS = 2_000, 4
DAY = 20_000
TARGETS = {"tokens_per_s": 20_000, "release_s": 120, "open_s": 150, "proof_ms": 1}


def make_task(keys: DesignKeys, issuer_keys: bytes) -> Task:
    """A task with tokens, noise and four counters."""
    sets = tuple(
        CounterSet(f"c{n}", (Counter(f"c{n}", "ns", "test", "none"),), (Axis("log", 1.0, 1e9),))
        for n in range(COUNTER_SETS)
    )
    return Task(
        name="benchmark",
        demo=False,
        public_key=keys.paillier.public_key.to_bytes(),
        counter_sets=sets,
        rotation=(tuple(each.name for each in sets),),
        min_contributors=50,
        hostile_clients=1,
        noise_sigma=200_000.0,
        noise_epsilon=8.0,
        issuer_keys=issuer_keys,
    )


def tokens(task_id: bytes, keys: IssuerKeys, ring: bytes, rounds: int) -> dict[str, float | None]:
    """Tokens verified and signed a second."""
    asker = Asker(TaskId(task_id), ring, DAY)
    signer = keys.key(DAY)
    requests = [asker.request() for _ in range(64)]
    made = [asker.finish(each, signer.sign(each.blinded.request)).encode() for each in requests]
    verifier = Verifier(TaskId(task_id), ring)

    def verify() -> None:
        for raw in made:
            verifier.check(raw, created_s=DAY * DAY_S)

    def issue() -> None:
        for each in requests:
            signer.sign(each.blinded.request)

    timings = take_turns(
        [Contender("verify", verify, len(made)), Contender("issue", issue, len(requests))], rounds=rounds
    )
    return {
        "tokens_per_s": significant(1 / timings["verify"].median_s),
        "issue_per_s": significant(1 / timings["issue"].median_s),
    }


def parts_of(task: Task, encryptor: Encryptor, sums: int) -> list[PartialSum]:
    """Sums that pass the gate; their plaintext is N full histograms."""
    weight = task.reports_needed()
    bins = np.full(128, weight * task.samples_per_histogram // 128, np.int64)
    unfilled = weight * task.samples_per_histogram - int(bins.sum())
    blob = encryptor.encrypt(pack(Slots(bins, unfilled, weight), task.profile()))
    made = []
    for number in range(sums):
        ids = tuple(
            ReportId(hashlib.sha256(number.to_bytes(4, "big") + n.to_bytes(4, "big")).digest())
            for n in range(weight)
        )
        class_id = ClassId((number // COUNTER_SETS).to_bytes(16, "big"))
        made.append(
            PartialSum(
                class_id,
                number % COUNTER_SETS,
                BatchId(DAY),
                weight,
                blob,
                id_checksum(ids).to_bytes(32, "big"),
                ids=ids,
            )
        )
    return made


def release(task: Task, keys: DesignKeys, sums: int) -> dict[str, float | None]:
    """Gate, noise, re-randomise, sign and store; then open, prove, and decrypt a gatekeeper's part."""
    encryptor = Encryptor(task.key(), task.profile())
    parts = parts_of(task, encryptor, sums)
    scale = CLASSES * COUNTER_SETS / sums
    with TemporaryDirectory() as home:
        desk = Desk(Path(home), task, ManualClock((DAY + 5.0) * DAY_S), Path(home) / "ledger.key")
        encryptor.rerandomise(parts[0].blob)  # builds the tables
        epsilon([5.0], task.noise_delta)  # imports the accountant, and the next line the sampler
        discrete_gaussian(task.noise_sigma)
        start = time.process_time()
        handover = desk.release(BatchId(DAY), lambda: make(task, parts, lambda _: "GPU", encryptor))
        release_s = (time.process_time() - start) * scale
        start = time.process_time()
        opening = open_sums(task, handover.batch, handover.entries, keys.paillier)
        open_s = (time.process_time() - start) * scale
        if len(opening.sums) != sums:
            raise SystemExit(f"{len(opening.discarded)} sums did not open: {opening.discarded[0].error}")
        line = read_lines(desk.ledger_path.read_bytes())[-1]
        prover = Prover(line, desk.members_path(BatchId(DAY)).read_bytes())
    ids = [part.ids[0] for part in parts]
    start = time.process_time()
    for each in ids:
        prover.prove(each).check(each, signer=desk.signer)
    proof_ms = (time.process_time() - start) / len(ids) * 1e3
    return {
        "release_s": significant(release_s),
        "open_s": significant(open_s),
        "proof_ms": significant(proof_ms),
        "gatekeeper_share_ms": significant(share_ms(keys, task, handover.entries[0].blob)),
    }


def share_ms(keys: DesignKeys, task: Task, blob: bytes) -> float:
    """One party's part of one sum (two ciphertexts), with its proofs."""
    share = deal(keys.paillier, threshold=2, parties=3)[1]
    timing = take_turns([Contender("share", lambda: share.decrypt(blob, task.profile()))], rounds=3)["share"]
    return timing.median_s * 1e3


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print nothing but one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    parser.add_argument("--sums", type=int, default=CLASSES * COUNTER_SETS, help="sums of the release (8000)")
    given = parser.parse_args()
    keys = frozen_keys()
    issuer_keys = IssuerKeys.generate(DAY, 1)
    ring = issuer_keys.public().encode()
    task = make_task(keys, ring)
    result: dict[str, object] = {
        **tokens(task.task_id, issuer_keys, ring, given.rounds),
        **release(task, keys, given.sums),
    }
    if given.sums != CLASSES * COUNTER_SETS:
        result["scaled_from"] = given.sums
    result["targets"] = TARGETS
    if not given.json:
        for name, value in result.items():
            print(f"{name:<22} {value}")
    print(msgspec.json.encode({**result, "machine": machine()}).decode())


if __name__ == "__main__":
    main()
