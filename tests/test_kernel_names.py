from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from penrose_ray.capture.formats import read_recording
from penrose_ray.errors import TraceError
from penrose_ray.kernel_names import KINDS, kind_number, kind_of

ROOT = os.environ.get("PENROSE_TRACES")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x32_sliced1x4_tn", "gemm"),
        ("Cijk_Ailk_Bljk_SB_MT128x64x16_MI32x32x2x1_SN_1LDSB1", "gemm"),
        ("nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT", "gemm"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32", "conv"),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv"),
        ("fmha_cutlassF_f32_aligned_64x128_rf_sm80", "attention"),
        ("attn_fwd", "attention"),
        ("at::native::vectorized_elementwise_kernel", "elementwise"),
        ("triton_poi_fused_add_cos_sin_0", "elementwise"),
        ("wrapped_convert", "elementwise"),
        ("at::native::reduce_kernel", "reduction"),
        ("void at::native::softmax_warp_forward<float>", "reduction"),
        ("triton_red_fused_mean_pow_1", "reduction"),
        ("cub::DeviceRadixSortOnesweepKernel", "reduction"),
        ("at::native::CatArrayBatchedCopy", "copy"),
        ("fbgemm_gpu::permute_2D_lengths_kernel", "copy"),
        ("vllm::reshape_and_cache_flash_kernel", "copy"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "collective"),
        ("vllm::cross_device_reduce_1stage", "collective"),
        ("Kernel", "other"),
    ],
)
def test_kind_of_a_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
    assert KINDS[kind_number(name)] == kind


@pytest.mark.skipif(not ROOT, reason="PENROSE_TRACES names no folder of real traces")
def test_few_launches_of_deep_learning_traces_are_other() -> None:
    found: Counter[str] = Counter()
    for path in sorted((Path(str(ROOT)) / "traces").glob("*Trace*.json.gz")):
        try:
            recording = read_recording(path)
        except TraceError:
            continue
        found.update(kind_of(recording.names[each]) for each in recording.batch.name_id)
    assert found.total() > 50_000
    assert found["other"] / found.total() < 0.08
    assert all(found[kind] for kind in KINDS)
