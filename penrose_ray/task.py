"""The task: what a design server asks of clients, immutable and signed.

A task is published once. Its id is the SHA-256 of its canonical encoding, so nobody can be shown other
parameters under the same id; any change, a rotated key too, is a new task. The word and the rule are DAP's
(draft-ietf-ppm-dap).
"""

from __future__ import annotations

import functools
import hashlib
import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from penrose_ray.accuracy import contributors_for
from penrose_ray.crypto.cipher import Cipher, cipher_of
from penrose_ray.crypto.packing import BINS, NO_NOISE, NoiseOffsets, SlotProfile, profile
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.errors import ConfigError, TaskError, naming
from penrose_ray.histogram import CounterSet
from penrose_ray.types import BatchId, TaskId

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT_VERSION = 2
CONTRIBUTOR_FLOOR = 50
"""Least k of a task that is not a demo."""
_DAY_S = 86_400
_HOUR_S = 3_600
_COVER_DEVIATIONS = 4
"""All but one sum in some 30,000 keep the real reports that the gate counts on."""
_NOISE_DEVIATIONS = 12
_IDENTITY_KEY_BYTES = 32
_X25519_BYTES = 32
_SIGNING_CONTEXT = b"penrose-ray task v1\x00"


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of one collection. The letters are those of the literature: S, L, O, H, k, r, c, m, q."""

    name: str
    """What people call the task."""
    demo: bool
    """A task for trying the system: no floor under k, no tokens needed; clients refuse it by default."""
    public_key: bytes
    """The Paillier key, as `PublicKey.to_bytes()`."""
    slot_profile: str = "std3072"
    """`std3072`, `std2048` or `compact3072`: key size and how bins lie in ciphertexts."""
    counter_sets: tuple[CounterSet, ...]
    """What is measured, a histogram each."""
    rotation: tuple[tuple[str, ...], ...]
    """Groups of counter sets; one group is watched at a time."""
    rotation_s: int = 3600
    """Seconds for which a group is watched."""
    samples_per_histogram: int = 10_000
    """H: samples of a full histogram."""
    sampling_interval: int = 10_000
    """S: one launch in S is sampled on average."""
    sampler: Literal["jitter", "paper"] = "jitter"
    """`jitter` draws each gap from U[1, 2S-1]; `paper` keeps the stride S."""
    offset_reset_s: int = 600
    """O: seconds after which the `paper` sampler draws a new offset."""
    snippet_launches: int = 10_000
    """L: launches of a snippet."""
    signature_scheme: str = "g8-mended-v1"
    """How kernel names become a signature."""
    similarity: float = 0.85
    """tau: least Jaccard similarity of two snippets of one class."""
    identity: Literal["plain", "keyed", "oprf"] = "plain"
    """`plain` grams, grams `keyed` by a key of the clients, or by a key server (`oprf`)."""
    identity_key: bytes = b""
    """`keyed`: SHA-256 of the name key; `oprf`: the key server's Ed25519 public key; `plain`: empty."""
    batch_s: int = 86_400
    """Length of a batch; a sum is released once a batch."""
    min_samples: int = 100
    """A histogram with fewer samples at the end of a batch is carried over once, then dropped."""
    reports_per_class: int = 1
    """r: reports a client may send per class, counter set and batch; 0 means no bound."""
    min_contributors: int = 200
    """k: honest contributors that a release must keep."""
    tokens_per_day: int = 32
    """c: tokens a client gets a day; 0 means no tokens, allowed in a demo only."""
    hostile_clients: int = 10
    """m: hostile enrolled clients assumed."""
    cover_rate: float = 0.1
    """q: share of reports that are cover reports."""
    noise_sigma: float = 0.0
    """Standard deviation of the discrete Gaussian noise on each bin; 0 is off."""
    noise_epsilon: float = 2.0
    """Epsilon of the privacy budget that all noisy releases share."""
    noise_delta: float = 1e-5
    """What all noisy releases of this task together may spend."""
    sub_batches: int = 1
    """Most parts into which a sum is handed over, each of which passes the gate by itself."""
    issuer_keys: bytes = b""
    """The token issuer's public keys, one a day (`release.tokens.KeyRing`); empty without tokens."""
    service_key: bytes = b""
    """The aggregation service's X25519 key, to which reports' tags are sealed; empty leaves them clear."""
    noise_target_error: float = 0.0
    """With noise: a sum is released, and budget spent, only where sigma is at most this share of an average
    bin; 0 releases whatever passes the gate."""

    def key(self) -> PublicKey:
        """The Paillier public key."""
        return _key_of(self.public_key)

    def profile(self) -> SlotProfile:
        """How bins lie in ciphertexts."""
        return profile(self.slot_profile)

    def cipher(self) -> Cipher:
        """How its reports add up."""
        return cipher_of(self.key(), self.profile())

    def capacity(self) -> int:
        """Most reports that one sum may hold, noise included."""
        return self.profile().capacity(self.samples_per_histogram, self.noise_offsets())

    def noise_offsets(self) -> NoiseOffsets:
        """What a noisy release adds to each bin slot, 12 sigma, and to `unfilled`, 12 sigma sqrt(128)."""
        if not self.noise_sigma:
            return NO_NOISE
        spread = _NOISE_DEVIATIONS * self.noise_sigma
        return NoiseOffsets(math.ceil(spread), math.ceil(spread * math.sqrt(BINS)))

    @property
    def tokens_per_batch(self) -> int:
        """Most tokens of one client that the reports of a batch can bear."""
        return self.tokens_per_day * days_of_batch(self.batch_s)

    def real_reports_needed(self, classes: int = 1) -> int:
        """Real reports, r k + m c, that leave k honest contributors in a sum however m hostile ones stuff it.

        A task without tokens (a demo) needs k reports and claims no more. r = 0 leaves only the tokens as a
        bound, so it counts as r = c. c is a day's tokens: a batch may see several days' worth. In a sum of
        several `classes` that were merged, a client may have r reports of each.
        """
        if not self.tokens_per_day:
            return self.min_contributors * classes
        tokens = self.tokens_per_batch
        most_a_client = min((self.reports_per_class or tokens) * classes, max(tokens, self.reports_per_class))
        return most_a_client * self.min_contributors + self.hostile_clients * tokens

    def reports_needed(self, classes: int = 1) -> int:
        """Fewest reports of a sum that may be opened: what the gate asks for and, with noise, the error."""
        return max(self._contributors_need(classes), self.reports_for(self.noise_target_error))

    def reports_for(self, relative_error: float) -> int:
        """Fewest reports with which one sigma of noise is `relative_error` of an average bin, N H / 128.

        0 asks for none. How many reports there are is public, so waiting for them spends no budget.
        """
        if not relative_error:
            return 0
        return contributors_for(self.noise_sigma, relative_error, self.samples_per_histogram)

    def _contributors_need(self, classes: int) -> int:
        """Least N with N (1 - q) - 4 sqrt(N q (1 - q)) >= r k + m c; just k in a task without tokens."""
        need = self.real_reports_needed(classes)
        if self.tokens_per_day == 0:
            return need
        real = 1 - self.cover_rate
        spread = _COVER_DEVIATIONS * math.sqrt(self.cover_rate * real)
        root = (spread + math.sqrt(spread * spread + 4 * real * need)) / (2 * real)
        reports = max(0, math.floor(root * root) - 2)
        while not self._enough(reports, need):
            reports += 1
        return reports

    def _enough(self, reports: int, need: int) -> bool:
        """The same inequality, exactly: both sides squared."""
        cover = Fraction(self.cover_rate)
        margin = reports * (1 - cover) - need
        return margin >= 0 and margin * margin >= _COVER_DEVIATIONS**2 * reports * cover * (1 - cover)

    def batch_of(self, time_s: float) -> BatchId:
        """Batch of a report created at `time_s` (seconds since the epoch)."""
        return BatchId(int(time_s // self.batch_s))

    def encode(self) -> bytes:
        """Canonical encoding: version byte, then MessagePack with the fields in declared order."""
        return bytes([FORMAT_VERSION]) + msgspec.msgpack.encode(self)

    @property
    def task_id(self) -> TaskId:
        """SHA-256 of the canonical encoding."""
        return TaskId(hashlib.sha256(self.encode()).digest())

    def check(self) -> None:
        """Raise ConfigError naming the first field whose value cannot work."""
        _check_counters(self)
        _check_ranges(self)
        if self.profile().modulus_bits != self.key().bits:
            raise _field_error("slot_profile", self.slot_profile, f"the key has {self.key().bits} bits")
        if not self.demo and not self.profile().sealed:
            raise _field_error("slot_profile", self.slot_profile, "it seals nothing: demo = true only")
        if not self.demo and self.tokens_per_day == 0:
            raise _field_error("tokens_per_day", 0, "a task without tokens must have demo = true")
        if not self.demo and self.min_contributors < CONTRIBUTOR_FLOOR:
            raise _field_error(
                "min_contributors", self.min_contributors, f"the floor is {CONTRIBUTOR_FLOOR} unless demo"
            )


@functools.lru_cache(maxsize=8)
def _key_of(raw: bytes) -> PublicKey:
    """Checking that a modulus is none takes 10 ms."""
    return PublicKey.from_bytes(raw)


def days_of_batch(batch_s: float) -> int:
    """Most UTC days that a batch touches; batches begin at multiples of their length, days of a day.

    Where they start within a day runs over multiples of the greatest common divisor; the last one counts.
    """
    length_s = math.ceil(batch_s)
    return math.ceil((_DAY_S - math.gcd(length_s, _DAY_S) + length_s) / _DAY_S)


class FieldError(ConfigError):
    """A field of a task cannot have its value."""

    field: str = ""
    """Its name."""


def _field_error(field: str, value: object, reason: str) -> FieldError:
    error = FieldError(f"Task field {field} = {value!r}: {reason}.", remedy=f"Change task.{field}.")
    error.field = field
    return error


_LEAST = {
    "rotation_s": 1,
    "samples_per_histogram": 1,
    "sampling_interval": 1,
    "offset_reset_s": 1,
    "snippet_launches": 8,
    "batch_s": 1,
    "min_samples": 1,
    "reports_per_class": 0,
    "min_contributors": 1,
    "tokens_per_day": 0,
    "hostile_clients": 0,
    "noise_sigma": 0,
    "noise_target_error": 0,
    "sub_batches": 1,
}


_RULES: tuple[tuple[str, Callable[[Task], bool], str], ...] = (
    ("name", lambda task: bool(task.name), "it is empty"),
    ("noise_sigma", lambda task: math.isfinite(task.noise_sigma), "it is a finite number of samples"),
    ("batch_s", lambda task: task.batch_s % _HOUR_S == 0, "reports carry whole hours: it divides by 3600"),
    ("cover_rate", lambda task: 0 <= task.cover_rate < 1, "it is a share, 0 to below 1"),
    ("similarity", lambda task: 0 < task.similarity <= 1, "it is a Jaccard similarity, above 0 to 1"),
    (
        "identity_key",
        lambda task: len(task.identity_key) == (0 if task.identity == "plain" else _IDENTITY_KEY_BYTES),
        "it does not fit identity = {task.identity!r}",
    ),
    ("service_key", lambda task: len(task.service_key) in (0, _X25519_BYTES), "an X25519 key has 32 bytes"),
    (
        "noise_target_error",
        lambda task: (
            math.isfinite(task.noise_target_error) and (task.noise_sigma > 0 or not task.noise_target_error)
        ),
        "it is a share of an average bin, and means something with noise_sigma only",
    ),
    (
        "min_samples",
        lambda task: task.min_samples <= task.samples_per_histogram,
        "it exceeds samples_per_histogram",
    ),
)


def _check_ranges(task: Task) -> None:
    for field, least in _LEAST.items():
        if getattr(task, field) < least:
            raise _field_error(field, getattr(task, field), f"the least value is {least}")
    for field, holds, reason in _RULES:
        if not holds(task):
            raise _field_error(field, getattr(task, field), reason.format(task=task))
    if task.noise_sigma:
        _check_noise(task)
    if task.capacity() < task.reports_needed():
        raise _field_error(
            "min_contributors",
            task.min_contributors,
            f"the gate asks for {task.reports_needed()} reports, one sum holds {task.capacity()} at most",
        )


def _check_noise(task: Task) -> None:
    if not 0 < task.noise_delta < min(1.0, task.noise_epsilon):
        raise _field_error("noise_delta", task.noise_delta, "delta is above 0, below 1 and below epsilon")
    if task.profile().ciphertexts == 1:
        raise _field_error("noise_sigma", task.noise_sigma, "slots of this profile are too narrow for noise")


def _check_counters(task: Task) -> None:
    names = [each.name for each in task.counter_sets]
    if not names:
        raise _field_error("counter_sets", names, "at least one is needed")
    if len(set(names)) != len(names):
        raise _field_error("counter_sets", names, "names must differ")
    for each in task.counter_sets:
        each.check()
    rotated = {name for group in task.rotation for name in group}
    if not all(task.rotation) or rotated != set(names):
        raise _field_error(
            "rotation", task.rotation, f"its groups must not be empty and name each of {names}"
        )


class SignedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task's encoding with the design server's Ed25519 signature."""

    task: bytes
    signature: bytes
    signer: bytes
    """The Ed25519 public key, 32 bytes; a client compares it with the one it pinned."""

    def encode(self) -> bytes:
        """Bytes of a `.task` file and of the gateway's answer."""
        return msgspec.msgpack.encode(self)


def sign(task: Task, key: Ed25519PrivateKey) -> SignedTask:
    """Check and sign a task.

    Raises:
        ConfigError: a field's value cannot work.
    """
    task.check()
    body = task.encode()
    return SignedTask(body, key.sign(_SIGNING_CONTEXT + body), key.public_key().public_bytes_raw())


def verify(raw: bytes, *, trusted_signer: bytes | None = None) -> Task:
    """The task inside `raw` (a `SignedTask`), after all checks.

    Args:
        raw: bytes of a `.task` file or of the gateway's answer.
        trusted_signer: the pinned Ed25519 public key of the design server; None trusts the signer on first
            use, which only a demo should do.

    Raises:
        TaskError: not a signed task, wrong signer, wrong signature, or not canonical.
        ConfigError: the task's fields cannot work.
        KeyFormatError: its Paillier key is refused.
    """
    try:
        signed = msgspec.msgpack.decode(raw, type=SignedTask)
    except msgspec.MsgspecError as error:
        raise TaskError(
            f"These bytes are not a signed task: {error}.", remedy="Fetch the task again."
        ) from error
    if trusted_signer is not None and signed.signer != trusted_signer:
        raise TaskError(
            f"The task is signed by {signed.signer.hex()}, not by the pinned {trusted_signer.hex()}.",
            remedy="Do not accept this task. Ask the design server's operator for the signer, which penrose "
            "keys show prints; the key that penrose up and penrose release list print is the ledger's.",
        )
    try:
        Ed25519PublicKey.from_public_bytes(signed.signer).verify(
            signed.signature, _SIGNING_CONTEXT + signed.task
        )
    except (InvalidSignature, ValueError) as error:
        raise TaskError(
            "The task's signature is wrong.", remedy="Fetch the task again; do not use it."
        ) from error
    return _decode(signed.task)


def read_signed(path: Path | str) -> bytes:
    """The bytes of a `.task` file, not checked yet.

    Raises:
        TaskError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TaskError(
            f"{path} cannot be read: {error}.", remedy="Get the signed task from the design server."
        ) from error


def read_task(path: Path | str, *, trusted_signer: bytes | None = None) -> Task:
    """The task in a `.task` file, after all checks; raises like `verify`, and every error names the file."""
    with naming(path):
        return verify(read_signed(path), trusted_signer=trusted_signer)


def signer_of(raw: bytes) -> bytes:
    """The Ed25519 public key in a signed task that `verify` has accepted, 32 bytes."""
    return msgspec.msgpack.decode(raw, type=SignedTask).signer


def _decode(body: bytes) -> Task:
    if body[:1] != bytes([FORMAT_VERSION]):
        raise TaskError(
            f"The task has format version {body[:1].hex() or 'none'}, this program reads {FORMAT_VERSION}.",
            remedy="Use the release of penrose-ray that the design server uses.",
        )
    try:
        task = msgspec.msgpack.decode(body[1:], type=Task)
    except msgspec.MsgspecError as error:
        raise TaskError(f"The task is malformed: {error}.", remedy="Fetch the task again.") from error
    if task.encode() != body:
        raise TaskError(
            "The task is not in canonical encoding.", remedy="Sign it again with penrose task sign."
        )
    task.check()
    return task
