"""A node's metrics of its topics.

They are decisions about load, shares of segments (PIP-486), stored messages, and unread ones.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.logging import get_logger
from anabranch.core.autoscale.decisions import Blocked, Merge, NoAction, Split, describe
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.schedule import Evaluation, LoadOf
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.log.state import StateReader
from anabranch.core.subscriptions.coordinator import SubscriptionCoordinator
from anabranch.core.topics.controller import TopicController
from anabranch.wire import clock

_TOPICS_MAX: Final = 1_000  # those looked at last are remembered
_DECISIONS_MAX: Final = 10
_PREFIX: Final = "pulsar_scalable_topic_"
_COUNTERS: Final = {
    "auto_splits": "Automatic splits that took over.",
    "auto_merges": "Automatic merges that took over.",
    "rebucket_rollovers": "Segments replaced by one with other entry buckets, by hand or not.",
    "split_suppressed_max_segments": "Evaluations that maxSegments kept from a split.",
    "merge_suppressed_max_depth": "Evaluations that maxDagDepth kept from a merge.",
}
_TOPIC = ("topic",)
_SEGMENT = ("topic", "segment")
_SUBSCRIPTION = ("topic", "subscription")
_SHARE = ("topic", "subscription", "segment")
_RATES = (
    "anabranch_topic_messages_in_per_second",
    "anabranch_topic_bytes_in_per_second",
    "anabranch_topic_messages_out_per_second",
    "anabranch_topic_bytes_out_per_second",
)
_RATE = "Produced to the topic (in), or consumed from it (out)."
_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily
_Family = tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str, Sequence[str]]
_Sample = tuple[str, list[str], float]
_BUCKETS: Final[Mapping[str, _Family]] = {
    f"{_PREFIX}segment_entry_buckets": (_GAUGE, "Entry buckets of the segment.", _SEGMENT),
}
_SHARES: Final[Mapping[str, _Family]] = {
    f"{_PREFIX}segment_consumers": (_GAUGE, "Consumers that share the segment.", _SHARE),
    f"{_PREFIX}buckets_withheld": (
        _GAUGE,
        "Buckets that wait for their former consumer to settle its messages.",
        _SHARE,
    ),
    f"{_PREFIX}drain_mode_active": (
        _GAUGE,
        "1 while several consumers drain the backlog of a sealed segment.",
        _SHARE,
    ),
    f"{_PREFIX}buckets_unserved": (
        _GAUGE,
        "Buckets without a consumer for longer than they should wait.",
        _SHARE,
    ),
    f"{_PREFIX}bucket_reassignments": (
        _COUNTER,
        "Buckets given to another consumer than before, since this controller took over.",
        _SHARE,
    ),
}
_DEAD_LETTERS: Final[Mapping[str, _Family]] = {
    "anabranch_dead_letters_waiting": (
        _GAUGE,
        "Messages of a queue that its consumers could not put aside yet.",
        _SUBSCRIPTION,
    ),
}
_PROGRESS: Final[Mapping[str, _Family]] = {
    "anabranch_topic_stored_messages": (
        _GAUGE,
        "Messages that Kafka has of the topic.",
        _TOPIC,
    ),
    "anabranch_subscription_backlog_messages": (
        _GAUGE,
        "Unread messages of the subscription, as far as Kafka tells nodes.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_backlog_bytes": (
        _GAUGE,
        "Estimated bytes of these, by the sizes of messages produced lately.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_messages_per_second": (
        _GAUGE,
        "Messages that the subscription read a second, between the last two looks.",
        _SUBSCRIPTION,
    ),
    "anabranch_subscription_expires_in_seconds": (
        _GAUGE,
        "Time until an unused subscription is deleted, in the last quarter.",
        _SUBSCRIPTION,
    ),
}


class TopicSample(msgspec.Struct, frozen=True):
    """The findings of a look at one topic. `at`: its time on this node's clock."""

    incarnation: int
    at: float
    stored: int  # messages that Kafka has of it
    lives: Mapping[str, int]  # of its subscriptions: what made them, or put them elsewhere last
    read: Mapping[str, int]  # by subscription: messages before its positions
    left: Mapping[str, int]  # that it has yet to read
    rates: Mapping[str, float]  # that it reads in a second


def is_rollover(change: object) -> bool:
    """Returns whether a topic has become this just now by a rollover that took over.

    Call it once for each change: a topic stays so until its next one.
    """
    return (
        isinstance(change, ScalableTopic)
        and change.move is TopicMove.COMMIT
        and change.rebucket_ms == change.since_ms
    )


