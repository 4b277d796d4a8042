"""Starting Ray, which gives itself half a minute: tried once more where a busy machine took longer."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, TypeVar

import ray

from penrose_ray.actors.processes import adopt_orphans, end_ray, family
from penrose_ray.errors import PlacementError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_LOG = logging.getLogger("penrose_ray.ray")
_SAYS: Final = "timed out during startup"
"""Ray has no type for it."""
STORE_WAIT: Final = ("RAY_gcs_server_port_wait_time_s", "120")
"""The one of Ray's own limits that can be set; 30 s for the node and 15 s for its agents are fixed."""


def start_local(**options: Any) -> None:  # noqa: ANN401 - as ray.init takes them
    """Start a Ray of this process alone, without a dashboard.

    Raises:
        PlacementError: twice it did not come up in the time that it gives itself.
    """
    others = set(family(os.getpid()))
    adopt_orphans()

    def start() -> None:
        ray.init(
            address="local",  # whatever other cluster this machine knows of
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **options,
        )

    def clean() -> None:
        ray.shutdown()
        end_ray(others)
        _note_ends()

    patiently(start, clean)


def _note_ends() -> None:
    """Let handles of processes know of ends: those of a failed start would warn of each one as a leak."""
    for each in gc.get_objects():
        if issubclass(type(each), subprocess.Popen):  # isinstance would ask a dead weak reference
            each.poll()


def patiently(start: Callable[[], T], clean: Callable[[], object]) -> T:
    """What `start` returns. Where Ray's time runs out, `clean` ends what it left and it is tried once more.

    Raises:
        PlacementError: it ran out again.
    """
    os.environ.setdefault(*STORE_WAIT)
    try:
        return start()
    except Exception as error:
        if _SAYS not in str(error):
            raise
        clean()
        _LOG.warning("Ray did not come up within its 30 seconds on this busy machine; trying once more.")
    try:
        return start()
    except Exception as error:
        if _SAYS not in str(error):
            raise
        clean()
        raise PlacementError(
            "Twice Ray did not start within the 30 seconds that it gives itself.",
            remedy="Try again when this machine is less busy; Ray's logs are in /tmp/ray/session_latest.",
        ) from error
