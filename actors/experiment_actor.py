"""A batch experiment in a Ray actor of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import ray
from ray.exceptions import RayError

from penrose_ray.actors.remote import Handle, ask, shell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.actors.experiments import Experiment


class Worker:
    """Runs one function; asked meanwhile, it says how far it is."""

    def __init__(self, place: str, arguments: Mapping[str, object]) -> None:
        module, _, name = place.partition(":")
        self._function = getattr(importlib.import_module(module), name)
        self._arguments = arguments
        self._progress = 0.0

    def run(self) -> None:
        """Run to the end."""
        result = self._function(**self._arguments)
        if isinstance(result, Iterator):
            for self._progress in result:
                pass
        self._progress = 1.0

    def progress(self) -> float:
        """Share of the work that is done, 0 to 1."""
        return self._progress


class RunningActor:
    """A worker's actor. It is never restarted: what is lost with its node fails."""

    def __init__(self, experiment: Experiment) -> None:
        kind: Handle = ray.remote(num_cpus=experiment.cores, num_gpus=experiment.gpus)(shell(Worker))
        self._handle: Handle = kind.options(max_concurrency=2).remote(
            experiment.place, dict(experiment.arguments)
        )
        self._ready = self._handle.ready.remote()
        self._end = self._handle.run.remote()

    def progress(self) -> float:
        """Share of the work that is done; 0 while the actor is not placed."""
        done, _ = ray.wait([self._ready], timeout=0)
        try:
            return float(ask(self._handle.progress.remote())) if done else 0.0
        except RayError:  # it is gone; `finished` says why
            return 0.0

    def finished(self) -> bool:
        """Whether it has ended; raises what it raised."""
        done, _ = ray.wait([self._end], timeout=0)
        if done:
            ask(self._ready)
            ask(self._end)
        return bool(done)

    def stop(self) -> None:
        """End the actor."""
        ray.kill(self._handle)