class _Remembered:
    __slots__ = ("blocked", "counts", "decisions")

    def __init__(self) -> None:
        self.decisions: deque[Evaluation] = deque(maxlen=_DECISIONS_MAX)
        self.counts: Counter[str] = Counter()
        self.blocked: Blocked | None = None


class AutoScaleMetrics(Collector):
    """Decisions on the topics of this node. Collected in the node's event loop."""

    def __init__(
        self,
        broker: str,
        view: Callable[[], StateReader],
        controllers: Callable[[], Iterable[TopicController]],
    ) -> None:
        self._view = view
        self._controllers = controllers
        self.owned: Callable[[], Iterable[str]] = lambda: ()  # all topics of this node
        self._topics: OrderedDict[str, _Remembered] = OrderedDict()
        self._log = get_logger(broker=broker)

    def note(self, name: str, evaluation: Evaluation) -> None:
        """A controller has looked at its topic."""
        decision = evaluation.decision
        blocked = decision.blocked if isinstance(decision, NoAction) else None
        acts = not isinstance(decision, NoAction)
        if not acts and blocked is None and evaluation.done is None:
            self._at_rest(name, evaluation)
            return
        known = self._remember(name)
        if blocked is Blocked.MAX_SEGMENTS:
            known.counts["split_suppressed_max_segments"] += 1
        elif blocked is Blocked.MAX_DAG_DEPTH:
            known.counts["merge_suppressed_max_depth"] += 1
        match evaluation.done:
            case Split():
                known.counts["auto_splits"] += 1
            case Merge():
                known.counts["auto_merges"] += 1
        news = acts or (blocked is not None and blocked is not known.blocked)
        known.blocked = blocked
        if news:
            known.decisions.append(evaluation)
        self._explain(name, evaluation, blocked, news=news)

    def decisions(self, name: str) -> tuple[Evaluation, ...]:
        """The last ones on a topic that acted, or were kept from it."""
        known = self._topics.get(name)
        return tuple(known.decisions) if known is not None else ()

    def rolled(self, name: str) -> None:
        """A rollover of a topic that this node controls has taken over."""
        self._remember(name).counts["rebucket_rollovers"] += 1

    def _remember(self, name: str) -> _Remembered:
        known = self._topics.setdefault(name, _Remembered())
        self._topics.move_to_end(name)
        if len(self._topics) > _TOPICS_MAX:
            self._topics.popitem(last=False)
        return known

    def drop(self, gone: Callable[[str], bool]) -> None:
        """Forgets topics that are no more, or another node's."""
        for name in [name for name in self._topics if gone(name)]:
            del self._topics[name]

    def collect(self) -> Iterable[Metric]:
        self.drop(lambda name: self._view().topic(name) is None)
        found = {controller.name for controller in self._controllers()}
        names = sorted(found.union(self._topics, self.owned()))
        yield self._active_segments(names)
        for counter, text in _COUNTERS.items():
            yield self._counted(counter, text, names)

    def _active_segments(self, names: Iterable[str]) -> Metric:
        active = GaugeMetricFamily(
            f"{_PREFIX}active_segments", "Active segments of the topic.", None, ["topic"]
        )
        view = self._view()
        for name in names:
            topic = view.topic(name)
            if topic is not None:
                active.add_metric([name], sum(part.is_active for part in topic.segments))
        return active

    def _counted(self, counter: str, text: str, names: Iterable[str]) -> Metric:
        family = CounterMetricFamily(f"{_PREFIX}{counter}", text, None, ["topic"])
        for name in names:
            known = self._topics.get(name)
            family.add_metric([name], known.counts[counter] if known is not None else 0)
        return family

    def _at_rest(self, name: str, evaluation: Evaluation) -> None:
        known = self._topics.get(name)
        if known is not None:
            known.blocked = None
        self._explain(name, evaluation, None, news=False)

    def _explain(
        self, name: str, evaluation: Evaluation, blocked: Blocked | None, *, news: bool
    ) -> None:
        decision = evaluation.decision
        say = self._log.info if news else self._log.debug
        reason = blocked if isinstance(decision, NoAction) else decision.reason
        say(
            "topic.scaled" if not isinstance(decision, NoAction) else "topic.not_scaled",
            topic=name,
            action=describe(decision),
            trigger=evaluation.trigger.value,
            reason=reason.value if reason is not None else None,
            why=decision.why,
        )


