"""Build and run one kernel: says what to install when no OpenCL device can, and leaves nothing behind."""

from __future__ import annotations

import sys

SOURCE = "__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }"
APT = "apt-get install -y gcc libc6-dev"


def main() -> int:
    """Exit code 0 when a kernel computes what it should."""
    import numpy as np  # noqa: PLC0415 - a missing package is reported below
    import pyopencl as cl  # noqa: PLC0415

    from penrose_ray.capture.opencl_device import profiled_queue  # noqa: PLC0415

    queue = profiled_queue()
    values = np.arange(64, dtype=np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(queue.context, flags, hostbuf=values)
    kernel = cl.Program(queue.context, SOURCE).build().twice
    kernel(queue, values.shape, None, buffer)
    result = np.empty_like(values)
    cl.enqueue_copy(queue, result, buffer)
    if not np.array_equal(result, 2 * values):
        print("The OpenCL device computes wrong results.", file=sys.stderr)
        return 1
    print(f"OpenCL works on {queue.device.name.strip()}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # noqa: BLE001 - whatever it is, the remedy is the same
        print(f"No OpenCL kernel can be built here: {error}", file=sys.stderr)
        print(f"PoCL needs a linker and the C library's start files: {APT}", file=sys.stderr)
        sys.exit(1)
