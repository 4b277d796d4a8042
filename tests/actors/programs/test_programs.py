from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from types import ModuleType

pytest.importorskip("pyopencl")

from penrose_ray.actors.programs import sort, stencil, train
from penrose_ray.actors.programs.program import Device
from penrose_ray.capture.opencl import OpenCLSource


@pytest.mark.parametrize("program", [train, stencil, sort])
def test_program_stops_when_told(program: ModuleType) -> None:
    answers = iter([False, False, False, True])
    assert program.run(lambda: next(answers)).steps == 3


@pytest.mark.parametrize(
    ("program", "launches", "names"), [(train, 23, 16), (stencil, 10, 10), (sort, 52, 10)]
)
def test_a_step_is_one_fixed_sequence_of_kernels(program: ModuleType, launches: int, names: int) -> None:
    with OpenCLSource() as source:
        program.run(lambda: False, max_steps=3)
        steps = source.poll(1 << 20).name_id.reshape(3, launches)
    assert (steps == steps[0]).all()
    assert len(np.unique(steps)) == names


def test_training_lowers_the_loss() -> None:
    figures = train.run(lambda: False, seed=1, max_steps=96).figures
    assert figures["first_loss"] > np.log(train.CLASSES) * 0.9
    assert figures["last_loss"] < 0.1 * figures["first_loss"]


def test_training_step_equals_the_textbook_gradient_step() -> None:
    device = Device("train")
    network = train.Network(device, np.random.default_rng(3))
    points, labels = train.clouds(np.random.default_rng(3))
    shape_1, shape_2 = (train.FEATURES, train.HIDDEN), (train.HIDDEN, train.CLASSES)
    before_1 = device.read(network._weights_1, np.empty(shape_1, np.float32)).astype(float)
    before_2 = device.read(network._weights_2, np.empty(shape_2, np.float32)).astype(float)
    network.step(0)
    x, y = points[: train.BATCH].astype(float), labels[: train.BATCH]
    hidden = np.maximum(x @ before_1, 0)
    scores = hidden @ before_2
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    gradient = (shares - np.eye(train.CLASSES)[y]) / train.BATCH
    back = (gradient @ before_2.T) * (hidden > 0)
    assert network.loss() == pytest.approx(-np.log(shares[np.arange(len(y)), y]).mean(), rel=1e-5)
    after_2 = device.read(network._weights_2, np.empty(shape_2, np.float32))
    np.testing.assert_allclose(after_2, before_2 - 0.25 * hidden.T @ gradient, atol=1e-5)
    after_1 = device.read(network._weights_1, np.empty(shape_1, np.float32))
    np.testing.assert_allclose(after_1, before_1 - 0.25 * x.T @ back, atol=1e-5)


def test_heat_is_conserved_and_settles() -> None:
    figures = stencil.run(lambda: False, seed=2, max_steps=200).figures
    assert figures["last_energy"] == pytest.approx(figures["first_energy"], rel=1e-5)
    assert figures["last_residual"] < 0.1 * figures["first_residual"]


def test_cosine_of_heat_decays_at_its_eigenvalue() -> None:
    """cos(pi (i + 1/2) / n) is an eigenvector of the insulated plate: its factor a step is known exactly."""
    mode = np.cos(np.pi * (np.arange(stencil.CELLS) + 0.5) / stencil.CELLS)
    heat = np.tile(mode, (stencil.CELLS, 1)).astype(np.float32)
    conductance = np.full((stencil.CELLS, stencil.CELLS), stencil.CONDUCTANCE, dtype=np.float32)
    plate = stencil.Plate(Device("stencil", CELLS=stencil.CELLS), heat, conductance)
    for _ in range(400):
        plate.step()
    factor = (1 - 4 * stencil.CONDUCTANCE * np.sin(np.pi / (2 * stencil.CELLS)) ** 2) ** 400
    assert factor < 0.98
    np.testing.assert_allclose(plate.heat(), factor * heat, atol=2e-5)


def test_keys_are_sorted_and_compacted_as_numpy_does() -> None:
    sorter = sort.Sorter(Device("sort", KEYS=sort.KEYS, BLOCK=sort.BLOCK, KEY_MASK=(1 << sort.KEY_BITS) - 1))
    for seed in (1, 0xDEADBEEF):
        sorter.step(seed)
        expected = np.sort(_keys(seed))
        np.testing.assert_array_equal(sorter.sorted_keys(), expected)
        distinct = np.unique(expected)
        checksum = 0
        for key in distinct.tolist():
            checksum = (checksum * 31 + key) % (1 << 32)
        assert sorter.result() == (len(distinct), checksum)


def _keys(seed: int) -> np.ndarray:  # type: ignore[type-arg]
    x = (seed + np.arange(sort.KEYS, dtype=np.uint64) * 2654435769) & 0xFFFFFFFF
    x ^= (x << np.uint64(13)) & 0xFFFFFFFF
    x ^= x >> np.uint64(17)
    x ^= (x << np.uint64(5)) & 0xFFFFFFFF
    return (x & ((1 << sort.KEY_BITS) - 1)).astype(np.uint32)
