from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.snippet.names import NameHashes, NamePolicy, canonical, name_hash

FOLD = NamePolicy(templates="fold")

FILL = {
    "kineto": "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)",
    "nsys": "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
    "std::array<char *, (unsigned long)1>>(int, T2, T3)",
    "ncu": "void native::vectorized_elementwise_kernel<2, native::FillFunctor<float>, "
    "std::array<char *, 1>>(int, T2, T3)",
}
POW = {
    "kineto": "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
    "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#1}, "
    "std::array<char*, 2ul> >(int, at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float>)",
    "nsys": "void at::native::vectorized_elementwise_kernel<(int)4, void at::native::<unnamed>::"
    "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)::[lambda(float) "
    "(instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)",
}


@pytest.mark.parametrize("spellings", [FILL, POW])
def test_the_tools_spellings_of_one_kernel_are_one(spellings: dict[str, str]) -> None:
    assert len({canonical(name) for name in spellings.values()}) == 1
    assert {canonical(name, FOLD) for name in spellings.values()} == {"vectorized_elementwise_kernel"}


def test_functors_and_types_tell_kernels_apart_unless_they_are_folded() -> None:
    other = FILL["ncu"].replace("FillFunctor<float>", "FillFunctor<long>")

    assert canonical(FILL["ncu"]) == "vectorized_elementwise_kernel<FillFunctor float char>"
    assert canonical(other) == "vectorized_elementwise_kernel<FillFunctor long char>"
    assert canonical(FILL["ncu"]) != canonical(POW["nsys"])
    assert canonical(other, FOLD) == canonical(POW["nsys"], FOLD) == "vectorized_elementwise_kernel"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN.kd", "Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN"),
        ("Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN [clone .kd]", "Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN"),
        ("Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN (.kd)", "Cijk_Alik_Bljk_BBS_BH_MT16x16x512_SN"),
        ("__amd_rocclr_copyBuffer", "__amd_rocclr_copyBuffer"),
        ("volta_sgemm_128x64_tt", "volta_sgemm_128x64_tt"),
        ("triton_poi_fused_add_mul_0", "triton_poi_fused_add_mul"),
        ("triton_poi_fused_add_mul_17", "triton_poi_fused_add_mul"),
        ("_attn_fwd_0d1d2de3d", "_attn_fwd"),
        (
            "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long)",
            "ncclKernel_Broadcast_RING_LL_Sum_int8_t",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward<float>"),
        ("_GLOBAL__N__b1108092_12_PowKernel_cu_398dda3b::pow_kernel(int)", "pow_kernel"),
        ("gemm_398dda3b_kernel(int)", "gemm_kernel"),
        ("gemm::{lambda()#1}::operator()(int) const", "operator()<lambda>"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(x)", "kernel<int float>"),
        ("  padded(int)  ", "padded"),
    ],
)
def test_marks_of_tools_compilers_and_builds_are_dropped(name: str, expected: str) -> None:
    assert canonical(name) == expected


def test_a_mangled_name_gives_the_function_and_its_arguments() -> None:
    mangled = (
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_"
        "27Rmsnorm2dFwdPipelineProblemIDF16_EEEEEEEvv.kd"
    )

    assert canonical(mangled, FOLD) == "kentry"
    assert canonical(mangled) == (
        "kentry<Rmsnorm2dFwd Rmsnorm2dFwdPipelineOnePass Rmsnorm2dFwdPipelineProblem>"
    )
    assert canonical("_Z9saxpy_gpuifPKfPf") == "saxpy_gpu"
    assert canonical("_ZN2at6native12_GLOBAL__N_110reduce_allIfEEvPT_", FOLD) == "reduce_all"
    assert canonical("_Zzz") == "_Zzz"


@pytest.mark.parametrize("digits", [19, 25, 5000])
def test_a_number_that_is_too_large_for_a_length_or_a_size_is_no_error(digits: int) -> None:
    number = "9" * digits

    assert canonical(f"_Z{number}gemm") == f"_Z{number}gemm"
    assert canonical(f"_Z4gemmI{number}relu") == "gemm<relu>"
    assert canonical(f"addmm|f32|m|{number}|b").startswith("addmm|f32|m|")


def test_architectures_are_folded_on_demand() -> None:
    policy = NamePolicy(architectures="fold")

    assert canonical("volta_sgemm_128x64_tt", policy) == canonical("ampere_sgemm_128x64_tt", policy)
    assert canonical("sm80_xmma_gemm_f16", policy) == canonical("sm90_xmma_gemm_f16", policy)
    assert canonical("voltage_kernel", policy) == "voltage_kernel"
    assert canonical("volta_sgemm_128x64_tt") != canonical("ampere_sgemm_128x64_tt")


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("add.Tensor|f32|e|13|c", "add.Tensor|f32|e|c"),
        ("_foreach_add_.List|f32|f|20|c", "_foreach_add_.List|f32|f|c"),
        ("addmm|f32|m|7x8x7|b", "addmm|f32|m|1x2x1|b"),
        ("embedding|f32|r|15>13|b", "embedding|f32|r|3>3|b"),
        ("native_layer_norm|f32|r|13.7|b", "native_layer_norm|f32|r|3.1|b"),
    ],
)
def test_recorded_operators_keep_no_exact_size(token: str, expected: str) -> None:
    assert canonical(token) == expected


@given(st.one_of(st.text(max_size=80), st.text("_Z19ab<>():,* 0ul{}[]#", max_size=60)))
def test_any_text_has_a_canonical_name(name: str) -> None:
    for policy in (NamePolicy(), FOLD, NamePolicy("fold", "fold")):
        assert canonical(name, policy) or not name
        name_hash(name, policy)


def test_a_name_hash_is_blake2b_of_the_canonical_name() -> None:
    expected = hashlib.blake2b(b"volta_sgemm_128x64_tt", digest_size=8).digest()

    assert name_hash("volta_sgemm_128x64_tt") == int.from_bytes(expected, "little")


def test_a_key_changes_every_hash_and_the_salt() -> None:
    names = ["gemm", "relu", "softmax"]
    plain, keyed, other = NameHashes(), NameHashes(key=b"k" * 32), NameHashes(key=b"o" * 32)

    hashes = [table.of(names).tolist() for table in (plain, keyed, other)]

    assert len({value for row in hashes for value in row}) == 9
    assert len({plain.salt, keyed.salt, other.salt}) == 3
    assert plain.salt == 0


def test_a_table_that_grows_keeps_its_hashes() -> None:
    table = NameHashes()

    first = table.of(["a", "b"]).tolist()

    assert table.of(["a", "b", "c"]).tolist() == [*first, name_hash("c")]
    assert table.of(["a"]).tolist()[:1] == first[:1]
