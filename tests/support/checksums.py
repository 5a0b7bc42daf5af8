"""Writes the checksum files again, from the artifacts that we name and all that they depend on.

It is for maintainers, after a change of version: `make checksums`, then read the difference.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from anabranch.jars import ivy
from anabranch.jars.artifacts import (
    JAR_SETS,
    OLD_SETS,
    TEST_SETS,
    Artifact,
    JarSet,
    checksum_file,
    sha256_of,
)

_ROOTS: Final[dict[JarSet, tuple[tuple[str, str, str], ...]]] = {
    "kafka": (
        ("org.apache.kafka", "kafka_2.13", "4.3.1"),
        # Kafka logs through SLF4J and depends on Log4j, but not on what joins the two.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    "spark": (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.spark", "spark-avro_2.13", "4.0.0"),
    ),
    "tools": (("org.apache.kafka", "kafka-tools", "4.3.1"),),
    "kafka-3.6": (
        ("org.apache.kafka", "kafka_2.13", "3.6.2"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        # It calls Log4j by the names of version 1.
        ("org.apache.logging.log4j", "log4j-1.2-api", "2.25.4"),
    ),
    "kafka-4.0": (
        ("org.apache.kafka", "kafka_2.13", "4.0.2"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
    "kafka-4.1": (
        ("org.apache.kafka", "kafka_2.13", "4.1.2"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ),
}
# Kafka's own jars have all that the used tools need.
_CONFIGURATIONS: Final[dict[JarSet, str]] = {"tools": "master"}
# Unlike for fetching, descriptors are read here.
_SETTINGS: Final = """<ivysettings><settings defaultResolver="public"/>
<resolvers><ibiblio name="public" m2compatible="true"/></resolvers></ivysettings>"""
# A separator that no part of a coordinate contains.
_PATTERN: Final = "[organisation]@@[artifact]@@[revision].[ext]"


def resolved(jar_set: JarSet) -> list[Artifact]:
    """Returns the artifacts of the set, without those that PySpark brings along if Spark is to run
    it.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = folder / "settings.xml"
        settings.write_text(_SETTINGS, encoding="utf-8")
        taken = _CONFIGURATIONS.get(jar_set, "runtime,master")
        descriptor = ivy.module_descriptor(
            (*root, f'conf="default->{taken}"') for root in _ROOTS[jar_set]
        )
        status, said = ivy.run(descriptor, folder, settings, pattern=_PATTERN)
        if status != 0:
            raise SystemExit("\n".join(said[-30:]))
        artifacts = [_artifact(path) for path in folder.glob("*.jar")]
    if jar_set == "spark":
        there = {path.name for path in ivy.pyspark_jars().iterdir()}
        artifacts = [artifact for artifact in artifacts if artifact.file_name not in there]
    return sorted(artifacts)


def _artifact(path: Path) -> Artifact:
    organisation, name, version = path.stem.split("@@")
    return Artifact(organisation, name, version, sha256_of(path))


def main() -> None:
    """Writes every checksum file."""
    for jar_set in (*JAR_SETS, *TEST_SETS, *OLD_SETS):
        artifacts = resolved(jar_set)
        lines = [f"{artifact.sha256} {artifact}\n" for artifact in artifacts]
        header = "# Written by `make checksums`: SHA-256, organisation:name:version.\n"
        checksum_file(jar_set).write_text(header + "".join(lines), encoding="ascii")
        sys.stderr.write(f"{jar_set}: {len(artifacts)} jars\n")


if __name__ == "__main__":
    main()
