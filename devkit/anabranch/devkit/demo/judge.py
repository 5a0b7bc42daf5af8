"""The judge of a run: it holds what arrived against what was sent, and asks no node.

Nothing may be lost or come twice, and causes come before effects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from anabranch.devkit.causality import Span, turned_round

_SHOWN: Final = 5


class TraceMessage(msgspec.Struct, frozen=True):
    """One message. `number` counts all from 0, `turn` those of its key from 0."""

    number: int
    key: str
    turn: int


class Arrival(msgspec.Struct, frozen=True):
    """A message at the place where it was found: its receiver, and its place in a segment."""

    message: TraceMessage
    by: str
    segment_id: int
    bucket: int
    offset: int


class Findings(msgspec.Struct, frozen=True):
    """The result of a check; each entry of the four lists says in words what is wrong."""

    sent: int
    arrived: int
    lost: tuple[str, ...]
    repeated: tuple[str, ...]
    disordered: tuple[str, ...]
    foreign: tuple[str, ...]
    ordered: bool

    @property
    def sound(self) -> bool:
        """Tells whether something was sent, and nothing is wrong."""
        return self.sent > 0 and not (self.lost or self.repeated or self.disordered or self.foreign)

    def lines(self) -> list[str]:
        """The counts, and some examples of whatever is wrong."""
        order = f", {len(self.disordered)} out of their key's order" if self.ordered else ""
        counts = (
            f"{self.arrived:,} of {self.sent:,}: {len(self.lost)} lost, {len(self.repeated)} "
            f"twice, {len(self.foreign)} never sent{order}"
        )
        lines = [counts]
        for wrong in (self.lost, self.repeated, self.disordered, self.foreign):
            lines += [f"  WRONG: {each}" for each in wrong[:_SHOWN]]
        return lines


def check(
    sent: Iterable[TraceMessage], arrivals: Sequence[Arrival], spans: Mapping[int, Span] | None
) -> Findings:
    """Holds `arrivals`, in the order in which they came, against what was acknowledged as sent.

    `spans` has by number the times at which each message was sent and acknowledged. One that was
    acknowledged before another one of its key was sent must come first, whoever sent them. None
    means that no order is promised. A message that came again is reported as repeated only, not as
    out of order too.
    """
    expected = {message.number: message for message in sent}
    counts = Counter(arrival.message.number for arrival in arrivals)
    lost = [
        f"{_named(message)} did not arrive"
        for number, message in expected.items()
        if number not in counts
    ]
    foreign = [
        f"{_named(arrival.message)} arrived {_at(arrival)}, but was not sent"
        for arrival in arrivals
        if expected.get(arrival.message.number) != arrival.message
    ]
    repeated = []
    first: dict[int, Arrival] = {}
    for arrival in arrivals:
        earlier = first.setdefault(arrival.message.number, arrival)
        if earlier is not arrival:
            repeated.append(f"{_named(arrival.message)} arrived {_at(earlier)} and {_at(arrival)}")
    orders: defaultdict[str, list[int]] = defaultdict(list)
    for number, arrival in first.items():
        if spans is not None and number in spans:
            orders[arrival.message.key].append(number)
    disordered = [
        f"{_named(first[each.effect].message)} arrived {_at(first[each.effect])} before "
        f"{_named(first[each.cause].message)} {_at(first[each.cause])}, which had been "
        "acknowledged when it was sent"
        for order in orders.values()
        for each in turned_round(order, spans or {})
    ]
    return Findings(
        sent=len(expected),
        arrived=len(arrivals),
        lost=tuple(lost),
        repeated=tuple(repeated),
        disordered=tuple(disordered),
        foreign=tuple(foreign),
        ordered=spans is not None,
    )


def _named(message: TraceMessage) -> str:
    return f"message {message.number} (turn {message.turn} of {message.key})"


def _at(arrival: Arrival) -> str:
    return f"at {arrival.by} from {arrival.segment_id}/{arrival.bucket}@{arrival.offset}"
