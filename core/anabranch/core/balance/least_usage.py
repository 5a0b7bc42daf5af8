"""The rule for a free bundle: any of the brokers whose use is clearly below the average (Pulsar's
"least resource usage with weight").

All of these are equally good. Suppose that the least loaded were always taken. Every node would
then send all its bundles there, until the next report of that broker's load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum, unique

import msgspec

from anabranch.core.balance.filters import BrokerFilter, Candidate, Terms, filtered


@unique
class ChoiceReason(StrEnum):
    """Why a broker was chosen, or none."""

    LESS_LOADED = "less loaded than the average by the threshold"
    NO_DIFFERENCE = "no broker is less loaded than the average by the threshold"
    IN_TURN = "brokers take turns for namespaces that are excluded from shedding"
    NO_CANDIDATE = "no broker is left"


class Choice(msgspec.Struct, frozen=True):
    """A choice with its grounds; `broker` is "" when there is none.

    `considered`: the brokers that the filters left, with their loads; None for an unknown load.
    """

    broker: str
    reason: ChoiceReason
    considered: tuple[tuple[str, float | None], ...]
    removed: tuple[tuple[str, BrokerFilter], ...]
    failed: tuple[tuple[BrokerFilter, str], ...]


def choose(
    candidates: Sequence[Candidate],
    terms: Terms,
    draw: int = 0,
    turn: int = 0,
    pick: Callable[[Sequence[str]], str] | None = None,
) -> Choice:
    """The broker for a bundle.

    Among equals `pick` decides, else `draw`, a random number; `turn` counts this node's choices
    for namespaces that are excluded from shedding.
    """
    found = filtered(candidates, terms)
    kept = found.kept
    considered = tuple((each.broker, _load(each)) for each in kept)
    if not kept:
        broker, reason = "", ChoiceReason.NO_CANDIDATE
    elif terms.namespace in terms.settings.shedding_excluded_namespaces:
        in_order = sorted(each.broker for each in kept)
        broker, reason = in_order[turn % len(in_order)], ChoiceReason.IN_TURN
    else:
        share = terms.settings.average_resource_usage_difference_threshold_percentage / 100
        best = _less_loaded(considered, share)
        reason = ChoiceReason.LESS_LOADED if best else ChoiceReason.NO_DIFFERENCE
        best = best or [name for name, _ in considered]
        broker = pick(best) if pick is not None else best[draw % len(best)]
    return Choice(broker, reason, considered, found.removed, found.failed)


def _load(candidate: Candidate) -> float | None:
    """A load that is no number is none, as it would make the average none."""
    load = candidate.load
    if load is None or not math.isfinite(load.weighted_max_ema):
        return None
    return load.weighted_max_ema


def _less_loaded(considered: Sequence[tuple[str, float | None]], share: float) -> list[str]:
    """Those whose load is below the average of all that is known by `share`, or more."""
    known = [(name, load) for name, load in considered if load is not None]
    if not known:
        return []
    average = math.fsum(load for _, load in known) / len(known)
    return [name for name, load in known if load + share <= average]