class TopicMetrics(Collector):
    """The segments, subscriptions and messages of this node's topics. Collected in its event loop.

    `soon`: expiring subscriptions, and the seconds left to each.
    """

    def __init__(
        self,
        view: Callable[[], StateReader],
        load: LoadOf,
        controllers: Callable[[], Iterable[TopicController]],
        owned: Callable[[], Iterable[str]],
        seen: Mapping[str, TopicSample],
        soon: Mapping[tuple[str, str], float],
        dead_letters: Callable[[], Mapping[tuple[str, str], int]],
    ) -> None:
        self._view = view
        self._load = load
        self._controllers = controllers
        self._owned = owned
        self._seen = seen
        self._soon = soon
        self._dead_letters = dead_letters

    def collect(self) -> Iterable[Metric]:
        # A few at a time, because those of many topics are large.
        yield from _filled(_BUCKETS, self._buckets())
        yield from _filled(_SHARES, self._shares())
        yield from _filled(_DEAD_LETTERS, self._waiting())
        loads = {name: self._loads(name) for name in self._owned()}
        for place, rate in enumerate(_RATES):
            rates = ((rate, [n], sum(p.rates[place] for p in loads[n])) for n in loads)
            yield from _filled({rate: (_GAUGE, _RATE, _TOPIC)}, rates)
        yield from _filled(_PROGRESS, self._progress(loads))

    def _buckets(self) -> Iterator[_Sample]:
        for name in sorted({each.name for each in self._controllers()}.union(self._owned())):
            topic = self._view().topic(name)
            for part in topic.segments if topic is not None else ():
                labels = [name, str(part.segment_id)]
                yield f"{_PREFIX}segment_entry_buckets", labels, part.buckets

    def _shares(self) -> Iterator[_Sample]:
        for controller in self._controllers():
            for subscription, coordinator in controller.coordinators.items():
                yield from _shares(controller.name, subscription, coordinator)

    def _waiting(self) -> Iterator[_Sample]:
        for key, count in sorted(self._dead_letters().items()):
            yield "anabranch_dead_letters_waiting", [*key], count

    def _progress(self, loads: Mapping[str, Iterable[SegmentLoad]]) -> Iterator[_Sample]:
        for name, seen in self._seen.items():
            yield from _progress(name, seen, _average_size(loads.get(name, [])))
        for key, left_s in self._soon.items():
            yield "anabranch_subscription_expires_in_seconds", [*key], left_s

    def _loads(self, name: str) -> list[SegmentLoad]:
        topic = self._view().topic(name)
        if topic is None:
            return []
        return list((self._load(name, topic.incarnation) or {}).values())


def _filled(families: Mapping[str, _Family], samples: Iterable[_Sample]) -> Iterable[Metric]:
    found = {name: kind(name, text, None, of) for name, (kind, text, of) in families.items()}
    for name, labels, value in samples:
        found[name].add_metric(labels, value)
    return found.values()


def _shares(
    name: str, subscription: str, coordinator: SubscriptionCoordinator
) -> Iterator[_Sample]:
    def of(segment_id: int) -> list[str]:
        return [name, subscription, str(segment_id)]

    waiting, target = coordinator.withheld(), coordinator.target
    owners = Counter(segment for shares in target.wanted().values() for segment in shares)
    for segment_id, count in target.unserved.overdue(clock.now()).items():
        yield f"{_PREFIX}buckets_unserved", of(segment_id), count
    for segment_id, count in owners.items():
        yield f"{_PREFIX}segment_consumers", of(segment_id), count
        yield f"{_PREFIX}buckets_withheld", of(segment_id), waiting[segment_id]
        drains = segment_id in target.backlog.draining
        yield f"{_PREFIX}drain_mode_active", of(segment_id), drains
    for segment_id, count in coordinator.moved.items():
        yield f"{_PREFIX}bucket_reassignments", of(segment_id), count


def _progress(name: str, seen: TopicSample, average: float | None) -> Iterator[_Sample]:
    """`average`: bytes of a message, of those that came in; None: none did."""
    yield "anabranch_topic_stored_messages", [name], seen.stored
    for subscription, left in seen.left.items():
        yield "anabranch_subscription_backlog_messages", [name, subscription], left
        if average is not None or not left:
            size = left * (average or 0.0)
            yield "anabranch_subscription_backlog_bytes", [name, subscription], size
    for subscription, per_second in seen.rates.items():
        yield "anabranch_subscription_messages_per_second", [name, subscription], per_second


def _average_size(loads: Iterable[SegmentLoad]) -> float | None:
    rates = [load.rates for load in loads]
    count = sum(each[0] for each in rates)
    return sum(each[1] for each in rates) / count if count > 0 else None
