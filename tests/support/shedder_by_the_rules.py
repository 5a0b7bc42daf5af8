"""The transfer shedder once more, step by step as its rules are written down, for comparison.

Nothing here is shared with core, and nothing is clever. It is for clusters in which all brokers are
there and have told their loads, and all bundles may be moved: the rest has examples of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class RulesBroker:
    """One broker: load, throughputs in bytes a second, and top bundles, the least loaded first."""

    name: str
    load: float
    throughput: float
    average: float
    top: list[tuple[str, float]] = field(default_factory=list)


@dataclass
class RulesSettings:
    """What the rules read."""

    target: float = 0.25
    threshold: int = 3
    brokers_max: int = 3
    transfer: bool = True
    overload: float = 85.0


class RulesShedder:
    """Call it once in an interval; it answers with bundle, source and destination of each move."""

    def __init__(self, settings: RulesSettings) -> None:
        self.settings = settings
        self.hits = 0
        self.is_tied = False  # a bundle is as large as what is to move, but for rounding

    def call(self, store: list[RulesBroker]) -> list[tuple[str, str, str]]:
        decisions: list[tuple[str, str, str]] = []
        target = self.settings.target
        # 1
        order = sorted(store, key=lambda broker: broker.load)
        lowest, highest = 0, len(order) - 1
        # 2
        total = squares = 0.0
        n = 0
        for broker in store:
            total += broker.load
            squares += broker.load * broker.load
            n += 1
        if n == 0:
            return []
        mean = total / n
        std = math.sqrt(max(0.0, squares / n - mean * mean))
        mult = min(0.5, max(0.0, target / 2))

        def under(broker: RulesBroker) -> bool:
            return broker.load < mean * mult or broker.average < order[highest].average * mult

        def over(broker: RulesBroker) -> bool:
            return broker.load > self.settings.overload / 100 and broker.load > mean + target

        # 3
        if std > target or under(order[lowest]) or over(order[highest]):
            self.hits += 1
        else:
            self.hits = 0
        if self.hits <= self.settings.threshold:
            return []
        # 4
        served = 0
        while served < self.settings.brokers_max and lowest < highest:
            if not (std > target or under(order[lowest]) or over(order[highest])):
                break
            giver = order[highest]
            taker = order[lowest]
            highest -= 1
            if len(giver.top) < 2:
                continue
            # 5
            out, gain, moves = self._exchange(giver, taker)
            decisions += moves
            # 6
            if out > 0:
                shift = (out - gain) * giver.load / giver.throughput
                squares += (
                    max(0.0, giver.load - shift) ** 2
                    + (taker.load + shift) ** 2
                    - giver.load**2
                    - taker.load**2
                )
                std = math.sqrt(abs(squares / n - mean * mean))
                served += 1
                lowest += 1
        # 7
        if decisions:
            self.hits = 0
        return decisions

    def _exchange(
        self, giver: RulesBroker, taker: RulesBroker
    ) -> tuple[float, float, list[tuple[str, str, str]]]:
        target = giver.throughput * (giver.load - taker.load) / 2 / giver.load
        cursor = list(taker.top)
        out = gain = 0.0
        remaining = len(giver.top)
        moves: list[tuple[str, str, str]] = []
        for bundle, amount in giver.top:
            if remaining <= 1:
                break
            if amount == 0:
                continue
            marked: list[tuple[str, float]] = []
            self.is_tied |= math.isclose(out - gain + amount, target)
            if out - gain + amount > target:
                found = False
                above = giver.throughput - out + gain - amount
                below = taker.throughput + out - gain + amount
                while self.settings.transfer and cursor and not found:
                    other, x = cursor.pop(0)
                    if x > 0 and above + x < giver.throughput and below - x < giver.throughput:
                        marked.append((other, x))
                        above += x
                        below -= x
                        found = below <= above and above < 0.75 * giver.throughput
                if not found:
                    break
            to = taker.name if self.settings.transfer else ""
            moves += [(other, taker.name, giver.name) for other, _ in marked]
            moves.append((bundle, giver.name, to))
            out += amount
            gain += sum(x for _, x in marked)
            remaining -= 1
        return out, gain, moves
