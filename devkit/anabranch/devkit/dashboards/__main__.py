"""Writes the dashboards' JSON into a folder: `python -m anabranch.devkit.dashboards FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.devkit.dashboards import DASHBOARDS


def main() -> None:
    """Writes each dashboard into a file of its name."""
    folder = Path(sys.argv[1])
    for each in DASHBOARDS:
        (folder / f"{each.name}.json").write_text(each.json(), encoding="utf-8")


if __name__ == "__main__":
    main()
