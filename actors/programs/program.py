"""What the programs have in common: a queue, their kernels, launches that are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from penrose_ray.capture.opencl import profiled_queue

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyopencl as cl
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a run went. `figures` are what the program computes, for tests and logs."""

    program: str
    device: str
    steps: int
    launches: int
    figures: Mapping[str, float] = field(default_factory=dict)


class Device:
    """One queue, the kernels of `NAME.cl`, and buffers."""

    def __init__(self, name: str, **defines: float) -> None:
        import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

        self.queue: cl.CommandQueue = profiled_queue()
        self.launches = 0
        self._cl = cl
        self._context = self.queue.context
        text = resources.files(__package__).joinpath(f"{name}.cl").read_text()
        program = cl.Program(self._context, text).build(
            options=[f"-D{key}={value}" for key, value in defines.items()]
        )
        self._kernels: dict[str, Any] = {kernel.function_name: kernel for kernel in program.all_kernels()}

    @property
    def model(self) -> str:
        """The device's name."""
        return str(self.queue.device.name)

    def array(self, values: NDArray[Any]) -> cl.Buffer:
        """A buffer that starts with a copy of `values`."""
        flags = self._cl.mem_flags
        return self._cl.Buffer(self._context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=values)

    def launch(
        self, kernel: str, size: tuple[int, ...], *arguments: object, local: tuple[int, ...] | None = None
    ) -> None:
        """Enqueue a kernel over `size` work-items."""
        self._kernels[kernel](self.queue, size, local, *arguments)
        self.launches += 1

    def read(self, buffer: cl.Buffer, into: NDArray[Any]) -> NDArray[Any]:
        """Wait for what was enqueued and copy the start of `buffer` over `into`."""
        self._cl.enqueue_copy(self.queue, into, buffer)
        return into

    def finish(self) -> None:
        """Wait for what was enqueued."""
        self.queue.finish()
