"""The state of the loads, and the next cycle's result: the decision itself, without any
note of it.
"""

from __future__ import annotations

from enum import StrEnum, unique

import msgspec

from anabranch.core.balance.adjusting import Thresholds
from anabranch.core.balance.broker_load import BrokerLoadData, fault_of
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.shedding import Round, ShedderState, decide, deviation, usable_loads
from anabranch.core.balance.strategies import Strategies

SHEDDING_FIELDS = (
    "enabled",
    "shedding_enabled",
    "shedding_interval_minutes",
    "shedding_grace_period_minutes",
    "shedding_delay_in_seconds",
    "shedding_excluded_namespaces",
    "shedding_bundles_with_policies_enabled",
    "shedding_condition_hit_count_threshold",
    "max_number_of_broker_shedding_per_cycle",
    "broker_load_target_std",
    "adjusted_thresholds_enabled",
    "adjusted_thresholds_max_factor",
    "transfer_enabled",
    "load_shedding_strategy",
    "broker_overloaded_threshold_percentage",
    "broker_load_data_ttl_in_seconds",
    "broker_max_topics",
    "prefer_later_versions",
    "failure_domains_enabled",
)
"""The settings that a cycle goes by. The others count where loads are measured and reported, where
free bundles are assigned, or where bundles are split.
"""


@unique
class NoCycle(StrEnum):
    """Why there is no cycle at all."""

    SWITCHED_OFF = "loadBalancerEnabled or loadBalancerSheddingEnabled is false"
    NOT_SERVING = "the leader has lost touch with the log, or is about to leave"
    ALONE = "there are no two brokers that take bundles"


class SeenBroker(msgspec.Struct, frozen=True):
    """A broker and its reported load, None if that is missing or implausible. `ignored`: the reason
    why it takes no part, "" if it does.

    `reported`: the number of bundles that it has told the leader about.
    """

    broker: str
    load: BrokerLoadData | None
    ignored: str
    reported: int


class Outlook(msgspec.Struct, frozen=True):
    """The balancer's input, and its next result.

    `average`, `std`: those of the loads that take part; None if none does. `hits`: the number of
    cycles in a row for which the condition has held so far. `cycle`: the next one; None if it is
    prevented.
    """

    brokers: tuple[SeenBroker, ...]
    average: float | None
    std: float | None
    hits: int
    prevented: NoCycle | None
    cycle: Round | None


def outlook(
    state: ShedderState,
    view: ClusterView,
    held: Thresholds,
    now_ms: int,
    prevented: NoCycle | None,
    strategies: Strategies,
) -> Outlook:
    """What the next cycle would decide."""
    available = {each.broker for each in view.candidates}
    loads, _, ignored = usable_loads(view.loads, available, held.settings, now_ms)
    seen = tuple(
        SeenBroker(
            broker,
            _sound(view.loads.get(broker), now_ms),
            ignored.get(broker, "" if broker in loads else "it has not been reported yet"),
            len(view.top[broker].bundles) if broker in view.top else 0,
        )
        for broker in sorted(available | view.loads.keys())
    )
    average, std = deviation(loads.values()) if loads else (None, None)
    cycle = None
    if prevented is None:
        _, found = decide(state, view, held.settings, now_ms, strategies)
        cycle = msgspec.structs.replace(found, thresholds=held.why)
    return Outlook(seen, average, std, state.hits, prevented, cycle)


def _sound(load: BrokerLoadData | None, now_ms: int) -> BrokerLoadData | None:
    return None if load is None or fault_of(load, now_ms) else load
