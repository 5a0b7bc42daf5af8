"""`anabranch doctor --probe`, run on a Kafka of a test's own topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.commands import run_here


def probed(kafka: str, prefix: str, folder: Path, *flags: str) -> dict[str, dict[str, Any]]:
    """Its findings, by check."""
    found = run_here(
        *("doctor", "--bootstrap-servers", kafka, "--data-dir", str(folder)),
        *("--set", f"topicPrefix={prefix}", "--set", "replicationFactor=1", "--json"),
        *("--set", "minInsyncReplicas=1", "--probe", *flags),
    )
    return {each["check"]: each for each in json.loads(found.stdout)}
