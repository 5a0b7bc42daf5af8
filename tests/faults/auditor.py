"""What Spark's audit of the nodes' log has found, as a line of the history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from faults.history import History

VERDICT: Final = "audit.json"
_VIOLATIONS: Final = 1  # the exit status of an audit that has found some
_SAID_MAX: Final = 500


def say_verdict(history: Path, status: int | None, wrote: str) -> None:
    """`status`: of the command that wrote VERDICT into the folder, None if it did not end in time;
    `wrote`: what it said.
    """
    with History(history, "auditor") as auditor:
        if status == 0:
            auditor.say("audit", status=status, why="")
        elif status == _VIOLATIONS:
            broken = [
                f"{check['name']}: {check['witnesses'][0]['text']}"
                for check in json.loads((history / VERDICT).read_bytes())["checks"]
                if check["violated"]
            ]
            auditor.say("audit", status=status, why="; ".join(broken))
        else:
            ended = "did not end in time" if status is None else f"ended with status {status}"
            auditor.say("fault", why=f"the audit {ended}: {wrote[-_SAID_MAX:]}")
