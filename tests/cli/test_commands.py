"""Commands that need no service."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from e2e import fleet

from penrose_ray import __version__
from penrose_ray.crypto.keyfile import write_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

SAMPLE = Path(__file__).parents[2] / "penrose_ray" / "capture" / "samples" / "sort.json.gz"


def test_version_and_help(call: Call) -> None:
    assert call("version") == (0, f"{__version__}\n", "")
    code, out, _ = call("--help")
    assert code == 0
    for command in ("run", "inspect", "classify", "keys", "task"):
        assert command in out


def test_a_wrong_option_is_a_usage_error(call: Call) -> None:
    code, _, err = call("inspect", "--frmat", "json", SAMPLE)
    assert code == 2
    assert "--frmat" in err


def test_inspect_counts_what_is_in_a_trace(call: Call, tmp_path: Path) -> None:
    made = tmp_path / "made.json.gz"
    fleet.write_trace(made, seed=1, rounds=1)
    code, out, _ = call("inspect", made, SAMPLE, "--format", "json")
    first, second = json.loads(out)
    assert code == 0
    assert (first["kernels"], first["distinct_names"], first["devices"], first["streams"]) == (1600, 27, 1, 1)
    assert second["kernels"] == 15_600
    assert {"file", "format", "operators_linked", "health", "error"} <= first.keys()


def test_inspect_names_a_bad_file_and_still_counts_the_good_one(call: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("this is no trace")
    code, out, _ = call("inspect", bad, SAMPLE, "--format", "csv")
    assert code == 0
    assert str(bad) in out
    assert ",15600," in out

    code, _, err = call("inspect", bad, tmp_path / "missing.json")
    assert code == 20
    assert "docs/exit-codes.md#trace" in err


def test_classify_recognises_the_same_program_in_two_files(call: Call, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    fleet.write_trace(first, seed=1, rounds=1)
    fleet.write_trace(second, seed=2, rounds=1)
    code, out, _ = call("classify", first, second, "--length", fleet.SNIPPET, "--format", "json")
    result = json.loads(out)
    assert code == 0
    assert result["classes"] == 2
    assert [each["class"] for each in result["windows"]] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert {each["file"] for each in result["windows"]} == {str(first), str(second)}
    assert all(each["jaccard"] > 0.85 for each in result["windows"])


def test_classify_without_one_readable_file_ends_with_20(call: Call, tmp_path: Path) -> None:
    assert call("classify", tmp_path / "missing.json")[0] == 20


def test_a_key_file_is_shown_by_its_public_halves_only(
    call: Call, tmp_path: Path, design_keys: DesignKeys
) -> None:
    path = tmp_path / "design.key"
    write_keys(path, design_keys, passphrase=None)
    public = design_keys.paillier.public_key

    assert call("keys", "fingerprint", path) == (0, f"{public.fingerprint}\n", "")
    code, out, _ = call("keys", "show", path, "--format", "json")
    (shown,) = json.loads(out)
    assert code == 0
    assert shown["bits"] == 3072
    assert shown["signer"] == design_keys.signing.public_key().public_bytes_raw().hex()
    assert int(shown["modulus"], 16) == public.n
    assert f"{design_keys.paillier.factors()[0]:x}" not in out


def test_new_keys_are_for_their_owner_only_and_never_overwrite(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "new.key"
    code, out, err = call("keys", "new", path)
    assert code == 0, err
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert call("keys", "fingerprint", path)[1] == out
    before = path.read_bytes()
    code, _, err = call("keys", "new", path)
    assert code == 10
    assert "candidates" not in err, "found out before the key is made"
    assert path.read_bytes() == before


def test_a_passphrase_protects_the_key(
    call: Call,
    tmp_path: Path,
    design_keys: DesignKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "design.key"
    write_keys(path, design_keys, passphrase=b"correct horse")
    monkeypatch.setenv("PASS", "wrong")
    assert call("keys", "show", path, "--passphrase-variable", "PASS")[0] == 32
    assert call("keys", "show", path)[0] == 32
    assert call("keys", "show", path, "--passphrase-variable", "UNSET_VARIABLE")[0] == 10
    monkeypatch.setenv("PASS", "correct horse")
    assert call("keys", "show", path, "--passphrase-variable", "PASS")[0] == 0
    copied = tmp_path / "copy.key"
    shutil.copy(path, copied)
    copied.chmod(0o640)
    assert call("keys", "show", copied)[0] == 31
