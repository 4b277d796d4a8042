"""The sample of a service that is no demo: papers, tokens and a client's enrolment fit together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e.http_party import serving

from penrose_ray.actors.identities import issuer as issuer_of
from penrose_ray.actors.issuer import application
from penrose_ray.actors.purse import Purse
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.keyfile import write_keys
from penrose_ray.draft import require_agreement
from penrose_ray.policy import OwnerPolicy
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S, Verifier
from penrose_ray.settings import EnrolmentSettings, load_settings
from penrose_ray.task import verify
from penrose_ray.toml_file import TomlFile, load_section

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

CONFIGS = Path(__file__).parents[2] / "configs"
SAMPLE = CONFIGS / "fleet-tokens.toml"


@pytest.fixture
def papers(call: Call, tmp_path: Path, design_keys: DesignKeys) -> Path:
    """The issuer's keys and the signed task, made by the commands that the sample names."""
    write_keys(tmp_path / "design_server.key", design_keys, passphrase=None)
    made = call("issuer", "new", tmp_path / "issuer.key", "--out", tmp_path / "issuer.pub", "--days", 2)
    assert made[0] == 0, made
    code, _, err = call(
        "task", "sign", SAMPLE, "--keys", tmp_path / "design_server.key", "--issuer", tmp_path / "issuer.pub",
        "--out", tmp_path / "fleet.task",
    )  # fmt: skip
    assert (code, "warning" in err) == (0, False), err
    return tmp_path


def test_the_sample_is_signed_as_a_task_that_strict_owners_take_with_its_signer_only(
    call: Call, papers: Path, design_keys: DesignKeys
) -> None:
    task = verify((papers / "fleet.task").read_bytes())
    OwnerPolicy().check(task)
    # r k + m c = 200 + 10 x 32 real reports: 611 with a tenth of them cover
    assert (task.demo, task.tokens_per_day, task.reports_needed()) == (False, 32, 611)
    settings, draft = load_settings(SAMPLE)
    require_agreement(draft, task)
    assert settings.design_server.key_file is None

    (papers / "policy.toml").write_text("")
    signer = design_keys.signing.public_key().public_bytes_raw().hex()
    run = [
        "client", "run", papers / "fleet.task", "--gateway", "http://127.0.0.1:9", "--source", "trace",
        "--policy", papers / "policy.toml", "--state", papers / "state",
    ]  # fmt: skip
    assert call(*run)[0] == 13
    code, _, err = call(*run, "--signer", signer, "--enrolment", CONFIGS / "enrolment.toml", "--dry-run")
    assert (code, "needs --trace FILE" in err) == (10, True), "everything else is in order"


def test_a_client_enrolled_as_the_sample_says_pays_with_tokens_of_the_task(
    papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, clock = verify((papers / "fleet.task").read_bytes()), SystemClock()
    keys = IssuerKeys.read(papers / "issuer.key")
    issuer = Issuer(papers / "issuer.sqlite", keys, tokens_per_day=task.tokens_per_day, clock=clock)
    sample = load_section(CONFIGS / "enrolment.toml", EnrolmentSettings)
    monkeypatch.setenv(sample.credential_variable, issuer.enrol("host-17").hex())
    assert sample.issuer_url.startswith("https://")
    with serving(application(issuer)) as url:
        party = issuer_of(sample.model_copy(update={"issuer_url": url}))
        purse = Purse(task, party, clock)
        purse.fill()
    issuer.close()
    assert purse.left(keys.first_day) == 32
    token = purse.take(keys.first_day)
    assert Verifier(task.task_id, task.issuer_keys).check(token, created_s=keys.first_day * DAY_S)
    purse.close()


def test_the_issuer_s_default_is_the_sample_s_c(call: Call) -> None:
    _, shown, _ = call("issuer", "serve", "--help")
    drafted = TomlFile(SAMPLE).table["task"]["tokens_per_day"]
    assert f"--tokens-per-day {drafted}" in SAMPLE.read_text()
    assert f"default: {drafted}" in shown
