"""The example package of strategies, built and unpacked as an installer does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

_PACKAGE = Path(__file__).parents[1] / "example_strategies"


def installed_in(folder: Path) -> Path:
    """Where Python finds it, below the folder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, capture_output=True, cwd=_PACKAGE, timeout=120)
    [wheel] = folder.glob("even_keel-*.whl")
    site = folder / "site"
    ZipFile(wheel).extractall(site)
    return site
