"""The jars that we run on, by the committed checksum files.

One line per jar: `sha256 organisation:name:version`. The lists are complete, so fetching resolves
nothing.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anabranch.jars.errors import ChecksumMismatchError

JarSet = Literal["kafka", "spark", "tools", "kafka-3.6", "kafka-4.0", "kafka-4.1"]
JAR_SETS: tuple[JarSet, ...] = ("kafka", "spark")
TEST_SETS: tuple[JarSet, ...] = ("tools",)  # Kafka's command-line tools, beside its own jars
OLD_SETS: tuple[JarSet, ...] = ("kafka-3.6", "kafka-4.0", "kafka-4.1")  # for `make test-long`
_CHECKSUMS = Path(__file__).with_name("checksums")
_LINE = re.compile(r"([0-9a-f]{64}) ([\w.\-]+):([\w.\-]+):([\w.\-]+)")


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One jar: its coordinates in a Maven repository, and the digest of the bytes we accept."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the jar in a folder of jars."""
        return f"{self.name}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.version}"


def checksum_file(jar_set: JarSet) -> Path:
    """Returns the committed list of a set."""
    return _CHECKSUMS / f"{jar_set}.txt"


def committed(jar_set: JarSet) -> list[Artifact]:
    """Returns the artifacts of a set, in the order of its file."""
    lines = checksum_file(jar_set).read_text(encoding="ascii").splitlines()
    return [parse_line(line) for line in lines if line and not line.startswith("#")]


def parse_line(line: str) -> Artifact:
    """Parses one line of a checksum file."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"not a line of a checksum file: {line!r}")
    sha256, organisation, name, version = match.groups()
    return Artifact(organisation, name, version, sha256)


def sha256_of(path: Path) -> str:
    """Returns the digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, artifacts: Iterable[Artifact]) -> None:
    """Checks that every artifact is in the folder, byte for byte.
    Raises `ChecksumMismatchError`.
    """
    for artifact in artifacts:
        path = folder / artifact.file_name
        actual = sha256_of(path) if path.is_file() else "no such file"
        if actual != artifact.sha256:
            raise ChecksumMismatchError(
                f"{artifact} does not have the committed checksum: expected {artifact.sha256}, "
                f"found {actual} ({path}). Nothing of it was used. If it came through a mirror or "
                "proxy, that one serves other bytes than the public repository; correct it and "
                "run the command again."
            )
