"""Judges a history of the workload. Imports nothing of the product, and believes nothing it says.

`promises.py` has the names of what is promised. Each part judges some of them: `messages.py` what
Kafka has, `deliveries.py` what subscriptions received, `ownership.py` what nodes did and said,
`rivals.py` what they granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from faults import deliveries, messages, ownership, rivals
from faults.history import History
from faults.promises import Line, Promise, Violation

VERDICT: Final = "audit.json"
_VIOLATIONS: Final = 1  # the exit status of an audit that has found some
_SAID_MAX: Final = 500


def violations(history: Iterable[Line]) -> list[Violation]:
    """All that the history, which is in the order of time, shows to be broken."""
    lines = list(history)
    found = _of_the_run(lines)
    found += ownership.judged(lines)
    found += rivals.judged(lines)
    if any(line["what"] == "read" for line in lines):
        seen = messages.Messages.of(lines)
        found += messages.judged(seen)
        found += deliveries.judged(lines, seen)
    else:
        at = lines[-1]["at"] if lines else 0.0
        found.append(Violation(Promise.ENDED, "the workload did not come to its end", at))
    return found


def _of_the_run(lines: Sequence[Line]) -> list[Violation]:
    found = []
    for line in lines:
        match line["what"]:
            case "fault" | "unread":
                found.append(Violation(Promise.FAULT, line["why"], line["at"]))
            case "audit" if line["status"] != 0:
                found.append(Violation(Promise.AUDIT, line["why"], line["at"]))
    return found


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
