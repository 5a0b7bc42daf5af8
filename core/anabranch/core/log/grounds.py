"""`Grounds`: the grounds of a choice of the load balancer, as its record says them."""

from __future__ import annotations

from typing import Final

import msgspec


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """A broker that a choice was made among.

    `load`: its share of use by the load data; 1 means all of it, and -1 means no load data.
    `removed_by`: the filter that took it out, "" for a candidate.
    """

    broker: str
    load: float
    removed_by: str = ""


class Grounds(msgspec.Struct, frozen=True, gc=False):
    """The grounds of a choice of the load balancer: for people and the audit, never for the fold.

    `rule`: the rule that chose (`rule_of`). `brokers`: the number of brokers to choose from.
    `weighed`: the chosen one and others, at most `WEIGHED_MAX`, as the audit checks. `deviation`:
    that of all brokers' loads before the move. `predicted`: the expected deviation after it. Both
    are -1 if no load counted. `grace_ms`: the time for which the balancer shall leave the bundle at
    its new place.
    """

    rule: str
    brokers: int
    deviation: float
    predicted: float
    weighed: tuple[Weighed, ...]
    grace_ms: int = 0


WEIGHED_MAX: Final = 20
_STRATEGY: Final = "strategy "


def rule_of(reason: str, strategy: str = "", *more: str) -> str:
    """The rule of a choice in words: why, the strategy of one's own that chose, and what else is to
    be said.

    >>> rule_of("Overloaded", "even"), rule_of("Overloaded", "", "target deviation 0.125")
    ('Overloaded; strategy even', 'Overloaded; target deviation 0.125')
    """
    chose = f"{_STRATEGY}{strategy}" if strategy else ""
    return "; ".join(filter(None, (reason, chose, *more)))


def strategy_of(rule: str) -> str:
    """The strategy of one's own that chose by this rule; "" for a built-in one.

    >>> strategy_of("Overloaded; strategy even"), strategy_of("Overloaded")
    ('even', '')
    """
    second = rule.partition("; ")[2].partition("; ")[0]
    name = second.removeprefix(_STRATEGY)
    return name if name != second and " " not in name else ""
