"""A client's identity for a task: what it does to signatures before anybody sees them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penrose_ray.actors.client import Enrolled
from penrose_ray.actors.parties import HttpKeyServer, IssuedNameKey, Party
from penrose_ray.actors.purse import Purse
from penrose_ray.errors import ConfigError
from penrose_ray.snippet.identity import PLAIN, Keyed, NameKeyFile
from penrose_ray.snippet.oprf import Oprf

if TYPE_CHECKING:
    from penrose_ray.actors.moments import Moments
    from penrose_ray.clock import Clock
    from penrose_ray.settings import EnrolmentSettings
    from penrose_ray.snippet.identity import Identity
    from penrose_ray.task import Task


def enrolled(
    task: Task, enrolment: EnrolmentSettings, clock: Clock, moments: Moments | None = None
) -> Enrolled:
    """Tokens, asked for at a client's own moments, and identity for a task; raises like `identity_of`."""
    return Enrolled(purse_of(task, enrolment, clock, moments), identity_of(task, enrolment, clock))


def identity_of(task: Task, enrolment: EnrolmentSettings, clock: Clock) -> Identity:
    """The identity that the task's mode asks for.

    Raises:
        ConfigError: nothing says where the key comes from.
        WrongKeyError: the name key is not the task's.
        TransportError, QuotaError, KeyMissingError: the issuer does not hand it out.
    """
    if task.identity == "keyed":
        if enrolment.name_key_file is not None:
            return Keyed(NameKeyFile(enrolment.name_key_file), task.identity_key)
        if enrolment.issuer_url:
            return Keyed(IssuedNameKey(issuer(enrolment)), task.identity_key)
        raise ConfigError(
            "This task hashes names under a key, and this client has none.",
            remedy="Set issuer_url and credential_variable, or name_key_file.",
        )
    if task.identity == "oprf":
        if not enrolment.key_server_url:
            raise ConfigError(
                "This task has a key server, and this client does not know where.",
                remedy="Set key_server_url and key_server_credential_variable.",
            )
        known = _from_environment(enrolment.key_server_credential_variable)
        party = Party("key server", enrolment.key_server_url, known, enrolment.link)
        return Oprf(HttpKeyServer(party, clock), task.identity_key, known)
    return PLAIN


def purse_of(
    task: Task, enrolment: EnrolmentSettings, clock: Clock, moments: Moments | None = None
) -> Purse | None:
    """The tokens of a task that has them; None without an issuer."""
    if not task.tokens_per_day or not enrolment.issuer_url:
        return None
    return Purse(task, issuer(enrolment), clock, enrolment.tokens_file, moments=moments)


def issuer(enrolment: EnrolmentSettings) -> Party:
    """The issuer as it knows this client; ConfigError when the variable does not hold its credential."""
    known = _from_environment(enrolment.credential_variable)
    return Party("issuer", enrolment.issuer_url, known, enrolment.link)


def _from_environment(variable: str) -> bytes:
    try:
        return bytes.fromhex(os.environ.get(variable, ""))
    except ValueError as error:
        raise ConfigError(
            f"The variable {variable} holds no credential.",
            remedy="Set it to what penrose issuer enrol or penrose keyserver enrol printed.",
        ) from error
