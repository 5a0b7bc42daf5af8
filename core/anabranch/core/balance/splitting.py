"""The bundles that a broker splits by itself, their cuts, and the hottest bundle.

Each owner looks at its own bundles once in an interval. It cuts a bundle in two that was over a
limit in enough cycles in a row; the broken rule is the reason. An algorithm places the cut: in the
middle of the bundle's range or of its topics, or at the point where the topics' traffic has reached
a limit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import msgspec

from anabranch.core.balance.broker_load import is_sound
from anabranch.core.balance.bundle_load import BundleLoad
from anabranch.core.balance.counters import SplitReason
from anabranch.core.balance.settings import BalanceSettings, SplitAlgorithm
from anabranch.core.balance.strategies import Cut, Strategies, StrategyKind, must, wishes
from anabranch.core.errors import InvalidInputError
from anabranch.core.ring import HashRange, split_bundle_name


class TopicLoad(msgspec.Struct, frozen=True, gc=False):
    """A topic's place on the ring, and its traffic in messages and bytes a second, in and out."""

    position: int
    msg_rate: float = 0.0
    msg_throughput: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Tells whether both rates are finite, not negative and no NaN."""
        return is_sound(self.msg_rate) and is_sound(self.msg_throughput)


class BundleSplit(msgspec.Struct, frozen=True):
    """A bundle is to be cut at `boundary`; `why` says which limit it is over, in words."""

    bundle: str
    boundary: int
    reason: SplitReason
    why: str


class SplitRound(msgspec.Struct, frozen=True):
    """The result of one cycle: decisions, and bundles that cannot be split, each with the reason.

    Each of the latter counts as a failure. `waiting`: bundles over a limit that stay as they are
    for now, and why. `thresholds`, `strategy`, `fault`: see `Round`.
    """

    decisions: tuple[BundleSplit, ...]
    failed: tuple[tuple[str, str], ...]
    waiting: tuple[tuple[str, str], ...]
    thresholds: str = ""
    strategy: str = ""
    fault: str = ""


class OwnerView(msgspec.Struct, frozen=True):
    """A broker's view of its own bundles.

    `loads`: those of all bundles that it has measured. `owns`: True if the log names it as owner.
    `bundle_count`: the number of a namespace's bundles, None if unknown. `splitting`: the bundles
    that are being split, anybody's. `topics`: those of a bundle.
    """

    loads: Mapping[str, BundleLoad]
    owns: Callable[[str], bool]
    bundle_count: Callable[[str], int | None]
    splitting: Collection[str]
    topics: Callable[[str], Sequence[TopicLoad]]


Hits = Mapping[str, int]  # by bundle: the cycles in a row in which it was over a limit


def decide_splits(
    hits: Hits,
    view: OwnerView,
    settings: BalanceSettings,
    strategies: Strategies | None = None,
) -> tuple[dict[str, int], SplitRound]:
    """One cycle. It has an answer to any input."""
    cuts, fault = _asked(strategies or Strategies(), view.loads, settings)
    counts = {bundle: count for bundle, count in hits.items() if bundle in view.loads}
    blocked = _Blocked(view.splitting)
    decided: list[BundleSplit] = []
    failed: list[tuple[str, str]] = []
    waiting: list[tuple[str, str]] = []
    added: dict[str, int] = {}  # splits that this cycle has decided, by namespace
    for bundle in dict.fromkeys((*(cuts or ()), *view.loads)):  # requested cuts come first
        load = view.loads[bundle]
        if load.topics < 2 or not view.owns(bundle):
            continue
        try:
            namespace, whole = split_bundle_name(bundle)
            if not whole.splittable:
                raise InvalidInputError(f"bundle {bundle} holds a single hash")
            cut = cuts.get(bundle) if cuts is not None else _over(bundle, load, settings)
            if cut is None:
                counts.pop(bundle, None)
                continue
            why = cut.why
            counts[bundle] = counts.get(bundle, 0) + 1
            if counts[bundle] <= settings.namespace_bundle_split_condition_hit_count_threshold:
                waiting.append((bundle, f"{why}, in {counts[bundle]} cycles in a row so far"))
                continue
            there = view.bundle_count(namespace)
            if there is None:
                raise InvalidInputError(f"nobody knows how many bundles {namespace} has")
            if there + added.get(namespace, 0) >= settings.namespace_maximum_bundles:
                waiting.append((bundle, f"{why}, but {namespace} has as many bundles as it may"))
                continue
            if blocked.blocks(namespace, whole):
                waiting.append((bundle, f"{why}, but its parent or child is being split"))
                continue
            boundary = cut.boundary
            if boundary is None:
                boundary = _boundary(whole, view.topics(bundle), settings)
        except InvalidInputError as error:
            failed.append((bundle, str(error)))
            continue
        del counts[bundle]
        added[namespace] = added.get(namespace, 0) + 1
        decided.append(BundleSplit(bundle, boundary, cut.reason, why))
        if len(decided) >= settings.max_number_of_bundles_to_split_per_cycle:
            break
    return counts, SplitRound(
        *(tuple(decided), tuple(failed), tuple(waiting)),
        strategy="" if cuts is None else settings.bundle_split_strategy,
        fault=fault,
    )


def _asked(
    own: Strategies, loads: Mapping[str, BundleLoad], settings: BalanceSettings
) -> tuple[dict[str, Cut] | None, str]:
    """The cuts that a strategy wishes, None if the built-in rule decides; and its fault."""

    def checked(answer: Iterable[object]) -> dict[str, Cut]:
        found = wishes(answer, Cut)
        for bundle, cut in found.items():
            must(bundle in loads, f"{bundle!r} is no bundle that was measured")
            unfit = (SplitReason.ADMIN, SplitReason.UNKNOWN)
            must(cut.reason not in unfit, f"{cut.reason!r} is no reason to split a bundle")
            _, whole = split_bundle_name(bundle)
            is_inside = cut.boundary is None or whole.lower < cut.boundary < whole.upper
            must(is_inside, f"{cut.boundary} is no place inside {bundle}")
        return found

    return own.ask(StrategyKind.SPLIT, settings, checked, MappingProxyType(loads), settings)


def _over(bundle: str, load: BundleLoad, settings: BalanceSettings) -> Cut | None:
    """A cut for the first limit that a bundle is over; None for none."""
    sessions = load.consumers + load.producers
    limits = (
        (SplitReason.TOPICS, load.topics, settings.namespace_bundle_max_topics, "topics"),
        (SplitReason.SESSIONS, sessions, settings.namespace_bundle_max_sessions, "sessions"),
        (SplitReason.MSG_RATE, load.msg_rate, settings.namespace_bundle_max_msg_rate, "messages/s"),
        (SplitReason.BANDWIDTH, load.msg_throughput, settings.bundle_max_bandwidth, "bytes/s"),
    )
    if load.is_sound:
        for reason, found, most, unit in limits:
            if found > most and (most > 0 or reason is not SplitReason.SESSIONS):
                return Cut(bundle, reason, f"{found:.0f} {unit} are more than {most:.0f}")
    return None


class _Blocked:
    """Bundles that are being split, so that no other of the same family is."""

    def __init__(self, splitting: Iterable[str]) -> None:
        self._edges: set[tuple[str, str, int]] = set()
        for bundle in splitting:
            try:
                namespace, part = split_bundle_name(bundle)
            except InvalidInputError:
                continue  # no bundle
            self._edges |= {(namespace, "lower", part.lower), (namespace, "upper", part.upper)}

    def blocks(self, namespace: str, part: HashRange) -> bool:
        """Tells whether one of them begins or ends at the same edge as this one."""
        lower, upper = (namespace, "lower", part.lower), (namespace, "upper", part.upper)
        return lower in self._edges or upper in self._edges


def hottest_bundle(bundles: Mapping[str, HashRange], topics: Iterable[TopicLoad]) -> str:
    """The bundle whose topics have the most traffic: bytes a second, then messages; "" for none.

    Among equals it is the first on the ring. Topics with implausible rates count as without
    traffic.
    """
    order = sorted(bundles.items(), key=lambda each: each[1])
    edges = [part.lower for _, part in order]
    sums = [(0.0, 0.0)] * len(order)
    for topic in topics:
        at = bisect_right(edges, topic.position) - 1
        if at >= 0 and topic.position in order[at][1] and topic.is_sound:
            flow, rate = sums[at]
            sums[at] = flow + topic.msg_throughput, rate + topic.msg_rate
    most = max(sums, default=(0.0, 0.0))
    return order[sums.index(most)][0] if any(most) else ""


# --- where a bundle is cut ------------------------------------------------------------------------


def boundaries(
    algorithm: SplitAlgorithm,
    whole: HashRange,
    topics: Sequence[TopicLoad],
    settings: BalanceSettings,
    positions: Sequence[int] = (),
) -> tuple[int, ...]:
    """The points at which an algorithm cuts a bundle, in ascending order; none if it sees no reason
    to.

    `positions`: for `specified_positions_divide`; those outside the bundle mean nothing to it.
    """
    match algorithm:
        case SplitAlgorithm.RANGE:
            return range_equally(whole)
        case SplitAlgorithm.TOPIC_COUNT:
            return topic_count_equally(whole, [topic.position for topic in topics])
        case SplitAlgorithm.POSITIONS:
            return at_positions(whole, positions)
        case SplitAlgorithm.FLOW_OR_QPS:
            return flow_or_qps_equally(whole, topics, settings)


def range_equally(whole: HashRange) -> tuple[int, ...]:
    """In the middle of the range."""
    return ((whole.lower + whole.upper) // 2,) if whole.splittable else ()


def topic_count_equally(whole: HashRange, positions: Sequence[int]) -> tuple[int, ...]:
    """Between the topics in the middle, or as close to them as two topics are apart.

    >>> topic_count_equally(HashRange(0, 100), [10, 20, 30, 40])
    (25,)
    """
    ordered = sorted(position for position in positions if position in whole)
    half = len(ordered) / 2
    gaps = [
        (abs(count - half), _between(before, after))
        for count, (before, after) in enumerate(pairwise(ordered), 1)
        if before < after
    ]
    return _inside(whole, [min(gaps)[1]]) if gaps else ()


def at_positions(whole: HashRange, positions: Sequence[int]) -> tuple[int, ...]:
    """At each of these that lies inside the bundle."""
    return _inside(whole, positions)


def flow_or_qps_equally(
    whole: HashRange, topics: Sequence[TopicLoad], settings: BalanceSettings
) -> tuple[int, ...]:
    """Wherever another topic's traffic would be more than one bundle may have (PIP-169).

    Nowhere while the whole exceeds that by no more than the difference that is tolerated.
    """
    rate_max, flow_max = settings.namespace_bundle_max_msg_rate, settings.bundle_max_bandwidth
    tolerated = 1 + settings.flow_or_qps_difference_threshold_percentage / 100
    ordered = sorted(
        (topic for topic in topics if topic.position in whole), key=lambda topic: topic.position
    )
    rates = sum(topic.msg_rate for topic in ordered)
    flows = sum(topic.msg_throughput for topic in ordered)
    if not (rates > rate_max * tolerated or flows > flow_max * tolerated):
        return ()
    cuts: list[int] = []
    rate, flow = ordered[0].msg_rate, ordered[0].msg_throughput
    for before, topic in pairwise(ordered):
        rate, flow = rate + topic.msg_rate, flow + topic.msg_throughput
        if (rate > rate_max or flow > flow_max) and before.position < topic.position:
            cuts.append(_between(before.position, topic.position))
            rate, flow = topic.msg_rate, topic.msg_throughput
    return _inside(whole, cuts)


def _between(before: int, after: int) -> int:
    """A cut that has both on different sides; a position at the cut is right of it."""
    return (before + after + 1) // 2


def _inside(whole: HashRange, cuts: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({cut for cut in cuts if whole.lower < cut < whole.upper}))


def _boundary(whole: HashRange, topics: Sequence[TopicLoad], settings: BalanceSettings) -> int:
    """The one cut of an automatic split. Among several it is the middle one: the next cycles do the
    rest.

    Raises InvalidInputError if there is none.
    """
    algorithm = settings.default_namespace_bundle_split_algorithm
    found = boundaries(algorithm, whole, topics, settings)
    if not found:
        raise InvalidInputError(f"{algorithm.value} finds no place to cut {whole} at")
    return found[len(found) // 2]
