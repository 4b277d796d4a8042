"""What a kernel does, by its name: the kinds that a categorical histogram counts and that tools tell apart.

Names are a convention, not a contract, so `other` is an honest answer. Rules are tried in order, those that
are hard to mistake first: `nccl` before `reduce`, `implicit_gemm` (a convolution) before `gemm`.
"""

from __future__ import annotations

import functools
import re

KIND_COUNTER = "kernel_kind"
"""Name of the counter that holds what a kernel does; its numbers have no mean."""
KINDS = ("gemm", "conv", "attention", "elementwise", "reduction", "copy", "collective", "other")

_WORDS = {
    "collective": (
        r"nccl|rccl|msccl|oneccl|nvshmem|\bMPI_|all_?reduce|all_?gather|reduce_?scatter|cross_device_reduce",
    ),
    "attention": (r"attention|attn|(?<!cache_)flash|fmha|sdpa",),
    "conv": (
        r"conv(?!ert)|cudnn.*(engine|offsets)|winograd|scudnn|[dw]grad|fprop|implicit_gemm|igemm",
        r"im[23]d2col|im2col|miopen.*sp3",
    ),
    "gemm": (r"(?<!fb)gemm|gemv|matmul|cijk_|nvjet|bmm_|cublas|cutlass|splitk|_mma_|wmma|dot_kernel",),
    "copy": (
        r"mem(cpy|set)|copy|transpose|permute|concat|catarray|nchwtonhwc|nhwctonchw|gather|scatter",
        r"index_?select|fill|reshape|embedding_?(codegen_)?forward",
    ),
    "reduction": (
        r"reduc|softmax|norm|bn_[fb]w|sum(?!mar)|arg(max|min)|scan|sort|topk|kth|pool|histogram",
        r"triton_(red|per)|moments|gammabeta",
    ),
    "elementwise": (
        r"elementwise|vectorized|pointwise|triton_poi|multi_tensor_apply|loop_|wrapped_|transform",
        r"relu|gelu|silu|swiglu|dropout|rotary|cast|convert|quant",
        r"(add|addition|sub|subtract|mul|multiply|div|divide|compare|select|exp|scal)_kernel",
    ),
}
_RULES = tuple((kind, re.compile("|".join(words), re.IGNORECASE)) for kind, words in _WORDS.items())


@functools.lru_cache(maxsize=65_536)
def kind_of(name: str) -> str:
    """One of `KINDS`, by a kernel's name, demangled or canonical."""
    for kind, pattern in _RULES:
        if pattern.search(name):
            return kind
    return "other"


def kind_number(name: str) -> int:
    """Position of a kernel's kind in `KINDS`: the value of the counter `kernel_kind`."""
    return KINDS.index(kind_of(name))
