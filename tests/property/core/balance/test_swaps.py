"""What a pair of brokers exchanges, where bundles come back for those that go."""

from __future__ import annotations

import math

from hypothesis import event, given
from hypothesis import strategies as st

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.balance.filters import Candidate
from anabranch.core.balance.offload import ClusterView, Pair, Permits, offload
from anabranch.core.balance.policies import NO_POLICIES
from anabranch.core.balance.settings import BalanceSettings
from support.offload_by_the_rules import exchanged

_HIGH, _LOW, _AWAY = "b1:80", "b0:80", "b2:80"
_MANAGER = "this"
_GOING = st.sampled_from((0.0, 20.0, 50.0, 60.0, 70.0, math.nan))
_COMING = st.sampled_from((0.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, math.nan, -5.0))
_UNSOUND = st.sampled_from((0.0, 0.0, 0.0, math.nan))  # a load may be, though its traffic is not


def _reports(amounts: st.SearchStrategy[float], least: int) -> st.SearchStrategy[list[BundleLoad]]:
    loads = st.builds(BundleLoad, msg_throughput_in=amounts, lookups=_UNSOUND)
    return st.lists(loads, min_size=least, max_size=6)


_REPORTS = {_HIGH: _reports(_GOING, 0), _LOW: _reports(_COMING, 2)}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Pair, ClusterView, dict[str, int]]:
    """Two brokers, and in their reports bundles of all kinds."""
    low = draw(st.sampled_from((10.0, 20.0, 60.0)))
    loads = {
        _HIGH: BrokerLoadData(msg_throughput_in=100.0, weighted_max_ema=0.9),
        _LOW: BrokerLoadData(msg_throughput_in=low, weighted_max_ema=0.1),
    }
    owner: dict[str, str] = {}
    top = {}
    for broker in loads:
        named = [
            (f"t/n{at % 2}/{broker}-{at}", each) for at, each in enumerate(draw(_REPORTS[broker]))
        ]
        top[broker] = TopBundlesLoadData(tuple(named))
        owner |= {
            name: draw(st.sampled_from((broker, broker, broker, broker, _AWAY)))
            for name, _ in named
        }
    view = ClusterView(
        loads=loads,
        top=top,
        candidates=[Candidate(each, "1.0.0", _MANAGER) for each in loads],
        owner_of=lambda bundle: owner.get(bundle, ""),
        policies=NO_POLICIES,
        load_manager_class=_MANAGER,
        in_group=lambda _: {},
    )
    recently = {name: 0 for name in owner if draw(st.sampled_from((False, False, False, True)))}
    return Pair(_HIGH, _LOW, loads[_HIGH], loads[_LOW]), view, recently


@given(pairs(), st.sampled_from(((), (), ("t/n0",))), st.sampled_from((True, True, True, False)))
def test_what_a_pair_exchanges_does_not_hang_on_what_is_asked_first(
    drawn: tuple[Pair, ClusterView, dict[str, int]], excluded: tuple[str, ...], transfer: bool
) -> None:
    pair, view, recently = drawn
    chosen = BalanceSettings(shedding_excluded_namespaces=excluded, transfer_enabled=transfer)
    found = offload(pair, view, Permits(view, chosen, recently))
    event(f"swaps: {any(len(step.moves) > 1 for step in found.steps)}")
    assert repr(found) == repr(exchanged(pair, view, Permits(view, chosen, recently)))
