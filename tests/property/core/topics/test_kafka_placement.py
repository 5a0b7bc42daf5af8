"""New partitions lie on Kafka's brokers soundly, and their leaders as evenly as can be."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, zip_longest

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.entities.segment import new_segment
from anabranch.core.topics.kafka_placement import (
    Assignment,
    Copies,
    KafkaBroker,
    KafkaSurvey,
    Placer,
    Room,
    allowed,
    assign,
    brokers_of,
    expected_load,
    relieved,
    sane,
)

_WILD = st.one_of(
    st.floats(), st.sampled_from((0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1e308))
)
_BYTES = st.one_of(st.just(0.0), st.floats(0.0, 1e9))
_TOPICS = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.integers(1, 24), min_size=1, max_size=4
)


@st.composite
def clusters(draw: st.DrawFn, loads: st.SearchStrategy[float] = _BYTES) -> list[KafkaBroker]:
    count = draw(st.integers(1, 9))
    racks = draw(st.sampled_from(([""], ["a", "b"], ["a", "b", "c"], ["", "a", "b"])))
    return [
        KafkaBroker(
            broker_id,
            draw(st.sampled_from(racks)),
            draw(loads),
            draw(st.integers(0, 30)),
            draw(st.integers(0, 60)),
        )
        for broker_id in range(1, count + 1)
    ]


def _leaders(found: dict[str, Assignment]) -> list[int]:
    return [replicas[0] for parts in found.values() for replicas in parts]


@given(clusters(st.one_of(_BYTES, _WILD)), _TOPICS, st.integers(1, 9), _WILD)
def test_every_partition_gets_its_copies_on_brokers_and_racks_of_their_own(
    brokers: list[KafkaBroker], topics: dict[str, int], copies: int, expected: float
) -> None:
    copies = min(copies, len(brokers))
    racks = {each.broker_id: each.rack for each in brokers}
    found = assign(brokers, topics, copies, expected)
    assert {name: len(parts) for name, parts in found.items()} == topics
    for replicas in chain(*found.values()):
        assert (len(replicas), len(set(replicas))) == (copies, copies)
        assert set(replicas) <= racks.keys()
        assert len({racks[each] for each in replicas}) == min(copies, len(set(racks.values())))
    assert assign(brokers, topics, copies, expected) == found


def _striped(brokers: list[KafkaBroker], partitions: int, start: int) -> list[int]:
    """The leaders as Kafka deals them out: rack by rack, broker by broker, from anywhere."""
    racks: dict[str, list[int]] = {}
    for each in brokers:
        racks.setdefault(each.rack, []).append(each.broker_id)
    order = [each for each in chain(*zip_longest(*racks.values())) if each is not None]
    return [order[(start + number) % len(order)] for number in range(partitions)]


@given(clusters(), _TOPICS, _BYTES, st.data())
def test_no_way_of_kafkas_and_no_other_one_has_the_leaders_more_even(
    brokers: list[KafkaBroker], topics: dict[str, int], expected: float, data: st.DataObject
) -> None:
    partitions = sum(topics.values())
    total, leaders = sum(b.load for b in brokers), sum(b.leaders for b in brokers)
    weight = max(expected, total / max(1, leaders)) if total else 1.0
    before = {b.broker_id: b.load if total else float(b.leaders) for b in brokers}

    def after(chosen: list[int]) -> list[float]:
        led = Counter(chosen)
        return [load + weight * led[each] for each, load in before.items()]

    ours = after(_leaders(assign(brokers, topics, 1, expected)))
    start = data.draw(st.integers(0, len(brokers) - 1))
    anything = st.lists(st.sampled_from([*before]), min_size=partitions, max_size=partitions)
    for others in (_striped(brokers, partitions, start), data.draw(anything)):
        theirs = after(others)
        assert max(ours) <= max(theirs) * (1 + 1e-9)
        # With as much in all, the squares tell which has the lower deviation.
        assert sum(x * x for x in ours) <= sum(x * x for x in theirs) * (1 + 1e-9)


@given(
    clusters(),
    st.sets(st.integers(1, 12)),
    st.sets(st.integers(1, 12)),
    st.integers(1, 5),
)
def test_a_broker_that_is_to_be_left_gets_something_only_if_it_must(
    brokers: list[KafkaBroker], live: set[int], off: set[int], copies: int
) -> None:
    room = Room(1, tuple(brokers), frozenset(off))
    found = {each.broker_id for each in allowed(room, dict.fromkeys(live, ""), copies)}
    assert found == (live - off if len(live - off) >= copies else live)


@given(
    st.dictionaries(st.integers(1, 5), st.sampled_from(("", "a")), min_size=1),
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 9)),
        st.lists(
            st.builds(
                Copies,
                st.one_of(st.none(), st.integers(1, 7)),
                st.lists(st.integers(1, 7), max_size=3, unique=True).map(tuple),
            ),
            max_size=4,
        ).map(tuple),
    ),
    st.lists(_WILD, min_size=1),
)
def test_what_brokers_carry_is_a_number_whatever_was_measured(
    racks: dict[int, str], segments: dict[tuple[int, int], tuple[Copies, ...]], loads: list[float]
) -> None:
    survey = KafkaSurvey(racks, segments)

    def bytes_of(place: tuple[int, int]) -> float:
        return loads[sum(place) % len(loads)]

    brokers = brokers_of(survey, bytes_of)
    assert {each.broker_id: each.rack for each in brokers} == racks
    assert all(0.0 <= each.load < math.inf for each in brokers)
    eased = relieved(brokers, survey, [*segments, (99, 99)], bytes_of)
    # With everything taken away, what is left is no more than what adding up lost of it.
    total = sum(each.load for each in brokers)
    assert all(0.0 <= each.load <= 1e-9 * total for each in eased)
    children = [new_segment(7, 0, 9, 2), new_segment(8, 10, 19, 2)]
    expected = expected_load(children, segments, bytes_of)
    assert expected == sane(expected)


@given(clusters(), st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_topics_made_one_by_one_between_two_surveys_are_spread_as_if_made_at_once(
    brokers: list[KafkaBroker], sizes: list[int]
) -> None:
    room = Room(1, tuple(KafkaBroker(each.broker_id) for each in brokers))
    placer = Placer()
    led: Counter[int] = Counter()
    for number, size in enumerate(sizes):
        led.update(_leaders(placer.place(room, room.brokers, {f"t{number}": size}, 1)))
    counts = [led[each.broker_id] for each in brokers]
    assert max(counts) - min(counts) <= 1
    seen = Room(2, room.brokers)
    again = placer.place(seen, seen.brokers, {"t0": sizes[0]}, 1)
    assert again == Placer().place(seen, seen.brokers, {"t0": sizes[0]}, 1)
