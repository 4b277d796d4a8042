"""The documents: links lead somewhere, commands and configurations exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.cli.app import COMMANDS
from penrose_ray.draft import task_from
from penrose_ray.policy import load_policy
from penrose_ray.settings import load_settings

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

ROOT = Path(__file__).parents[1]
GIT = shutil.which("git") or "git"
TRACKED = subprocess.run(
    [GIT, "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
)
DOCUMENTS = sorted({name for name in TRACKED.stdout.splitlines() if name.endswith(".md")})
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.skipif(not DOCUMENTS, reason="this is not a git checkout")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{name}: {link}"


def test_commands_in_the_readme_exist() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "docs/exit-codes.md"):
        for used in re.findall(r"`?(?:\.venv/bin/)?penrose ([a-z]+)", (ROOT / name).read_text()):
            assert used in COMMANDS, f"{name}: penrose {used}"


def test_the_architecture_names_every_module_of_the_base_and_the_actors_and_every_folder() -> None:
    """The folders of the stages are named as wholes; there each module says itself what it is for."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "penrose_ray"
    modules = [*package.glob("*.py"), *(ROOT / "actors").glob("*.py")]
    wanted = [each.name for each in modules if each.name != "__init__.py"]
    roots = {"penrose_ray": package, "actors": ROOT, "crypto": ROOT, "sim": ROOT}
    for name, base in roots.items():
        wanted += [f"{each.parent.relative_to(base)}/" for each in (ROOT / name).rglob("*/__init__.py")]
    assert "settings.py" in wanted
    assert "capture/tools/" in wanted
    assert [each for each in sorted(wanted) if not re.search(rf"(?<!\w){re.escape(each)}", text)] == []


def test_the_laptop_configuration_is_accepted_with_its_policy(design_keys: DesignKeys) -> None:
    settings, draft = load_settings(ROOT / "configs" / "laptop.toml")
    task = task_from(draft, design_keys.paillier.public_key)
    policy = load_policy(ROOT / settings.policy_file)

    policy.check(task)
    assert task.demo
    assert {each.kind for each in settings.clients} == {"gpu", "replay"}
