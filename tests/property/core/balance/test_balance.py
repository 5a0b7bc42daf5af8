"""What holds of the balancer whatever brokers report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import repeat

from hypothesis import assume, event, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from anabranch.core.balance.broker_load import BrokerLoadData
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData, rank, top_bundles
from anabranch.core.balance.choosing import Candidate, ChoiceReason, Terms, choose, filtered
from anabranch.core.balance.offload import ClusterView, Pair, Permits, Stopped, offload
from anabranch.core.balance.policies import NO_POLICIES, FailureDomain, IsolationPolicy, Policies
from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.balance.shedding import Round, ShedderState, decide, deviation
from support.rules_view import NOW_MS, view_of
from support.shedder_by_the_rules import RulesBroker, RulesSettings, RulesShedder

SLACK = 1e-9  # of deviations: sums of squares are no exact numbers

numbers = st.one_of(
    st.sampled_from((0.0, -1.0, math.nan, math.inf, 1e300, 5e-324)),
    st.floats(0, 2),
    st.floats(0, 1e9),
)
times = st.sampled_from((0, NOW_MS - 1_900_000, NOW_MS - 10_000, NOW_MS, NOW_MS + 120_000))


# --- what is drawn ------------------------------------------------------------------------------


@st.composite
def settings_of(draw: st.DrawFn) -> BalanceSettings:
    return BalanceSettings(
        broker_load_target_std=draw(st.sampled_from((0.0, 0.01, 0.1, 0.25, 0.5, 5.0))),
        shedding_condition_hit_count_threshold=draw(st.sampled_from((0, 0, 0, 1))),
        max_number_of_broker_shedding_per_cycle=draw(st.integers(1, 4)),
        transfer_enabled=draw(st.booleans()),
        broker_overloaded_threshold_percentage=draw(st.sampled_from((10.0, 85.0, 100.0))),
        shedding_bundles_with_policies_enabled=draw(st.booleans()),
        shedding_excluded_namespaces=draw(st.sampled_from(((), ("t/n0",)))),
        failure_domains_enabled=draw(st.booleans()),
        prefer_later_versions=draw(st.booleans()),
    )


brokers = st.lists(st.sampled_from([f"b{n}:80" for n in range(8)]), unique=True, max_size=8)
namespaces = st.sampled_from(("t/n0", "t/n1", "t/n2"))


@st.composite
def policies_of(draw: st.DrawFn) -> Policies:
    texts = st.sampled_from(("b[0-3]", "b1", ".*", "b5:80", "[", "(a+)+"))
    lists = st.lists(texts, max_size=2).map(tuple)
    policies = st.builds(
        IsolationPolicy,
        st.lists(st.sampled_from(("t/n0", "t/.*", "[")), max_size=2).map(tuple),
        lists,
        lists,
        st.integers(0, 3),
    )
    return Policies(
        isolation=draw(st.dictionaries(st.sampled_from("pq"), policies, max_size=2)),
        domains=draw(
            st.dictionaries(
                st.sampled_from("xy"), brokers.map(tuple).map(FailureDomain), max_size=2
            )
        ),
        groups=draw(st.dictionaries(namespaces, st.sampled_from(("g", "G", "h", " ")), max_size=3)),
    )


loads = st.builds(
    BrokerLoadData,
    msg_throughput_in=numbers,
    weighted_max_ema=numbers,
    msg_throughput_ema=numbers,
    topics=st.sampled_from((0, 49_999, 50_000)),
    updated_at_ms=times,
)
bundle_loads = st.builds(
    BundleLoad, msg_throughput_in=numbers, msg_throughput_out=numbers, msg_rate_in=numbers
)
candidates = st.builds(
    Candidate,
    st.sampled_from([f"b{n}:80" for n in range(8)]),
    st.sampled_from(("1.0.0", "1.0.1", "1.0.1-rc.1", "none")),
    st.none() | loads,
)
several = st.lists(candidates, unique_by=lambda each: each.broker, max_size=8)


@st.composite
def sound_views(draw: st.DrawFn) -> tuple[ClusterView, list[RulesBroker]]:
    """Clusters about which everything is known, for core and for the rules."""
    count = draw(st.integers(0, 7))
    levels = draw(st.lists(st.integers(1, 120), min_size=count, max_size=count, unique=True))
    amounts = st.lists(st.sampled_from((0.0, 1.0, 2.0, 5.0, 10.0, 30.0)), max_size=5)
    rules = []
    for number, level in enumerate(levels):
        top = sorted(draw(amounts))
        throughput = sum(top) + draw(st.sampled_from((0.0, 0.0, 3.0, 50.0)))
        rules.append(
            RulesBroker(
                f"b{number}:80",
                level / 100,
                throughput,
                throughput * draw(st.sampled_from((1.0, 1.0, 0.5))),
                [(f"t/n{at % 3}/{number}-{at}", amount) for at, amount in enumerate(top)],
            )
        )
    return view_of(rules), rules


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    """Clusters about which something is wrong, too old, or of somebody who is not there."""
    view, rules = draw(sound_views())
    seldom = st.sampled_from((False, False, False, False, True))
    owner = {name: each.name for each in rules for name, _ in each.top if not draw(seldom)}
    found = {broker: draw(loads) if draw(seldom) else load for broker, load in view.loads.items()}
    if draw(seldom):
        found["b9:80"] = draw(loads)
    top = {
        broker: TopBundlesLoadData(
            tuple(
                (name, draw(bundle_loads) if draw(seldom) else load)
                for name, load in report.bundles
            )
        )
        for broker, report in view.top.items()
        if not draw(seldom)
    }
    there = [
        replace(draw(candidates), broker=each.broker) if draw(seldom) else each
        for each in view.candidates
    ]
    counts = {each.broker: draw(st.integers(0, 2)) for each in there}
    return replace(
        view,
        loads=found,
        top=top,
        candidates=there,
        owner_of=lambda bundle: owner.get(bundle, ""),
        policies=draw(policies_of()) if draw(st.booleans()) else NO_POLICIES,
        in_group=lambda _: counts,
    )


# --- shedding -----------------------------------------------------------------------------------

recents = st.dictionaries(
    st.sampled_from([f"t/n{n}/{m}" for n in range(3) for m in range(3)]), times
)
cooling = st.dictionaries(st.sampled_from(["b0:80", "b1:80"]), times, max_size=1)


@given(views(), settings_of(), recents, cooling)
def test_whatever_is_reported_only_what_may_move_does_and_only_for_the_better(
    view: ClusterView,
    settings: BalanceSettings,
    recently: Mapping[str, int],
    unloaded: Mapping[str, int],
) -> None:
    then, found = decide(ShedderState(9, unloaded, recently), view, settings, NOW_MS)
    there = {each.broker for each in view.candidates}
    moved = [each.bundle for each in found.decisions]
    assert len(moved) == len(set(moved)), "twice"
    assert not set(moved) & set(recently)
    for each in found.decisions:
        assert view.owner_of(each.bundle) == each.source
        assert each.std_after <= each.std_before + SLACK
        assert bool(each.destination) is settings.transfer_enabled
        namespace = each.bundle.rpartition("/")[0]
        assert namespace not in settings.shedding_excluded_namespaces
        terms = Terms(namespace, settings, view.policies, view.in_group(namespace))
        kept = filtered(view.candidates, terms)
        assert kept.failed == ()
        assert {each.source, each.destination or each.source} <= there
        if each.destination:
            assert each.destination in {left.broker for left in kept.kept}
        assert not view.policies.binds(namespace) or settings.shedding_bundles_with_policies_enabled
    _kept_its_last_bundle(view, found)
    assert (found.skipped is None) is bool(found.decisions)
    assert then.hits == (0 if found.decisions else found.hits)


@example(0.003, 3)
@given(st.floats(0, 2), st.integers(1, 100))
def test_equal_loads_have_no_deviation_at_all_so_that_a_target_of_0_is_reached(
    load: float, brokers: int
) -> None:
    assert deviation([BrokerLoadData(weighted_max_ema=load)] * brokers) == (load, 0.0)


def _kept_its_last_bundle(view: ClusterView, found: Round) -> None:
    for broker, report in view.top.items():
        gone = {each.bundle for each in found.decisions if each.source == broker}
        come = {each.bundle for each in found.decisions if each.destination == broker}
        assert not gone or come or gone < {name for name, _ in report.bundles}


@given(
    sound_views(),
    st.sampled_from((0.0, 0.05, 0.25)),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from((50.0, 85.0)),
)
def test_it_decides_what_the_rules_say_step_by_step(
    drawn: tuple[ClusterView, list[RulesBroker]],
    target: float,
    threshold: int,
    transfer: bool,
    overload: float,
) -> None:
    view, brokers = drawn
    settings = BalanceSettings(
        broker_load_target_std=target,
        shedding_condition_hit_count_threshold=threshold,
        transfer_enabled=transfer,
        broker_overloaded_threshold_percentage=overload,
    )
    rules = RulesShedder(RulesSettings(target, threshold, 3, transfer, overload))
    state = ShedderState()
    for _ in range(threshold + 2):
        said = rules.call(brokers)
        state, found = decide(state, view, settings, NOW_MS)
        moves = [(each.bundle, each.source, each.destination) for each in found.decisions]
        if any(exchange.stopped is Stopped.WORSE for exchange in found.exchanges):
            return  # ours refuses where the rules go on
        assume(found.std is None or abs(found.std - target) > SLACK)
        assume(not rules.is_tied)
        assert (moves, state.hits) == (said, rules.hits)


# --- filters and choice -------------------------------------------------------------------------


@given(several, policies_of(), settings_of(), namespaces, st.integers(0), st.integers(0))
def test_a_choice_is_among_those_whom_no_filter_removes(
    offered: list[Candidate],
    policies: Policies,
    settings: BalanceSettings,
    namespace: str,
    draw: int,
    turn: int,
) -> None:
    terms = Terms(namespace, settings, policies, {"b1:80": 2, "b2:80": 1})
    left = filtered(offered, terms)
    found = choose(left, terms, lambda best: best[draw % len(best)], repeat(turn))
    kept = {each.broker for each in left.kept}
    removed = {broker for broker, _ in left.removed}
    assert kept | removed == {each.broker for each in offered}
    assert not kept & removed
    assert (found.broker in kept) is bool(kept)
    assert (found.reason is ChoiceReason.NO_CANDIDATE) is (not kept)
    assert {broker for broker, _ in found.considered} == kept


@given(several, policies_of(), settings_of(), namespaces)
def test_filters_do_not_mind_the_order_of_candidates(
    offered: list[Candidate], policies: Policies, settings: BalanceSettings, namespace: str
) -> None:
    terms = Terms(namespace, settings, policies, {"b1:80": 2, "b2:80": 1})
    there = filtered(offered, terms)
    back = filtered(offered[::-1], terms)
    assert set(there.kept) == set(back.kept)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=8), st.integers(0, 50), st.integers(0))
def test_who_is_chosen_for_little_load_has_it(levels: list[int], percent: int, draw: int) -> None:
    offered = [
        Candidate(f"b{n}:80", "1.0.0", BrokerLoadData(weighted_max_ema=level / 100))
        for n, level in enumerate(levels)
    ]
    settings = BalanceSettings(average_resource_usage_difference_threshold_percentage=percent)
    terms = Terms("t/n", settings, NO_POLICIES)
    found = choose(filtered(offered, terms), terms, lambda best: best[draw % len(best)], repeat(0))
    load = dict(found.considered)[found.broker]
    mean = math.fsum(level / 100 for level in levels) / len(levels)
    assert load is not None
    if found.reason is ChoiceReason.LESS_LOADED:
        assert load + percent / 100 <= mean
    else:
        assert all(level / 100 + percent / 100 > mean - SLACK for level in levels)


# --- loads --------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.integers(0, 30).map(lambda n: f"t/n/{n}"), bundle_loads), st.integers(1, 9)
)
@example({"t/n/1": BundleLoad(msg_throughput_in=math.nan)}, 1)
def test_the_highest_bundles_are_reported_in_ascending_order(
    found: dict[str, BundleLoad], most: int
) -> None:
    settings = BalanceSettings(max_number_of_bundles_in_bundle_load_report=most)
    report = top_bundles(found, settings, NO_POLICIES, NOW_MS)
    ranks = [rank(load) for _, load in report.bundles]
    assert ranks == sorted(ranks)
    sound = {name for name, load in found.items() if load.is_sound and load.msg_throughput > 0}
    left = sound - {name for name, _ in report.bundles}
    assert len(ranks) == min(most, len(sound))
    assert all(rank(found[name]) <= ranks[0] for name in left)


# --- what a pair of brokers exchanges, where bundles come back for those that go ------------------


_HIGH, _LOW, _AWAY = "b1:80", "b0:80", "b2:80"
_GOING = st.sampled_from((0.0, 20.0, 50.0, 60.0, 70.0, math.nan))
_COMING = st.sampled_from((0.0, 5.0, 10.0, 20.0, 30.0, 60.0, 90.0, math.nan, -5.0))
_UNSOUND = st.sampled_from((0.0, 0.0, 0.0, math.nan))  # a load may be, though its traffic is not


def _reports(amounts: st.SearchStrategy[float], least: int) -> st.SearchStrategy[list[BundleLoad]]:
    loads = st.builds(BundleLoad, msg_throughput_in=amounts, msg_rate_in=_UNSOUND)
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
        candidates=[Candidate(each, "1.0.0") for each in loads],
        owner_of=lambda bundle: owner.get(bundle, ""),
        policies=NO_POLICIES,
        in_group=lambda _: {},
    )
    recently = {name: 0 for name in owner if draw(st.sampled_from((False, False, False, True)))}
    return Pair(_HIGH, _LOW, loads[_HIGH], loads[_LOW]), view, recently


@given(pairs(), st.sampled_from(((), (), ("t/n0",))), st.sampled_from((True, True, True, False)))
def test_what_a_pair_exchanges_does_not_hang_on_what_is_asked_first(
    drawn: tuple[Pair, ClusterView, dict[str, int]], excluded: tuple[str, ...], transfer: bool
) -> None:
    """Core asks first what is found fastest: what may not come back makes no difference."""
    pair, view, recently = drawn
    chosen = BalanceSettings(shedding_excluded_namespaces=excluded, transfer_enabled=transfer)
    permits = Permits(view, chosen, recently)
    found = offload(pair, view, permits)
    event(f"swaps: {any(len(step.moves) > 1 for step in found.steps)}")
    coming = [
        (name, load)
        for name, load in view.top[_LOW].bundles
        if load.is_sound and permits.refusal(name, _LOW, _HIGH) is None
    ]
    fewer = replace(view, top={**view.top, _LOW: TopBundlesLoadData(tuple(coming))})
    assert repr(found) == repr(offload(pair, fewer, Permits(fewer, chosen, recently)))
