"""Batch experiments: they use what shards leave, give way, and share what idle queues do not use."""

from __future__ import annotations

import pytest

from penrose_ray.actors.experiments import Ended, Experiment, Experiments
from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError


class Work:
    """An experiment that is as far as the test says."""

    def __init__(self, experiment: Experiment) -> None:
        self.name = experiment.name
        self.done = 0.0
        self.ended = False
        self.error: Exception | None = None
        self.stopped = False

    def progress(self) -> float:
        return self.done

    def finished(self) -> bool:
        if self.error:
            raise self.error
        return self.ended

    def stop(self) -> None:
        self.stopped = True


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cores = 4
        self.started: list[Work] = []
        self.experiments = Experiments(lambda: self.cores, self._start, self.clock)
        self.experiments.add_queue("a", 4)

    def _start(self, experiment: Experiment) -> Work:
        self.started.append(Work(experiment))
        return self.started[-1]

    def submit(self, *names: str, queue: str = "a", cores: int = 1) -> None:
        for name in names:
            self.experiments.submit(Experiment(name, queue, "module:function", cores))

    def tick(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.experiments.tick()

    @property
    def running(self) -> list[str]:
        return [each.name for each in self.started if not each.stopped]

    def work(self, name: str) -> Work:
        return next(each for each in reversed(self.started) if each.name == name)


@pytest.fixture
def world() -> World:
    return World()


def test_experiments_run_in_order_as_far_as_there_is_room(world: World) -> None:
    world.submit("one", "two", cores=2)
    world.submit("three", cores=3)
    world.tick()
    assert world.running == ["one", "two"]
    world.work("one").ended = True
    world.tick()
    assert world.running == ["two"], "three needs three"
    world.work("two").error = RuntimeError("out of memory")
    world.tick()
    assert world.running == ["three"]
    assert list(world.experiments.ended) == [Ended("one"), Ended("two", "out of memory")]


def test_when_shards_need_cores_the_stuck_run_gives_way_and_runs_again_first(world: World) -> None:
    world.submit("stuck", "nearly done", "young")
    world.tick()
    world.work("stuck").done, world.work("nearly done").done = 0.3, 0.9
    world.submit("later")
    world.clock.advance(31 * 60)
    world.work("young").ended = True
    world.tick()
    assert world.running == ["stuck", "nearly done", "later"]
    world.cores = 2
    world.tick()
    assert world.running == ["nearly done", "later"]
    world.submit("last")
    world.cores = 4
    world.tick()
    assert world.running == ["nearly done", "later", "stuck", "last"]
    world.cores = 0
    world.tick()
    assert world.running == []
    assert [row["running_s"] for row in world.experiments.state()] == [None] * 4


def test_an_idle_queue_joins_the_busiest_after_two_minutes(world: World) -> None:
    world.cores = 8
    world.experiments.add_queue("b", 4)
    world.submit(*"1234567")
    world.tick()
    assert len(world.running) == 4, "a queue has the workers that it has"
    world.tick(119)
    assert len(world.running) == 4
    world.tick(1)
    assert len(world.running) == 7, "the workers of b are a's now"
    world.submit("for b", queue="b")
    world.tick()
    assert "for b" in world.running


def test_a_queue_with_a_little_use_is_merged_and_one_with_more_is_not(world: World) -> None:
    world.cores = 30
    world.experiments.add_queue("little", 10)
    world.experiments.add_queue("more", 10)
    world.submit("x", "y", "z", "w")
    world.submit("l", queue="little")
    world.submit("m", queue="more", cores=2)
    world.tick()
    world.tick(120)
    queues = {row["name"]: row["queue"] for row in world.experiments.state()}
    assert queues["l"] == "a", "10 % of its workers' time"
    assert queues["m"] == "more", "20 %"


def test_what_waits_in_a_merged_queue_goes_along(world: World) -> None:
    world.experiments.add_queue("b", 4)
    world.submit("1", "2", "3", "4")
    world.tick()
    world.submit("waits", queue="b")
    world.tick()
    assert "waits" not in world.running, "the cluster has four cores"
    world.tick(120)
    world.work("1").ended = True
    world.tick()
    assert "waits" in world.running


def test_what_can_never_run_is_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="no queue 'c'"):
        world.submit("one", queue="c")
    with pytest.raises(ConfigError, match="5 cores, its queue has 4"):
        world.submit("one", cores=5)
