"""Puts the jars of Spark's connectors into the image's cache, each held against its checksum."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.jars.artifacts import Artifact
from anabranch.jars.cache import resolve

given = Path(sys.argv[1])


def copy(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Takes them from the folder that `make images` has filled."""
    for artifact in artifacts:
        shutil.copy(given / artifact.file_name, folder)


resolve("spark", fetch=copy)
