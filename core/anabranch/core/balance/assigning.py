"""`LoadChooser`: the broker for a unit, by filters and load, and the grounds of the choice.

If several brokers are equally good by the rule (`least_usage`), it takes the one with the fewest
units, by the log. That number is known at once, whereas a load is as old as its last report. A node
that assigns on a look-up prefers itself if that makes hardly a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Final

import msgspec

from anabranch.core.balance.filters import Candidate, Terms, owned_in_group
from anabranch.core.balance.least_usage import Choice, choose
from anabranch.core.balance.policies import Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.strategies import Strategies, StrategyKind
from anabranch.core.balance.usage import spread
from anabranch.core.bundles.placement import Chosen, choose_broker
from anabranch.core.log.grounds import WEIGHED_MAX, Grounds, Weighed, rule_of
from anabranch.core.log.state import StateQueries

OWN_CHOICE: Final = "chosen among those that all filters left"


class ChoiceRules(msgspec.Struct, frozen=True):
    """The rules of a choice, besides the known facts of each broker."""

    settings: BalanceSettings
    policies: Policies
    strategies: Strategies | None = None


class LoadChooser:
    """Makes some choices at one instant.

    `candidate` says the known facts of a broker. `at_hand` is the one that is preferred among
    equally good ones (`choose_broker`), "" for none. `turns` counts this node's choices for
    namespaces whose bundles brokers take in turn.
    """

    def __init__(
        self,
        state: StateQueries,
        rules: ChoiceRules,
        candidate: Callable[[str], Candidate],
        at_hand: str = "",
        turns: Iterator[int] | None = None,
    ) -> None:
        self._at_hand = at_hand
        self._turns = count() if turns is None else turns
        self._state = state
        self._rules = rules
        self._candidate = candidate
        self._known: dict[str, Candidate] = {}

    def __call__(
        self, unit: str, counts: Mapping[str, int], excluded: Iterable[str] = ()
    ) -> Chosen:
        """Returns one of the brokers in `counts`, which has the number of their units; ""
        for none.
        """
        barred = frozenset(excluded)
        offered = [self._of(broker) for broker in counts if broker not in barred]
        namespace, policies = unit.rpartition("/")[0], self._rules.policies
        terms = Terms(
            namespace,
            self._rules.settings,
            policies,
            owned_in_group(self._state, policies, namespace),
        )

        def fewest(best: Iterable[str]) -> str:
            weighed = {broker: counts[broker] for broker in best}
            return choose_broker(unit, weighed, at_hand=self._at_hand)

        in_turn = namespace in self._rules.settings.shedding_excluded_namespaces
        choice = choose(offered, terms, turn=next(self._turns) if in_turn else 0, pick=fewest)
        rule = choice.reason.value
        if self._rules.settings.load_placement_strategy:
            choice, rule = self._as_asked(unit, choice, offered, counts)
        return choice.broker, (grounds_of(choice, rule),)

    def _as_asked(
        self, unit: str, choice: Choice, offered: Iterable[Candidate], counts: Mapping[str, int]
    ) -> tuple[Choice, str]:
        """Returns the strategy's choice among the remaining brokers, and the rule."""
        settings, own = self._rules.settings, self._rules.strategies or Strategies()
        left = {broker for broker, _ in choice.considered}
        kept = [each for each in offered if each.broker in left]
        broker = own.broker(unit, kept, counts, settings)
        if broker is None:
            fault = own.fault(StrategyKind.ASSIGNMENT, settings)
            return choice, rule_of(choice.reason.value, "", fault)
        rule = rule_of(OWN_CHOICE, settings.load_placement_strategy)
        return msgspec.structs.replace(choice, broker=broker), rule

    def _of(self, broker: str) -> Candidate:
        found = self._known.get(broker)
        if found is None:
            found = self._known[broker] = self._candidate(broker)
        return found


def grounds_of(choice: Choice, rule: str) -> Grounds:
    """A record's account of a choice: the chosen broker first, then the least loaded ones."""
    loads = [load for _, load in choice.considered if load is not None]
    weighed = [
        Weighed(broker, -1.0 if load is None else load) for broker, load in choice.considered
    ]
    weighed.sort(key=lambda each: (each.broker != choice.broker, each.load))
    weighed += [Weighed(broker, -1.0, name.value) for broker, name in choice.removed]
    return Grounds(
        rule,
        len(choice.considered) + len(choice.removed),
        math.sqrt(spread(loads)[1]) if loads else -1.0,
        -1.0,
        tuple(weighed[:WEIGHED_MAX]),
    )
