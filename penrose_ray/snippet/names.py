"""One spelling for a kernel, whichever tool reported it."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from penrose_ray.snippet.mangled import identifiers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NamePolicy:
    """What of a kernel's spelling makes its identity.

    `templates`: `keep` the names of functors and types among template arguments, without numbers and
    namespaces, or `fold` all arguments away, as tools do that report short names only. `architectures`:
    `keep` prefixes such as `volta_` and `sm80_`, or `fold` them so that library kernels of two generations
    of GPU share a name.
    """

    templates: Literal["keep", "fold"] = "keep"
    architectures: Literal["keep", "fold"] = "keep"


DEFAULT_POLICY = NamePolicy()

_SUFFIX = re.compile(r"(?:\s*\[clone [^\]]*\]|\s*\(\.kd\)|\.kd|\.clone(?:\.\d+)?)+$")
_NAMELESS = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}|_GLOBAL__N_[\w.]*")
_CAST = re.compile(r"\((?:unsigned |signed |long |short )*[A-Za-z_][\w:]*(?: \*)*\)\s*(?=[-\d])")
_INSTANCE = re.compile(r"\(instance \d+\)|#\d+")
_SPACES = re.compile(r"(?:[A-Za-z_~]\w*\s*(?:::\s*)+)+(?=[A-Za-z_~{\[])|::")
_PARAMETERS = re.compile(r"\([^()]*\)")
_NUMBER = re.compile(r"\b\d\w*")
_BUILD_HASH = re.compile(
    r"_(?=_[0-9a-f]{8}_\d+_)_[0-9a-f]{8}_\d+(?=_)|_(?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}(?=_|$)"
)
_TRITON_NUMBER = re.compile(r"^(triton_.*?)(?:_\d+)+$")
_TRITON_SIGNATURE = re.compile(r"_(?:\d+(?:de|[dce]))+\d*$")
_ARCHITECTURE = re.compile(
    r"(?<![A-Za-z0-9])(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm_?\d{2,3}[a-z]?|gfx[0-9a-f]{3,4})"
    r"(?=_|$)"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_NOT_IDENTITY = frozenset(
    {"const", "volatile", "unsigned", "signed", "true", "false", "enum", "void", "array", "Array"}
)
_OPERATOR = re.compile(r"([\w.]+\|\w+\|)([efrmv])\|([\dx.>]*)\|([csb])")
_DIGITS = re.compile(r"\d{1,18}")  # Python refuses to read a number of thousands of digits
_SIZE_CLASS = 4


@functools.lru_cache(maxsize=65_536)
def canonical(name: str, policy: NamePolicy = DEFAULT_POLICY) -> str:
    """`name` as its author would call it: no return type, parameters, namespaces, clone marks, build hashes.

    Understands what Kineto, nsys (demangled and short), Nsight Compute and ROCm's tools write, mangled
    names, Triton's and Inductor's numbering, and recorded operators `name|dtype|kind|size|layout`, whose
    sizes are folded: elementwise ones altogether, others into classes of four powers of two. A name of
    which nothing would be left stays as it is.
    """
    if operator := _OPERATOR.fullmatch(name):
        return _operator(operator)
    text = _SUFFIX.sub("", name.strip())
    if text.startswith("_Z"):
        base, arguments = identifiers(text)
    else:
        base, arguments = _parted(_NAMELESS.sub("", text))
        base = _base(base)
    base = _TRITON_SIGNATURE.sub("", _BUILD_HASH.sub("", base))
    if triton := _TRITON_NUMBER.match(base):
        base = triton[1]
    kept = _arguments(arguments) if policy.templates == "keep" else ""
    short = f"{base}<{kept}>" if kept else base
    if policy.architectures == "fold":
        short = _ARCHITECTURE.sub("arch", short)
    return short.strip().rstrip("_") or name


def _operator(found: re.Match[str]) -> str:
    operator, kind, size, layout = found.groups()
    if kind in "ef":
        return f"{operator}{kind}|{layout}"
    classes = _DIGITS.sub(lambda each: str(int(each[0]) // _SIZE_CLASS), size)
    return f"{operator}{kind}|{classes}|{layout}"


def _parted(name: str) -> tuple[str, str]:
    """What stands outside of `<...>` and before the parameters, and what stands inside of the brackets."""
    outside: list[str] = []
    inside: list[str] = []
    depth = 0
    for index, letter in enumerate(name):
        before = name[index - 1 : index]
        if letter in "<{" and not name.endswith("operator", 0, index):
            depth += 1
        elif letter in ">}" and depth and before != "-":
            depth -= 1
        elif depth:
            inside.append(letter)
            continue
        elif letter == "(" and "".join(outside).strip() and not name.endswith("operator", 0, index):
            break
        else:
            outside.append(letter)
        inside.append(" ")
    return "".join(outside), "".join(inside)


def _base(outside: str) -> str:
    """The last component of a path, after a return type."""
    path = re.sub(r"\s*::\s*", "::", outside.strip())
    if "operator" in path:
        return path[path.index("operator") :]
    words = path.split()
    return words[-1].rsplit("::", 1)[-1] if words else ""


def _arguments(text: str) -> str:
    """Names of types and functors, in order, without numbers, casts, namespaces and qualifiers."""
    plain = _INSTANCE.sub("", _CAST.sub("", text))
    while plain != (shorter := _PARAMETERS.sub(" ", plain)):
        plain = shorter
    plain = _NUMBER.sub("", _SPACES.sub("", plain))
    return " ".join(word for word in _WORD.findall(plain) if word not in _NOT_IDENTITY)


class NameHashes:
    """64-bit hashes of canonical names, for a table that only grows."""

    def __init__(self, policy: NamePolicy = DEFAULT_POLICY, key: bytes = b"") -> None:
        """A `key` of up to 64 bytes makes hashes that nobody without it can compute."""
        self._policy = policy
        self._key = key
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)

    @property
    def salt(self) -> int:
        """What hides the shape of a program (see `shape.py`) from those without the key; 0 without a key."""
        if not self._key:
            return 0
        return int.from_bytes(hashlib.blake2b(b"shape", digest_size=8, key=self._key).digest(), "little")

    def of(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Hash of each entry of `names`, shape (len(names),); earlier entries are not hashed again."""
        known = len(self._hashes)
        if len(names) > known:
            fresh = [name_hash(names[index], self._policy, self._key) for index in range(known, len(names))]
            self._hashes = np.concatenate((self._hashes, np.array(fresh, np.uint64)))
        return self._hashes


def name_hash(name: str, policy: NamePolicy = DEFAULT_POLICY, key: bytes = b"") -> int:
    """First 8 bytes (little-endian) of the (keyed) BLAKE2b hash of the canonical name (RFC 7693)."""
    digest = hashlib.blake2b(canonical(name, policy).encode(errors="surrogatepass"), digest_size=8, key=key)
    return int.from_bytes(digest.digest(), "little")
