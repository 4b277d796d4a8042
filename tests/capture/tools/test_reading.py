"""Names, purposes, and files of several ranks, damaged ones among them."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.kernels import is_gemm, is_product, purpose, readable
from penrose_ray.capture.tools.live import sampling_rate
from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[..., Path]
    Kernel = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("name", "kind", "right"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", KernelKind.KERNEL, "communication"),
        ("void vllm::cross_device_reduce_2stage<half, 8>()", KernelKind.KERNEL, "communication"),
        ("multimem_all_reduce_kernel<c10::BFloat16, 16>", KernelKind.KERNEL, "communication"),
        ("Memcpy HtoD (Pageable -> Device)", KernelKind.KERNEL, "memory"),
        ("fill", KernelKind.SET, "memory"),
        ("volta_sgemm_128x32_nt", KernelKind.KERNEL, "compute"),
    ],
)
def test_purpose(name: str, kind: KernelKind, right: str) -> None:
    assert purpose(name, kind) == right


def test_products_of_three_vendors_libraries() -> None:
    products = (
        "volta_sgemm_128x32_nt",
        "Cijk_Alik_Bljk_BBS_BH_MT256x192",
        "void cutlass::Kernel2<x_gemm_y>()",
        "gemv2T_kernel_val",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc",
    )
    assert all(map(is_gemm, products))
    assert all(map(is_product, products))
    assert not is_gemm("void at::native::vectorized_elementwise_kernel<4>()")


def test_library_named_after_products_has_other_kernels() -> None:
    assert not is_product("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>()")
    # the same operator starts both kernels of a split-K product: no choice between them to advise on
    assert is_product("void splitKreduce_kernel<32, 16, int>(cublasSplitKParams<float>)")
    assert not is_gemm("void splitKreduce_kernel<32, 16, int>(cublasSplitKParams<float>)")


def test_mangled_symbols_are_resolved_and_others_left_alone() -> None:
    """`c++filt _Z4axpyfPfS_` prints axpy(float, float*, float*)."""
    assert readable("_Z4axpyfPfS_") in ("axpy(float, float*, float*)", "_Z4axpyfPfS_")
    assert readable("_Z4axpyfPfS_.kd") in ("axpy(float, float*, float*).kd", "_Z4axpyfPfS_.kd")
    for name in ("sort_step", "_Zbroken", "", "void f<int>()"):
        assert readable(name) == name


def test_members_of_an_archive_are_ranks(tmp_path: Path, write_kineto: Write, kernel_event: Kernel) -> None:
    archive = tmp_path / "ranks.tar"
    with tarfile.open(archive, "w") as tar:
        for rank in (0, 1):
            tar.add(write_kineto([kernel_event(1)] * (rank + 1)), arcname=f"rank{rank}.json")
    traces = list(read_traces([archive]))
    assert [(trace.label, len(trace.device)) for trace in traces] == [("rank0.json", 1), ("rank1.json", 2)]


def test_cut_off_file_keeps_what_came_before_and_says_so(write_kineto: Write, kernel_event: Kernel) -> None:
    path = write_kineto([kernel_event(number) for number in range(1, 101)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (trace,) = read_traces([path])
    assert 30 < len(trace.device) < 60
    assert trace.warnings


def test_absolute_times_keep_their_nanoseconds(write_kineto: Write, kernel_event: Kernel) -> None:
    """A double of 1712195495505583.123 us is off by 0.1 us; the text is not."""
    path = write_kineto([kernel_event(1, ts="TS", dur=0.001)])
    path.write_text(path.read_text().replace('"TS"', "1712195495505583.123"))
    (trace,) = read_traces([path])
    assert trace.device.start_ns.tolist() == [1_712_195_495_505_583_123]
    assert trace.device.duration_ns.tolist() == [1]


def test_no_events_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}')
    with pytest.raises(TraceError):
        list(read_traces([path]))


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_rate_is_a_whole_number(text: str) -> None:
    assert sampling_rate({}) == 1
    assert sampling_rate({"PENROSE_SAMPLING_RATE": "100"}) == 100
    with pytest.raises(ConfigError):
        sampling_rate({"PENROSE_SAMPLING_RATE": text})
