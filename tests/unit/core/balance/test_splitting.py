"""Which bundles an owner splits by itself, and where bundles are cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.counters import SplitReason
from anabranch.core.balance.settings import BalanceSettings, SplitAlgorithm
from anabranch.core.balance.splitting import (
    OwnerView,
    SplitRound,
    TopicLoad,
    boundaries,
    decide_splits,
    hottest_bundle,
)
from anabranch.core.ring import FULL_RING, RING_END, HashRange

ONE = "t/n/0x00000000_0x40000000"
TWO = "t/n/0x40000000_0x80000000"
OTHER = "t/other/0x00000000_0x40000000"
AT_ONCE = BalanceSettings(namespace_bundle_split_condition_hit_count_threshold=0)
MANY = BundleLoad(topics=1_001)
MB = 1024 * 1024
WORDS = {
    SplitReason.SESSIONS: "1001 sessions are more than 1000",
    SplitReason.MSG_RATE: "30001 messages/s are more than 30000",
    SplitReason.BANDWIDTH: "104857601 bytes/s are more than 104857600",
}


def view(loads: Mapping[str, BundleLoad], **fields: object) -> OwnerView:
    return replace(OwnerView(loads, lambda _: True, lambda _: 4, (), lambda _: ()), **fields)


def split(found: SplitRound) -> list[str]:
    return [each.bundle for each in found.decisions]


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (BundleLoad(topics=1_000), None),
        (BundleLoad(topics=1_001), SplitReason.TOPICS),
        (BundleLoad(topics=2, consumers=600, producers=400), None),
        (BundleLoad(topics=2, consumers=600, producers=401), SplitReason.SESSIONS),
        (BundleLoad(topics=2, msg_rate_in=20_000, msg_rate_out=10_000), None),
        (BundleLoad(topics=2, msg_rate_in=20_000, msg_rate_out=10_001), SplitReason.MSG_RATE),
        (BundleLoad(topics=2, msg_throughput_in=100 * MB), None),
        (BundleLoad(topics=2, msg_throughput_out=100 * MB + 1), SplitReason.BANDWIDTH),
        (BundleLoad(topics=2_000, msg_rate_in=90_000), SplitReason.TOPICS),
        (BundleLoad(topics=1, msg_rate_in=90_000), None),
        (BundleLoad(topics=2, msg_rate_in=math.nan), None),
        (BundleLoad(topics=2_000, msg_rate_in=math.nan), None),
    ],
)
def test_a_bundle_over_a_limit_is_split_for_that_reason(
    load: BundleLoad, reason: SplitReason | None
) -> None:
    _, found = decide_splits({}, view({ONE: load}), AT_ONCE)
    assert [each.reason for each in found.decisions] == ([reason] if reason else [])
    assert (found.failed, found.strategy) == ((), "")
    assert all(each.why == WORDS.get(each.reason, each.why) for each in found.decisions)


def test_a_limit_of_no_sessions_is_none() -> None:
    for most, expected in ((0, []), (1, [ONE])):
        settings = replace(AT_ONCE, namespace_bundle_max_sessions=most)
        _, found = decide_splits({}, view({ONE: BundleLoad(topics=2, consumers=5_000)}), settings)
        assert split(found) == expected


def test_whatever_becomes_of_one_bundle_the_others_are_looked_at() -> None:
    new, full, busy, last = (f"t/{name}/0x00000000_0x40000000" for name in ("w", "full", "x", "y"))
    loads = {TWO: BundleLoad(topics=9), "t/n/whole": MANY, new: MANY, full: MANY, busy: MANY}
    settings = BalanceSettings(namespace_bundle_split_condition_hit_count_threshold=1)
    fields = {"bundle_count": lambda name: 999 if name == "t/full" else 4, "splitting": [busy]}
    given = view({ONE: BundleLoad(topics=1), **loads, last: MANY}, **fields)
    hits, found = decide_splits({full: 1, busy: 1, last: 1}, given, settings)
    assert (split(found), hits) == ([last], {new: 1, full: 2, busy: 2})
    left = [bundle for bundle, _ in (*found.failed, *found.waiting)]
    assert left == ["t/n/whole", new, full, busy]


def test_a_bundle_is_split_in_the_fourth_cycle_in_a_row_and_counts_anew_after_that() -> None:
    settings = BalanceSettings()
    hits: dict[str, int] = {}
    for cycle in range(3):
        hits, found = decide_splits(hits, view({ONE: MANY}), settings)
        assert (hits, found.decisions) == ({ONE: cycle + 1}, ())
        assert f"in {cycle + 1} cycles in a row" in found.waiting[0][1]
    hits, found = decide_splits(hits, view({ONE: MANY}), settings)
    [decision] = found.decisions
    assert (decision.bundle, decision.boundary) == (ONE, 0x20000000)
    assert (decision.why, hits) == ("1001 topics are more than 1000", {})


def test_hits_end_with_the_reason_and_with_the_statistics_but_not_with_ownership() -> None:
    hits = {ONE: 2}
    assert decide_splits(hits, view({ONE: BundleLoad(topics=9)}), AT_ONCE)[0] == {}
    assert decide_splits(hits, view({TWO: BundleLoad(topics=9)}), AT_ONCE)[0] == {}
    assert decide_splits(hits, view({ONE: MANY}, owns=lambda _: False), AT_ONCE)[0] == hits
    assert decide_splits(hits, view({ONE: BundleLoad(topics=1)}), AT_ONCE)[0] == hits


def test_a_namespace_has_no_more_bundles_than_it_may() -> None:
    settings = replace(AT_ONCE, namespace_maximum_bundles=5)
    hits, found = decide_splits({}, view({ONE: MANY, TWO: MANY, OTHER: MANY}), settings)
    assert (split(found), hits) == ([ONE, OTHER], {TWO: 1})
    assert found.waiting == (
        (TWO, "1001 topics are more than 1000, but t/n has as many bundles as it may"),
    )
    roomy = replace(settings, namespace_maximum_bundles=6)
    assert split(decide_splits({}, view({ONE: MANY, TWO: MANY}), roomy)[1]) == [ONE, TWO]


def test_no_more_bundles_are_split_than_a_cycle_may_and_the_rest_is_not_looked_at() -> None:
    settings = replace(AT_ONCE, max_number_of_bundles_to_split_per_cycle=1)
    hits, found = decide_splits({}, view({ONE: MANY, TWO: MANY}), settings)
    assert (split(found), hits) == ([ONE], {})


@pytest.mark.parametrize(
    ("splitting", "blocked"),
    [
        ("t/n/0x00000000_0x80000000", True),
        ("t/n/0x20000000_0x40000000", True),
        ("t/n/0x40000000_0x80000000", False),
        ("t/nn/0x00000000_0x80000000", False),
        ("leadership", False),
    ],
)
def test_while_a_parent_or_child_is_being_split_a_bundle_is_not(
    splitting: str, blocked: bool
) -> None:
    hits, found = decide_splits({}, view({ONE: MANY}, splitting=[splitting]), AT_ONCE)
    assert split(found) == ([] if blocked else [ONE])
    assert bool(hits) is blocked


@pytest.mark.parametrize(
    ("bundle", "fields", "said"),
    [
        ("t/n/0x00000000_0x00000001", {}, "single hash"),
        ("t/n/whole", {}, "not of the form"),
        (ONE, {"bundle_count": lambda _: None}, "nobody knows"),
        (ONE, {"topics": lambda _: ()}, "topic_count_equally_divide finds no place"),
    ],
)
def test_what_cannot_be_split_is_told_and_the_others_are_split(
    bundle: str, fields: dict[str, object], said: str
) -> None:
    settings = replace(AT_ONCE, default_namespace_bundle_split_algorithm=SplitAlgorithm.TOPIC_COUNT)
    topics = {"topics": lambda _: [TopicLoad(0x10), TopicLoad(0x20)]}
    _, found = decide_splits({}, view({bundle: MANY}, **topics | fields), settings)
    [(failed, why)] = found.failed
    assert failed == bundle
    assert said in why
    _, found = decide_splits({}, view({"t/n/whole": MANY, ONE: MANY}, **topics), settings)
    assert split(found) == [ONE]


# --- where a bundle is cut ------------------------------------------------------------------------

PART = HashRange(0, 0x200)


def cut(
    algorithm: SplitAlgorithm,
    topics: Sequence[TopicLoad] = (),
    whole: HashRange = PART,
    positions: Sequence[int] = (),
    *,
    rate_max: float = 30_000.0,
    mbytes_max: float = 100.0,
) -> tuple[int, ...]:
    settings = BalanceSettings(
        namespace_bundle_max_msg_rate=rate_max, namespace_bundle_max_bandwidth_mbytes=mbytes_max
    )
    return boundaries(algorithm, whole, topics, settings, positions)


def test_a_range_is_cut_in_its_middle() -> None:
    assert cut(SplitAlgorithm.RANGE) == (0x100,)
    assert cut(SplitAlgorithm.RANGE, whole=FULL_RING) == (0x7FFFFFFF,)
    assert cut(SplitAlgorithm.RANGE, whole=HashRange(5, 6)) == ()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([], ()),
        ([7], ()),
        ([7, 7, 7], ()),
        ([10, 11], (11,)),
        ([10, 20, 30, 40], (25,)),
        ([40, 10, 30, 20, 50], (25,)),
        ([10, 10, 10, 20], (15,)),
        ([10, 20, 20, 20], (15,)),
        ([0x300, 10, 20], (15,)),
    ],
)
def test_topics_are_halved_as_well_as_their_places_allow(
    positions: list[int], expected: tuple[int, ...]
) -> None:
    topics = [TopicLoad(position) for position in positions]
    assert cut(SplitAlgorithm.TOPIC_COUNT, topics) == expected


def test_positions_count_where_they_lie_inside() -> None:
    positions = [0x180, 0, 0x80, 0x80, 0x200, 0x999]
    assert cut(SplitAlgorithm.POSITIONS, positions=positions) == (0x80, 0x180)


# The example of PIP-169: hash, messages and megabytes a second.
TRAFFIC = [
    TopicLoad(position, 100.0 * number, 10.0 * number * MB)
    for number, position in enumerate((10, 20, 80, 90, 100, 110), 1)
]


def test_traffic_is_cut_where_the_next_topic_would_be_too_much() -> None:
    flow = SplitAlgorithm.FLOW_OR_QPS
    assert cut(flow, TRAFFIC, rate_max=1_100.0, mbytes_max=110.0) == (95,)
    assert cut(flow, TRAFFIC[::-1], rate_max=1_100.0, mbytes_max=110.0) == (95,)
    assert cut(flow, TRAFFIC, rate_max=1_100.0, mbytes_max=1e6) == (95,)
    assert cut(flow, TRAFFIC, rate_max=1e6, mbytes_max=110.0) == (95,)
    assert cut(flow, TRAFFIC, rate_max=600.0, mbytes_max=110.0) == (85, 95, 105)


@pytest.mark.parametrize(("most", "cuts"), [(1_909.0, True), (1_910.0, False)])
def test_traffic_is_cut_only_if_it_is_too_much_by_more_than_is_tolerated(
    most: float, cuts: bool
) -> None:
    flow = SplitAlgorithm.FLOW_OR_QPS
    assert bool(cut(flow, TRAFFIC, rate_max=most, mbytes_max=1e6)) is cuts
    assert bool(cut(flow, TRAFFIC, rate_max=1e6, mbytes_max=most / 10)) is cuts
    just = [TopicLoad(position, 5.5, 5.5 * MB) for position in (10, 20)]
    assert cut(flow, just, rate_max=10.0, mbytes_max=10.0) == (), "a tenth more is tolerated"
    assert cut(flow, [TopicLoad(10, 1.0, 90.0 * MB), TopicLoad(20, 1.0, 30.0 * MB)]) == (15,)


def test_topics_at_one_place_cannot_be_parted() -> None:
    topics = [TopicLoad(10, 1e6), TopicLoad(10, 1e6), TopicLoad(30, 1.0)]
    assert cut(SplitAlgorithm.FLOW_OR_QPS, topics) == (20,)
    assert cut(SplitAlgorithm.FLOW_OR_QPS, topics[:2]) == ()
    assert cut(SplitAlgorithm.FLOW_OR_QPS, []) == ()
    assert cut(SplitAlgorithm.FLOW_OR_QPS, [TopicLoad(10, math.nan), TopicLoad(20, 1e9)]) == ()


def test_of_several_cuts_an_automatic_split_makes_the_middle_one() -> None:
    settings = replace(
        AT_ONCE,
        default_namespace_bundle_split_algorithm=SplitAlgorithm.FLOW_OR_QPS,
        namespace_bundle_max_msg_rate=600.0,
    )
    load = BundleLoad(topics=6, msg_rate_in=2_100.0)
    for given, expected in ((TRAFFIC, 95), (TRAFFIC[3:], 105)):
        _, found = decide_splits({}, view({ONE: load}, topics=lambda _, g=given: g), settings)
        assert [each.boundary for each in found.decisions] == [expected]


QUARTERS = {"a": HashRange(0, 100), "b": HashRange(100, 200), "c": HashRange(300, RING_END)}


@pytest.mark.parametrize(
    ("topics", "hottest"),
    [
        ([], ""),
        ([TopicLoad(10), TopicLoad(150)], ""),
        ([TopicLoad(10, 5.0, 10.0), TopicLoad(150, 1.0, 30.0)], "b"),
        ([TopicLoad(10, 5.0, 20.0), TopicLoad(99, 5.0, 20.0), TopicLoad(150, 99.0, 30.0)], "a"),
        ([TopicLoad(10, 1.0), TopicLoad(150, 2.0)], "b"),  # no bytes known: messages decide
        ([TopicLoad(10, 1.0, 7.0), TopicLoad(150, 2.0, 7.0)], "b"),
        ([TopicLoad(150, 2.0, 7.0), TopicLoad(10, 2.0, 7.0)], "a"),  # equal: the first
        ([TopicLoad(100, 1.0, 1.0)], "b"),  # a range holds its lower end, not its upper one
        ([TopicLoad(250, 9.0, 9.0), TopicLoad(10, 1.0, 1.0)], "a"),  # of no bundle that is there
        ([TopicLoad(RING_END, 9.0, 9.0), TopicLoad(10, 1.0, 1.0)], "c"),
        ([TopicLoad(10, math.nan, 9.0), TopicLoad(150, 1.0, 1.0)], "b"),
        ([TopicLoad(10, 9.0, -9e9), TopicLoad(10, 1.0, math.inf), TopicLoad(150, 1.0)], "b"),
    ],
)
def test_the_hottest_bundle_is_the_one_with_the_most_bytes_then_messages(
    topics: list[TopicLoad], hottest: str
) -> None:
    assert hottest_bundle(QUARTERS, topics) == hottest
    backwards = {"-" + name: QUARTERS[other] for name, other in zip("abc", "cba", strict=True)}
    swapped = {"": "", "a": "-c", "b": "-b", "c": "-a"}
    assert hottest_bundle(backwards, topics[::-1]) == swapped[hottest]


def test_there_is_no_hottest_bundle_among_none() -> None:
    assert hottest_bundle({}, [TopicLoad(1, 1.0, 1.0)]) == ""
