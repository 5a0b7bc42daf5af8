"""Who acted as an owner, what nodes said of owners, and whether their views agree.

Facts are versions of bundles: that the log gave version 7 of a bundle to a node is told by pages of
all nodes, and never changes. A fact that has been told is known to the whole world. So a node that
is asked after that, and acts as the owner by an older version, is one owner too many: it is judged
by the times of question and answer, not by what it believes.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from faults.promises import Line, Promise, Violation

ACT_S: Final = 1.0  # an act may be answered by what held so long ago: a busy machine's thread
LEASE_S: Final = 4.0  # for so long a node may answer from what it had before it was cut off
LATER_S: Final = 10.0  # a version that is told so late may have been there before
_NO_VIEW: Final = ("joining", "stopped")


@dataclass(frozen=True, slots=True)
class _Fact:
    holder: str
    state: str
    known_at: float


@dataclass(slots=True)
class _Facts:
    """Of each bundle, by version."""

    bundles: defaultdict[str, dict[int, _Fact]] = field(default_factory=lambda: defaultdict(dict))

    def holders(self, topic: str, before: float, after: float) -> set[str] | None:
        """All nodes that may have held the topic's bundle at a moment between two.

        `before`: what was known then is the oldest that counts. None if too little is known.
        """
        position = zlib.crc32(topic.encode())
        parts = {
            name: (begin, end)
            for name in self.bundles
            for begin, end in [_range(name)]
            if begin <= position < end
        }
        found: set[str] = set()
        for name, (begin, end) in parts.items():
            facts = self.bundles[name]
            if any(
                b >= begin and e <= end and (b, e) != (begin, end) and self._is_known(part, before)
                for part, (b, e) in parts.items()
            ):
                continue  # it had been split
            oldest = max((v for v, fact in facts.items() if fact.known_at < before), default=0)
            possible = [
                v for v, fact in facts.items() if v >= oldest and fact.known_at <= after + LATER_S
            ]
            if not possible:
                continue
            if not oldest or len(possible) != max(possible) - oldest + 1:
                return None
            found |= {facts[version].holder for version in possible}
        return found or None

    def _is_known(self, name: str, before: float) -> bool:
        return any(fact.known_at < before for fact in self.bundles[name].values())


def judged(lines: Sequence[Line]) -> Iterator[Violation]:
    """Two owners, wrong look-ups, views that differ."""
    facts = _Facts()
    yield from _gather(facts, lines)
    yield from _differing_views(lines)
    for line in lines:
        if line.get("stale", True):
            continue
        node, asked, at = line["node"], line["asked"], line["at"]
        match line["what"]:
            case "controlled":
                holders = facts.holders(line["topic"], asked - ACT_S, at)
                if holders is not None and node not in holders:
                    what = f"{node} acted as the controller of {line['topic']}, owned by {holders}"
                    yield Violation(Promise.TWO_OWNERS, what, at)
            case "lookup" if line["owner"] == node:
                holders = facts.holders(line["topic"], asked - ACT_S, at)
                if holders is not None and node not in holders:
                    what = f"{node} said that it owned {line['topic']}, owned by {holders}"
                    yield Violation(Promise.TWO_OWNERS, what, at)
            case "lookup":
                holders = facts.holders(line["topic"], asked - LEASE_S - ACT_S, at)
                if holders is not None and line["owner"] not in holders:
                    what = (
                        f"{node} said that {line['owner']} owned {line['topic']}, owned by "
                        f"{holders}, and did not mark it as stale"
                    )
                    yield Violation(Promise.WRONG_LOOKUP, what, at)


def _gather(facts: _Facts, lines: Sequence[Line]) -> Iterator[Violation]:
    """All that was told; two that tell a version differently have views that differ."""
    for line in lines:
        if line["what"] != "ownership":
            continue
        for bundle, version, state, holder in line["bundles"]:
            known = facts.bundles[bundle].get(version)
            if known is None:
                facts.bundles[bundle][version] = _Fact(holder, state, line["at"])
            elif (known.holder, known.state) != (holder, state):
                what = (
                    f"version {version} of {bundle}: {known.state} {known.holder}, "
                    f"but for {line['node']} {state} {holder}"
                )
                yield Violation(Promise.VIEWS, what, line["at"])


def _differing_views(lines: Sequence[Line]) -> Iterator[Violation]:
    digests: dict[int, tuple[str, str]] = {}
    for line in lines:
        if line["what"] != "view" or line["mode"] in _NO_VIEW:
            continue
        node, digest = digests.setdefault(line["offset"], (line["node"], line["digest"]))
        if digest != line["digest"]:
            what = f"{node} and {line['node']} differ in what they have read up to {line['offset']}"
            yield Violation(Promise.VIEWS, what, line["at"])


def _range(bundle: str) -> tuple[int, int]:
    """Where it begins, and behind its end; the last one includes its end."""
    begin, end = (int(part, 16) for part in bundle.split("_"))
    return begin, end + (end == 0xFFFF_FFFF)
