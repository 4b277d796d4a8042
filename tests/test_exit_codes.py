"""Every error has a code of its own, and a section that explains it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import penrose_ray
from penrose_ray.actors import gateway, intake, issuer, keyserver, problems, proofs, scraping
from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.errors import PenroseError

PAGE = (Path(__file__).parents[1] / "docs" / "exit-codes.md").read_text()
FACES = (gateway, intake, issuer, keyserver, proofs, scraping)
SECTIONS = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def all_errors() -> set[type[PenroseError]]:
    for module in pkgutil.walk_packages(penrose_ray.__path__, "penrose_ray."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {PenroseError}
    waiting = [PenroseError]
    while waiting:
        below = waiting.pop().__subclasses__()
        found.update(below)
        waiting.extend(below)
    return {each for each in found if each.__module__.startswith("penrose_ray.")}


def test_every_error_has_a_section_with_its_exit_code_and_a_remedy() -> None:
    for error in all_errors():
        section = SECTIONS.get(error.code, "")
        assert f"Exit code {error.exit_code}" in section, error
        assert "Remedy: " in section, error


def test_codes_of_one_name_share_an_exit_code_and_others_do_not() -> None:
    codes = {error.code: error.exit_code for error in all_errors()}
    shared = [code for code in codes.values() if list(codes.values()).count(code) > 1]
    assert set(shared) <= {40}, "only transport and busy share one"


def test_every_refusal_over_http_has_a_section() -> None:
    source = "".join(Path(str(module.__file__)).read_text() for module in FACES)
    codes = set(re.findall(r'(?:Refused|problem)\((?:\d+, )?"([a-z-]+)"', source))
    codes |= set(problems._REMEDIES)
    codes |= {each.value for each in Outcome if not each.acknowledged}
    assert {"wrong-task", "too-large", "too-late", "no-name-key"} <= codes
    for code in codes:
        assert "Remedy: " in SECTIONS.get(code, ""), code
