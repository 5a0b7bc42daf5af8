"""The clusters of the rules that are told step by step, as core sees them."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.choosing import Candidate
from anabranch.core.balance.offload import ClusterView
from anabranch.core.balance.policies import NO_POLICIES
from support.shedder_by_the_rules import RulesBroker

NOW_MS = 1_700_000_000_000


def view_of(brokers: Sequence[RulesBroker]) -> ClusterView:
    """Everything is known, all are there, and each owns what it has reported."""
    owner = {name: each.name for each in brokers for name, _ in each.top}
    return ClusterView(
        loads={
            each.name: BrokerLoadData(
                msg_throughput_in=each.throughput,
                weighted_max_ema=each.load,
                msg_throughput_ema=each.average,
                updated_at_ms=NOW_MS,
            )
            for each in brokers
        },
        top={
            each.name: TopBundlesLoadData(
                tuple((name, BundleLoad(msg_throughput_in=amount)) for name, amount in each.top)
            )
            for each in brokers
        },
        candidates=[Candidate(each.name, "1.0.0") for each in brokers],
        owner_of=lambda bundle: owner.get(bundle, ""),
        policies=NO_POLICIES,
        in_group=lambda _: {},
    )
