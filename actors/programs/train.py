"""A small training loop: a two-layer perceptron learns to tell Gaussian clouds apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.actors.programs.program import Device, ProgramResult

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyopencl as cl
    from numpy.typing import NDArray

FEATURES, HIDDEN, CLASSES, BATCH, BATCHES = 64, 96, 16, 128, 16
_RATE = 0.25
_STEPS_PER_READING = 8


class Network:
    """Weights, activations and one training step on the device."""

    def __init__(self, device: Device, rng: np.random.Generator) -> None:
        self._device = device
        points, labels = clouds(rng)
        self._points, self._labels = device.array(points), device.array(labels)
        self._weights_1 = device.array(_initial(rng, FEATURES, HIDDEN))
        self._weights_2 = device.array(_initial(rng, HIDDEN, CLASSES))
        self._bias_1, self._bias_2 = self._zeros(HIDDEN), self._zeros(CLASSES)
        self._batch = self._zeros(BATCH * FEATURES)
        self._before, self._after = self._zeros(BATCH * HIDDEN), self._zeros(BATCH * HIDDEN)
        self._scores = self._zeros(BATCH * CLASSES)
        self._row, self._losses, self._loss = self._zeros(BATCH), self._zeros(BATCH), self._zeros(1)
        self._back = self._zeros(BATCH * HIDDEN)
        self._step_1, self._step_2 = self._zeros(FEATURES * HIDDEN), self._zeros(HIDDEN * CLASSES)
        self._bias_step_1, self._bias_step_2 = self._zeros(HIDDEN), self._zeros(CLASSES)

    def _zeros(self, size: int) -> cl.Buffer:
        return self._device.array(np.zeros(size, dtype=np.float32))

    def step(self, number: int) -> None:
        """Forward, loss, backward and update on one batch."""
        first = np.int32(number % BATCHES * BATCH)
        self._forward(first)
        self._backward(first)
        self._update()

    def loss(self) -> float:
        """Mean loss of the latest batch."""
        return float(self._device.read(self._loss, np.empty(1, dtype=np.float32))[0])

    def _forward(self, first: np.int32) -> None:
        run = self._device.launch
        run("gather_batch", (FEATURES, BATCH), self._points, self._batch, first, np.int32(FEATURES))
        run("matmul", (HIDDEN, BATCH), self._batch, self._weights_1, self._before, np.int32(FEATURES))
        run("add_bias", (HIDDEN, BATCH), self._before, self._bias_1)
        run("relu", (BATCH * HIDDEN,), self._before, self._after)
        run("matmul", (CLASSES, BATCH), self._after, self._weights_2, self._scores, np.int32(HIDDEN))
        run("add_bias", (CLASSES, BATCH), self._scores, self._bias_2)
        run("row_max", (BATCH,), self._scores, self._row, np.int32(CLASSES))
        run("exp_shifted", (CLASSES, BATCH), self._scores, self._row)
        run("row_sum", (BATCH,), self._scores, self._row, np.int32(CLASSES))
        run("divide_rows", (CLASSES, BATCH), self._scores, self._row)
        run("cross_entropy", (BATCH,), self._scores, self._labels, self._losses, first, np.int32(CLASSES))
        run("mean_loss", (1,), self._losses, self._loss, np.int32(BATCH))

    def _backward(self, first: np.int32) -> None:
        run = self._device.launch
        rows = np.int32(BATCH)
        run("softmax_gradient", (CLASSES, BATCH), self._scores, self._labels, first, rows)
        run("matmul_left_transposed", (CLASSES, HIDDEN), self._after, self._scores, self._step_2, rows)
        run("column_sum", (CLASSES,), self._scores, self._bias_step_2, rows)
        run(
            "matmul_right_transposed",
            (HIDDEN, BATCH),
            self._scores,
            self._weights_2,
            self._back,
            np.int32(CLASSES),
        )
        run("relu_gradient", (BATCH * HIDDEN,), self._before, self._back)
        run("matmul_left_transposed", (HIDDEN, FEATURES), self._batch, self._back, self._step_1, rows)
        run("column_sum", (HIDDEN,), self._back, self._bias_step_1, rows)

    def _update(self) -> None:
        rate = np.float32(_RATE)
        for size, weights, step in (
            (FEATURES * HIDDEN, self._weights_1, self._step_1),
            (HIDDEN, self._bias_1, self._bias_step_1),
            (HIDDEN * CLASSES, self._weights_2, self._step_2),
            (CLASSES, self._bias_2, self._bias_step_2),
        ):
            self._device.launch("sgd_update", (size,), weights, step, rate)


def clouds(rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Points (n, FEATURES) around one centre for each class, and their classes (n,)."""
    labels = rng.integers(0, CLASSES, BATCH * BATCHES).astype(np.int32)
    centres = rng.normal(size=(CLASSES, FEATURES))
    points = centres[labels] + rng.normal(size=(len(labels), FEATURES))
    return points.astype(np.float32), labels


def _initial(rng: np.random.Generator, inputs: int, outputs: int) -> NDArray[np.float32]:
    return rng.normal(scale=inputs**-0.5, size=(inputs, outputs)).astype(np.float32)


def run(should_stop: Callable[[], bool], *, seed: int = 0, max_steps: int | None = None) -> ProgramResult:
    """Train until `should_stop` or for `max_steps` steps of 23 launches.

    Raises:
        SourceError: no OpenCL device.
    """
    device = Device("train")
    network = Network(device, np.random.default_rng(seed))
    losses: list[float] = []
    steps = 0
    while not should_stop() and (max_steps is None or steps < max_steps):
        network.step(steps)
        steps += 1
        if steps == 1 or steps % _STEPS_PER_READING == 0:
            losses.append(network.loss())
    device.finish()
    figures = {"first_loss": losses[0], "last_loss": losses[-1]} if losses else {}
    return ProgramResult("train", device.model, steps, device.launches, figures)
