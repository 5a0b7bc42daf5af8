"""A run in plain text: how much was done, each fault, each violation with the lines that show it.

`python3 -m faults.timeline FOLDER` judges the histories in the folder of a run once more, and
writes its `timeline.txt`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from faults.checker import violations
from faults.history import read
from faults.promises import Line, Violation

PAGE: Final = "timeline.txt"
_LINES_MAX: Final = 40  # shown of a violation
_AROUND_S: Final = 3.0
_OWNING: Final = ("lookup", "controlled", "ownership", "view")
_DONE: Final = ("operation", "not_operated", "started", "stopped", "consumer_failed")


def write(folder: Path, title: str, lines: Sequence[Line], found: Sequence[Violation]) -> Path:
    """The listing of the run in the folder; its times are seconds since the first line."""
    path = folder / PAGE
    path.write_text("".join(f"{text}\n" for text in _listing(title, lines, found)))
    return path


def _listing(title: str, lines: Sequence[Line], found: Sequence[Violation]) -> Iterator[str]:
    begin = lines[0]["at"] if lines else 0.0

    def shown(line: Line) -> str:
        fields = {name: value for name, value in line.items() if name not in ("at", "what")}
        return f"{line['at'] - begin:9.3f} {line['what']:<15} {json.dumps(fields)}"

    yield title
    counts = Counter(line["what"] for line in lines)
    yield from (f"{count:9,} {what}" for what, count in counts.most_common())
    yield "\nFaults and operations:"
    yield from (shown(line) for line in lines if "fault" in line or line["what"] in _DONE)
    yield f"\nViolations: {len(found)}"
    for each in sorted(found, key=lambda each: each.at):
        yield f"\n{each.at - begin:9.3f} {each.promise}: {each.what}"
        evidence = [line for line in lines if _is_about(line, each)]
        yield from map(shown, evidence[:_LINES_MAX])
        if len(evidence) > _LINES_MAX:
            yield f"and {len(evidence) - _LINES_MAX} more"


def _is_about(line: Line, violation: Violation) -> bool:
    """Whether it is about the violation's message; without one, about owners at that time."""
    if violation.message is not None:
        return (line.get("key"), line.get("number")) == violation.message
    near = abs(line["at"] - violation.at) < _AROUND_S
    return near and (line["what"] in _OWNING or "fault" in line)


if __name__ == "__main__":
    run = Path(sys.argv[1])
    history = read(run / "history", run / "faults.jsonl")
    print(write(run, f"Faults: {run}", history, violations(history)))  # noqa: T201
