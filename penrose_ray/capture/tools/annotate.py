"""`pr.annotate`: name a region of a program for whichever profiler is watching."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def annotate(region: str) -> Iterator[None]:
    """Name what runs inside, as a context manager or a decorator.

    The region becomes a range of PyTorch's profiler and an NVTX range, through PyTorch and CuPy as far as the
    program has imported them; nothing is imported here, so that without them it costs a microsecond. In an
    OpenCL program under `penrose capture` it is noted which launches fell into it. Tools group by it
    (`operator_map` has a column `region`), and `--region` shows them one alone.

    Args:
        region: any text without a line break; it stays on this machine.

    Raises:
        ValueError: the name is empty or has several lines.
    """
    if not region or not region.isprintable():
        raise ValueError(f"a region's name is one line of text, not {region!r}")
    with contextlib.ExitStack() as stack:
        torch: Any = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "profiler"):
            stack.enter_context(torch.profiler.record_function(region))
        nvtx: Any = sys.modules.get("cupy.cuda.nvtx")
        if nvtx is not None:
            nvtx.RangePush(region)
            stack.callback(nvtx.RangePop)
        directory = os.environ.get("PENROSE_RING_DIR")
        if directory:
            from penrose_ray.capture.marks import marked  # noqa: PLC0415 - only a captured program needs it

            stack.enter_context(marked(Path(directory), region))
        yield
