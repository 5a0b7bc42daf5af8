"""What holds of auto-scaling whatever the load, the consumers and the policy are."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.decisions import Decision, Merge, NoAction, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import (
    OVERRIDE_FIELDS,
    AutoScalePolicy,
    Level,
    checked_override,
    fault_of,
    is_override_form,
    override_flat,
    override_of,
    resolve,
)
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.hashing import RING16

START_MS = 1_000_000_000
CALM_S = 100_000.0  # longer than any cooldown or window here, also one that was doubled often


# --- what is drawn ------------------------------------------------------------------------------


@st.composite
def policies(draw: st.DrawFn) -> AutoScalePolicy:
    """Policies without fault, with bands of every width."""

    low = draw(st.sampled_from((0.1, 0.4, 0.6, 0.99, 0.99)))

    def band(typical: float) -> tuple[float, float]:
        split = typical * draw(st.sampled_from((0.5, 1.0, 1.5, 10.0)))
        return split, split * low

    bands = [band(typical) for typical in (100.0, 10_000.0, 400.0, 40_000.0)]
    fewest = draw(st.integers(1, 4))
    found = AutoScalePolicy(
        max_segments=fewest + draw(st.integers(0, 12)),
        min_segments=fewest,
        max_dag_depth=draw(st.sampled_from((10, 3, 1, 0))),
        split_cooldown_seconds=draw(st.sampled_from((0.0, 5.0, 60.0))),
        rebucket_cooldown_seconds=draw(st.sampled_from((0.0, 60.0))),
        merge_cooldown_seconds=draw(st.sampled_from((0.0, 60.0, 300.0))),
        merge_window_seconds=draw(st.sampled_from((0.0, 30.0, 300.0))),
        split_msg_rate_in_threshold=bands[0][0],
        merge_msg_rate_in_threshold=bands[0][1],
        split_bytes_rate_in_threshold=bands[1][0],
        merge_bytes_rate_in_threshold=bands[1][1],
        split_msg_rate_out_threshold=bands[2][0],
        merge_msg_rate_out_threshold=bands[2][1],
        split_bytes_rate_out_threshold=bands[3][0],
        merge_bytes_rate_out_threshold=bands[3][1],
        split_vs_rebucket_min_msg_rate_in_threshold=draw(st.sampled_from((50.0, 10.0, 0.0))),
        max_entry_buckets_per_segment=draw(st.sampled_from((1, 3, 8, 64))),
        entry_bucket_budget=draw(st.sampled_from((1, 4, 9))),
    )
    assume(not fault_of(found))
    return found


class Traffic(msgspec.Struct, frozen=True):
    """A constant load: so many messages a second into each stretch of the ring and each hot key."""

    stretches: tuple[float, ...]  # of equal width
    hot_keys: tuple[tuple[int, float], ...]  # hash, messages a second
    size_bytes: float
    readers: float  # how often each message is read

    def into(self, start: int, end: int, since_ms: int) -> SegmentLoad:
        width = RING16 // len(self.stretches)
        found = 0.0
        for place, rate in enumerate(self.stretches):
            low, high = max(start, place * width), min(end, (place + 1) * width - 1)
            found += rate * max(0, high - low + 1) / width
        found += sum(rate for hash16, rate in self.hot_keys if start <= hash16 <= end)
        size, readers = self.size_bytes, self.readers
        return SegmentLoad(found, found * size, found * readers, found * size * readers, since_ms)


RATES = st.sampled_from((0.0, 0.5, 3.0, 20.0, 90.0, 400.0))
TRAFFIC = st.builds(
    Traffic,
    stretches=st.sampled_from((1, 2, 4)).flatmap(
        lambda count: st.lists(RATES, min_size=count, max_size=count).map(tuple)
    ),
    hot_keys=st.lists(
        st.tuples(st.integers(0, RING16 - 1), RATES), max_size=2, unique_by=lambda key: key[0]
    ).map(tuple),
    size_bytes=st.sampled_from((10.0, 100.0)),
    readers=st.sampled_from((0.0, 1.0, 4.0)),
)


@st.composite
def demands(draw: st.DrawFn) -> dict[str, Demand]:
    found = draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 9, 20)), max_size=3))
    return {f"s{n}": Demand(consumers) for n, consumers in enumerate(found)}


@st.composite
def layouts(draw: st.DrawFn) -> SegmentLayout:
    """Layouts that operations by hand have made."""
    found = SegmentLayout.initial(
        draw(st.sampled_from((1, 2, 3, 5, 8, 16))), draw(st.sampled_from((1, 4, 9)))
    )
    for _ in range(draw(st.integers(0, 6))):
        active = found.active
        part = active[draw(st.integers(0, len(active) - 1))]
        what = draw(st.sampled_from(("split", "merge", "rebucket", "prune")))
        roots = [
            p.segment_id for p in found.segments.values() if not p.is_active | bool(p.parent_ids)
        ]
        buckets = draw(st.sampled_from((1, 2, 5, 16)))
        if what == "split" and part.size > 1:
            found = found.split_segment(part.segment_id)
        elif what == "merge" and part is not active[0]:
            found = found.merge_segments(active[active.index(part) - 1].segment_id, part.segment_id)
        elif what == "rebucket" and part.buckets != buckets:
            found = found.rebucket_segment(part.segment_id, buckets)
        elif what == "prune" and roots:
            found = found.prune_segment(roots[0])
    return found


# --- a topic that does what is decided ----------------------------------------------------------


class Topic:
    """Its operations take no time; each segment's load is written once, as it does not change."""

    def __init__(self, layout: SegmentLayout, traffic: Traffic, policy: AutoScalePolicy) -> None:
        self.layout = layout
        self.policy = policy
        self.last = LastActions()
        self._traffic = traffic
        self._since_ms = dict.fromkeys(layout.segments, START_MS)

    @property
    def shape(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((part.start, part.end, part.buckets) for part in self.layout.active)

    def loads(self) -> dict[int, SegmentLoad]:
        return {
            part.segment_id: self._traffic.into(
                part.start, part.end, self._since_ms[part.segment_id]
            )
            for part in self.layout.active
        }

    def decided(self, demand: Mapping[str, Demand], now_ms: int) -> Decision:
        return decide(self.layout, self.loads(), demand, self.policy, now_ms, self.last)

    def apply(self, action: Decision, now_ms: int) -> None:
        before = set(self.layout.segments)
        most = self.policy.max_entry_buckets_per_segment
        match action:
            case Split(segment_id):
                children = self.layout.split_children(segment_id)
                self.layout = self.layout.replaced((segment_id,), children, {}, now_ms)
                self.last = msgspec.structs.replace(self.last, split_ms=now_ms)
            case Merge(first_id, second_id):
                children = self.layout.merge_children(first_id, second_id, most)
                self.layout = self.layout.replaced((first_id, second_id), children, {}, now_ms)
                self.last = msgspec.structs.replace(self.last, merge_ms=now_ms)
            case Rebucket(segment_ids, buckets):
                for segment_id in segment_ids:
                    self.layout = self.layout.rebucket_segment(segment_id, buckets, now_ms)
                self.last = msgspec.structs.replace(self.last, rebucket_ms=now_ms)
            case NoAction():
                pass
        for segment_id in self.layout.segments.keys() - before:
            self._since_ms[segment_id] = now_ms


def must_leave_enough(topic: Topic, before: SegmentLayout, demand: Mapping[str, Demand]) -> None:
    """A merge, or fewer buckets, takes none from the consumers that share them."""
    had, has = (sum(part.buckets for part in each.active) for each in (before, topic.layout))
    assert has >= min(max((each.consumers for each in demand.values()), default=0), had)


def must_be_allowed(topic: Topic, action: Decision) -> None:
    """Neither cap is passed, and buckets are raised to the ceiling at most."""
    policy, count = topic.policy, len(topic.layout.active)
    match action:
        case Split():
            assert count < policy.max_segments
        case Merge():
            assert count > policy.min_segments
        case Rebucket(segment_ids, buckets):
            assert segment_ids
            assert list(segment_ids) == sorted(set(segment_ids))
            for each in segment_ids:
                before = topic.layout.segments[each].buckets
                assert buckets != before
                assert buckets < before or buckets <= policy.max_entry_buckets_per_segment
        case NoAction():
            pass


# --- one decision -------------------------------------------------------------------------------

LAST = st.sampled_from((0, START_MS, START_MS + 30_000, START_MS + 200_000))
LASTS = st.builds(LastActions, split_ms=LAST, merge_ms=LAST, rebucket_ms=LAST)


@given(layouts(), TRAFFIC, demands(), policies(), LASTS, st.integers(0, 400))
def test_every_action_is_one_that_the_layout_and_the_caps_allow(
    layout: SegmentLayout,
    traffic: Traffic,
    demand: dict[str, Demand],
    policy: AutoScalePolicy,
    last: LastActions,
    seconds: int,
) -> None:
    topic = Topic(layout, traffic, policy)
    topic.last = last
    now_ms = START_MS + seconds * 1000
    action = topic.decided(demand, now_ms)
    must_be_allowed(topic, action)
    topic.apply(action, now_ms)  # raises when the layout does not allow it
    if not isinstance(action, Split):
        must_leave_enough(topic, layout, demand)
    assert action.why


@given(layouts(), TRAFFIC, demands(), policies(), st.randoms(use_true_random=False))
def test_a_decision_does_not_depend_on_the_order_of_what_it_is_given(
    layout: SegmentLayout,
    traffic: Traffic,
    demand: dict[str, Demand],
    policy: AutoScalePolicy,
    random: Random,
) -> None:
    topic = Topic(layout, traffic, policy)
    now_ms = START_MS + round(CALM_S * 1000)
    parts, loads = list(layout.segments.values()), list(topic.loads().items())
    subscriptions = list(demand.items())
    for each in (parts, loads, subscriptions):
        random.shuffle(each)
    other = SegmentLayout(layout.epoch, layout.next_segment_id, parts)
    found = decide(other, dict(loads), dict(subscriptions), policy, now_ms, LastActions())
    assert found == topic.decided(demand, now_ms)


# --- many decisions, while nothing changes ------------------------------------------------------


@given(
    layouts(),
    TRAFFIC,
    demands(),
    policies(),
    st.lists(st.sampled_from((1.0, 60.0, 700.0, CALM_S)), min_size=1, max_size=8),
)
def test_a_constant_load_comes_to_rest_and_no_layout_comes_again(
    layout: SegmentLayout,
    traffic: Traffic,
    demand: dict[str, Demand],
    policy: AutoScalePolicy,
    pauses_s: list[float],
) -> None:
    topic = Topic(layout, traffic, policy)
    most = max(policy.max_segments, len(layout.active))
    fewest = min(policy.min_segments, len(layout.active))
    # A hot key may cost a split and a merge for each bit of its hash.
    bound = 2 * most + 4 + 2 * 16 * (1 + len(traffic.hot_keys))
    shapes = {topic.shape}
    now_ms, done, quiet = START_MS, 0, 0
    while quiet <= len(pauses_s):
        pause_s = pauses_s[(done + quiet) % len(pauses_s)] if quiet < len(pauses_s) else CALM_S
        now_ms += round(pause_s * 1000)
        action = topic.decided(demand, now_ms)
        if isinstance(action, NoAction):
            quiet += 1
            continue
        must_be_allowed(topic, action)
        topic.apply(action, now_ms)
        assert fewest <= len(topic.layout.active) <= most
        assert topic.shape not in shapes, action
        shapes.add(topic.shape)
        done, quiet = done + 1, 0
        assert done <= bound, action


@given(layouts(), policies(), st.data())
def test_a_load_that_wavers_between_the_thresholds_splits_and_merges_nothing(
    layout: SegmentLayout, policy: AutoScalePolicy, data: st.DataObject
) -> None:
    low, high = policy.merge_thresholds, policy.split_thresholds
    now_ms = START_MS
    for _ in range(3):
        now_ms += round(CALM_S * 1000)
        loads = {}
        for part in layout.active:
            rates = [data.draw(st.floats(0.0, each)) for each in high]
            warm = data.draw(st.integers(0, 3))
            rates[warm] = max(rates[warm], low[warm])
            loads[part.segment_id] = SegmentLoad(rates[0], rates[1], rates[2], rates[3], START_MS)
        found = decide(layout, loads, {}, policy, now_ms, LastActions())
        assert isinstance(found, NoAction | Rebucket)


# --- policies -----------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(-(10**15), 10**15), st.floats(-1e15, 1e15))
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        name: st.booleans()
        if name == "enabled"
        else st.integers(-(10**6), 10**6)
        if name in ("maxSegments", "minSegments", "maxDagDepth")
        else NUMBERS
        for name in OVERRIDE_FIELDS
    },
)


@given(OVERRIDES)
def test_an_override_survives_the_log(given_: dict[str, object]) -> None:
    override = checked_override(given_)
    flat = override_flat(override)
    assert is_override_form(flat)
    assert override_of(flat) == override
    assert override_flat(override_of(flat)) == flat


@given(OVERRIDES, OVERRIDES)
def test_each_field_is_that_of_the_most_specific_level(
    namespace: dict[str, object], topic: dict[str, object]
) -> None:
    broker = AutoScalePolicy()
    found = resolve(broker, checked_override(namespace), checked_override(topic))
    values = msgspec.to_builtins(found.policy)
    for name, level in found.origins.items():
        source = {
            Level.TOPIC: topic,
            Level.NAMESPACE: namespace,
            Level.BROKER: msgspec.to_builtins(broker),
        }[level]
        assert values[name] == source[name]
        assert (name in topic) is (level is Level.TOPIC)
    assert found.fault == fault_of(found.policy)
