"""The documentation site: `make docs`. Sources are Markdown anywhere in the repository, read in place."""

from __future__ import annotations

import sys
from pathlib import Path

from penrose_ray import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "penrose-ray"
release = __version__
copyright = "the penrose-ray maintainers, Apache-2.0"  # noqa: A001 - Sphinx' name
root_doc = "docs/index"
include_patterns = ["docs/**.md", "*.md", "crypto/*.md"]
exclude_patterns = [".*", "out", "build", "dist", "*.egg-info"]
extensions = ["myst_parser", "reference"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = f"penrose-ray {__version__}"
nitpicky = True
smartquotes = False  # -- is the beginning of an option
