"""`penrose doctor`: the list, its status, and its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.cli import checks

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text()


def test_a_gpus_host_gets_a_list_with_a_remedy_for_whatever_is_not_ok(call: Call, tmp_path: Path) -> None:
    code, out, err = call("doctor", "--format", "json", "--state", tmp_path / "state")
    found = json.loads(out)
    assert code in (0, 16), err
    assert all(list(each) == ["name", "status", "detail", "remedy"] for each in found)
    assert all(each["remedy"] for each in found if each["status"] != "ok")
    assert (code == 16) == any(each["status"] == "fail" for each in found)
    names = {each["name"] for each in found}
    assert {"kernel", "driver", "gpu-counters", "sources", "memory", "clock", "disk", "tor"} <= names


def test_a_service_without_its_key_is_unfit(call: Call, tmp_path: Path) -> None:
    options = [
        f"--set=service.state_dir={tmp_path / 'state'}",
        f"--set=design_server.task_file={tmp_path / 'missing.task'}",
        "--set=service.port=0",
        "--set=design_server.create_key=false",
        f"--set=policy_file={ROOT / 'configs' / 'policy.toml'}",
    ]
    code, out, err = call(
        "doctor", ROOT / "configs" / "fleet.toml", *options, "--gpus", 1000, "--format", "json"
    )
    found = {each["name"]: each for each in json.loads(out)}
    assert code == 16
    assert "docs/exit-codes.md#unfit" in err
    assert (found["task"]["status"], found["task"]["remedy"]) == ("fail", "Get it from the design server.")
    assert (found["key"]["status"], found["key"]["remedy"]) == ("ok", "")
    assert found["coverage"]["status"] == "fail"
    assert "task.sampling_interval = " in found["coverage"]["remedy"]
    assert {"port", "ray", "ray-token", "journals", "size"} <= found.keys()


def test_brackets_in_a_remedy_are_printed(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("doctor", "--state", tmp_path / "state")
    assert code in (0, 16)
    assert "penrose-ray[" in out or "cupti: " not in out


def test_every_check_has_a_row_on_its_page() -> None:
    code = "".join(path.read_text() for path in Path(checks.__file__).parent.glob("*.py"))
    names = set(re.findall(r'\b(?:fine|warning|failure|private)\(\s*"([a-z-]+)"', code)) | {
        "port",
        "tls-port",
    }
    names |= {"passphrase", "credential", "hsm", "state", "ledger-key", "service-key", "metrics-token"}
    assert len(names) > 20
    assert names == set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE))
