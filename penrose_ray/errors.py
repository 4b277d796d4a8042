"""The error tree: every error has a stable code, an exit status and a remedy.

`code` is also the label of the error in metrics and the anchor of its section in docs/exit-codes.md.
Exit codes go by stage: 10 configuration and task, 20 capture, 30 keys and cryptography, 40 transport,
50 aggregation, 60 release and analysis.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class PenroseError(Exception):
    """Base of all errors that a user can meet: what happened, and what to do about it."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild in another process: an actor's error reaches the caller whole."""
        return _rebuild, (type(self), self.message, self.remedy), self.__dict__

    @property
    def docs(self) -> str:
        """Where the documentation explains this error."""
        return f"docs/exit-codes.md#{self.code}"


def _rebuild(kind: type[PenroseError], message: str, remedy: str) -> PenroseError:
    return kind(message, remedy=remedy)


@contextlib.contextmanager
def naming(path: object) -> Iterator[None]:
    """Around what is made of a file's content: an error that does not name the file does so from here on."""
    try:
        yield
    except PenroseError as error:
        if str(path) not in error.message:
            error.message = f"{path}: {error.message}"
            error.args = (error.message,)
        raise


class ConfigError(PenroseError):
    """A configuration file, task or option is wrong."""

    code = "config"
    exit_code = 10


class PortInUseError(PenroseError):
    """The gateway's port is taken by another process."""

    code = "port-in-use"
    exit_code = 11


class PlacementError(PenroseError):
    """The actor graph does not fit on the cluster."""

    code = "placement"
    exit_code = 12


class TaskError(PenroseError):
    """A task is not signed by the expected design server, or not consistent."""

    code = "task"
    exit_code = 13


class PolicyError(PenroseError):
    """A task asks for more than the GPU owner's policy allows."""

    code = "policy"
    exit_code = 14


class UnfitError(PenroseError):
    """A machine cannot do its part."""

    code = "unfit"
    exit_code = 16


class TraceError(PenroseError):
    """A trace file cannot be read."""

    code = "trace"
    exit_code = 20


class SourceError(PenroseError):
    """An event source cannot be used on this machine."""

    code = "source"
    exit_code = 21


class KeyMissingError(PenroseError):
    """A key file does not exist."""

    code = "key-missing"
    exit_code = 30


class KeyPermissionError(PenroseError):
    """A private key file can be read by others."""

    code = "key-permission"
    exit_code = 31


class KeyFormatError(PenroseError):
    """A key is damaged, of another version, or too weak."""

    code = "key-format"
    exit_code = 32


class WrongKeyError(PenroseError):
    """A ciphertext or release belongs to another key."""

    code = "wrong-key"
    exit_code = 33


class CiphertextError(PenroseError):
    """A ciphertext is outside the group of the public key."""

    code = "ciphertext"
    exit_code = 34


class CapacityError(PenroseError):
    """One more report could overflow a slot."""

    code = "capacity"
    exit_code = 35


class ShareError(PenroseError):
    """A share of a threshold decryption is wrong, or too few are there."""

    code = "key-share"
    exit_code = 36


class TransportError(PenroseError):
    """The gateway cannot be reached or refused a report."""

    code = "transport"
    exit_code = 40


class WireError(PenroseError):
    """Bytes are not a message of this protocol version."""

    code = "invalid-message"
    exit_code = 41


class EnvelopeError(WireError):
    """A report's tags are not sealed to this service, or are altered."""

    code = "sealed-tags"
    exit_code = 44


class TorError(TransportError):
    """Tor is missing, does not start, or does not reach its network."""

    code = "tor"
    exit_code = 42


class TlsError(TransportError):
    """The other side does not prove who it is, or speaks no TLS 1.3."""

    code = "tls"
    exit_code = 45


class SpoolError(PenroseError):
    """What a client keeps on disk, such as the reports that wait, cannot be used or written."""

    code = "spool"
    exit_code = 43


class JournalError(PenroseError):
    """A journal is damaged or cannot be written."""

    code = "journal"
    exit_code = 50


class JournalVersionError(PenroseError):
    """A journal was written by a newer version."""

    code = "journal-version"
    exit_code = 51


class JournalFullError(JournalError):
    """There is no room on the disk for one more commit."""

    code = "journal-full"
    exit_code = 53


class RefusedReportError(PenroseError):
    """The aggregation service refuses a report."""

    code = "report-refused"
    exit_code = 52


class GateError(PenroseError):
    """A release has too few contributors."""

    code = "too-few-contributors"
    exit_code = 60


class SumRuleError(PenroseError):
    """A decrypted sum is not a sum of honest reports."""

    code = "sum-rule"
    exit_code = 61


class ReleaseFormatError(PenroseError):
    """A file is not a release, or of another version."""

    code = "release-format"
    exit_code = 62


class TokenError(PenroseError):
    """A token is forged, spent for another task or day, or malformed."""

    code = "token"
    exit_code = 63


class QuotaError(PenroseError):
    """A client is not enrolled, or has had its tokens of the day."""

    code = "quota"
    exit_code = 64


class LedgerError(PenroseError):
    """The ledger of releases is not what its signer wrote, or lacks an entry."""

    code = "ledger"
    exit_code = 65


class BudgetError(PenroseError):
    """A release would spend more than the privacy budget."""

    code = "budget-spent"
    exit_code = 66


class ClockError(PenroseError):
    """The clock has moved back."""

    code = "clock"
    exit_code = 67


class HandoverError(PenroseError):
    """A hand-over does not agree with its task, ids or ledger, or was opened before."""

    code = "handover"
    exit_code = 71


class GatekeeperError(PenroseError):
    """The gatekeeper refuses to decrypt its part."""

    code = "gatekeeper"
    exit_code = 68


class AttestationError(PenroseError):
    """A machine's TPM quote is missing, or does not prove what it should."""

    code = "attestation"
    exit_code = 69


class TimelineError(PenroseError):
    """A file is no audit log, no ledger and no answer of Prometheus."""

    code = "timeline"
    exit_code = 70
