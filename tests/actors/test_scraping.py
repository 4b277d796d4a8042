"""The token of /metrics: who may read, with and without one."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from e2e.http_service import HttpService
from e2e.service_config import settings_in

from penrose_ray.actors.scraping import Scrapers, is_alone
from penrose_ray.crypto.secretfile import own_token
from penrose_ray.errors import KeyFormatError, KeyPermissionError
from penrose_ray.settings import TlsSettings, TorSettings, TransportSettings
from penrose_ray.task import sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


@pytest.fixture
def serve(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys
) -> Iterator[Callable[[Scrapers], HttpService]]:
    signed = sign(make_task(reports_per_class=0, cover_rate=0.0), design_keys.signing).encode()
    made: list[HttpService] = []

    def start(scrapers: Scrapers) -> HttpService:
        made.append(HttpService(tmp_path, signed, scrapers=scrapers))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_only_who_has_the_token_reads_the_page(
    serve: Callable[[Scrapers], HttpService], tmp_path: Path
) -> None:
    token_file = tmp_path / "keys" / "metrics.token"
    service = serve(Scrapers.known(token_file, alone=True))
    token = token_file.read_text().strip()
    wrong = (f"Bearer {token}x", f"Bearer {token[:-1]}", "Bearer", "Bearer \u00ff", f"Basic {token}", token)
    for given in ({}, *({"Authorization": each} for each in wrong)):
        status, headers, raw = service.request("GET", "/metrics", headers=given)
        problem = json.loads(raw)
        assert (status, problem["title"]) == (401, "metrics-token"), given
        assert "service.metrics_token_file" in problem["remedy"]
        assert headers["WWW-Authenticate"].startswith("Bearer")
        assert token not in raw.decode()
    status, _, raw = service.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    assert (status, b"penrose_up" in raw) == (200, True)
    assert service.request("GET", "/health")[0] == 200


@pytest.mark.parametrize(("alone", "status"), [(True, 200), (False, 403)])
def test_without_a_token_the_page_is_open_only_where_nobody_else_gets_in(
    serve: Callable[[Scrapers], HttpService], *, alone: bool, status: int
) -> None:
    service = serve(Scrapers.known(None, alone=alone))
    assert service.request("GET", "/metrics")[0] == status
    assert service.request("GET", "/metrics", headers={"Authorization": "Bearer "})[0] == status


def test_who_gets_in_is_a_matter_of_the_settings(tmp_path: Path, design_keys: DesignKeys) -> None:
    settings, _ = settings_in(tmp_path, design_keys)
    service = settings.service
    here = tmp_path / "x"
    tls = TlsSettings(port=8443, certificate=here, key=here, clients=here)
    plain = settings.transport
    assert is_alone(service, plain)
    for host, alone in (("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.7", False)):  # noqa: S104
        assert is_alone(service.model_copy(update={"host": host}), plain) is alone
    for transport in (TransportSettings(tor=TorSettings(home=here)), TransportSettings(tls=tls)):
        assert not is_alone(service, transport)


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "metrics.token"
    token = own_token(path)
    assert (len(token), own_token(path)) == (43, token)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208 - names are all that matters
    assert own_token(tmp_path / "other") != token


def test_a_token_that_others_can_read_or_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.token"
    path.touch(mode=0o600)
    for text in ("", "\n", "short", "two words of some length", "x" * 15, "\u00e9" * 20):
        path.write_text(text)
        with pytest.raises(KeyFormatError, match="holds no token"):
            own_token(path)
    path.write_text("c2NyYXBlIG1lIG5vdA==\n")
    assert own_token(path) == "c2NyYXBlIG1lIG5vdA=="
    path.chmod(0o640)
    with pytest.raises(KeyPermissionError, match="mode 0640"):
        own_token(path)
