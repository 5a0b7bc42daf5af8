"""`Grounds`: what a choice of the load balancer rested on, as a record of it says."""

from __future__ import annotations

from typing import Final

import msgspec


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """A broker that a choice was made among.

    `load`: its share of use by the load data, 1 for all of it; -1 where there was none.
    `removed_by`: the filter that took it out, "" for a candidate.
    """

    broker: str
    load: float
    removed_by: str = ""


class Grounds(msgspec.Struct, frozen=True, gc=False):
    """What a choice of the load balancer rested on: for people and the audit, never for the fold.

    `rule`: which one chose (`rule_of`). `brokers`: how many there were to choose from, of which
    `weighed` names the chosen one and others up to `WEIGHED_MAX`, which the audit sees to.
    `deviation`: of the loads of all brokers, as it was; `predicted`: as it should be after this
    move; both -1 where no load counted. `grace_ms`: for how long the balancer shall leave the
    bundle where it goes now.
    """

    rule: str
    brokers: int
    deviation: float
    predicted: float
    weighed: tuple[Weighed, ...]
    grace_ms: int = 0


WEIGHED_MAX: Final = 20
BUILT_IN: Final = "built-in"  # what decides where no strategy of one's own does
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
