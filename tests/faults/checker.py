"""Judges a history of the workload. Imports nothing of the product, and believes nothing it says.

`promises.py` has the names of what is promised. Each part judges some of them: `messages.py` what
Kafka has, `deliveries.py` what subscriptions received, `takeovers.py` how
soon one received what another one had, `ownership.py` what nodes did and said,
`rivals.py` what they granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from faults import deliveries, messages, ownership, rivals, takeovers
from faults.promises import Line, Promise, Violation


def violations(history: Iterable[Line]) -> list[Violation]:
    """All that the history, which is in the order of time, shows to be broken."""
    lines = list(history)
    found = _of_the_run(lines)
    found += ownership.judged(lines)
    found += rivals.judged(lines)
    found += takeovers.judged(lines)
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
