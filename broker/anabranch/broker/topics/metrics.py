"""A node's metrics of its topics.

They are decisions about load, shares of segments (PIP-486), stored messages, and unread ones.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
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
_OF_SEGMENT = ("topic", "segment")
_OF_SHARE = ("topic", "subscription", "segment")
_TOPIC = ("topic",)
_SUBSCRIPTION = ("topic", "subscription")
_RATES = (
    "anabranch_topic_messages_in_per_second",
    "anabranch_topic_bytes_in_per_second",
    "anabranch_topic_messages_out_per_second",
    "anabranch_topic_bytes_out_per_second",
)
_RATE = "Produced to the topic (in), or consumed from it (out)."


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


class SegmentConsumerMetrics(Collector):
    """Consumers of the topics that this node controls. Collected in the node's event loop."""

    def __init__(
        self,
        controllers: Callable[[], Iterable[TopicController]],
        view: Callable[[], StateReader],
        owned: Callable[[], Iterable[str]],
    ) -> None:
        self._controllers = controllers
        self._view = view
        self._owned = owned

    def collect(self) -> Iterable[Metric]:
        yield self._buckets()
        yield from self._shares()

    def _buckets(self) -> Metric:
        buckets = GaugeMetricFamily(
            f"{_PREFIX}segment_entry_buckets", "Entry buckets of the segment.", None, _OF_SEGMENT
        )
        view = self._view()
        for name in sorted({each.name for each in self._controllers()}.union(self._owned())):
            topic = view.topic(name)
            for part in topic.segments if topic is not None else ():
                buckets.add_metric([name, str(part.segment_id)], part.buckets)
        return buckets

    def _shares(self) -> Iterable[Metric]:
        sharing = GaugeMetricFamily(
            f"{_PREFIX}segment_consumers", "Consumers that share the segment.", None, _OF_SHARE
        )
        withheld = GaugeMetricFamily(
            f"{_PREFIX}buckets_withheld",
            "Buckets that wait for their former consumer to settle its messages.",
            None,
            _OF_SHARE,
        )
        draining = GaugeMetricFamily(
            f"{_PREFIX}drain_mode_active",
            "1 while several consumers drain the backlog of a sealed segment.",
            None,
            _OF_SHARE,
        )
        unserved = GaugeMetricFamily(
            f"{_PREFIX}buckets_unserved",
            "Buckets without a consumer for longer than they should wait.",
            None,
            _OF_SHARE,
        )
        moved = CounterMetricFamily(
            f"{_PREFIX}bucket_reassignments",
            "Buckets given to another consumer than before, since this controller took over.",
            None,
            _OF_SHARE,
        )
        for controller in self._controllers():
            name = controller.name
            for subscription, coordinator in controller.coordinators.items():
                waiting = coordinator.withheld()
                owners: dict[int, int] = {}
                for shares in coordinator.target.wanted().values():
                    for segment_id in shares:
                        owners[segment_id] = owners.get(segment_id, 0) + 1
                late = coordinator.target.unserved.overdue(clock.now())
                for segment_id, count in late.items():
                    unserved.add_metric([name, subscription, str(segment_id)], count)
                for segment_id, count in owners.items():
                    labels = [name, subscription, str(segment_id)]
                    sharing.add_metric(labels, count)
                    withheld.add_metric(labels, waiting[segment_id])
                    draining.add_metric(labels, segment_id in coordinator.target.backlog.draining)
                for segment_id, count in coordinator.moved.items():
                    moved.add_metric([name, subscription, str(segment_id)], count)
        return (sharing, withheld, draining, unserved, moved)


class DeadLetterMetrics(Collector):
    """Dead letters of the topics that this node controls. Collected in the node's event loop."""

    def __init__(self, waiting: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._waiting = waiting

    def collect(self) -> Iterable[Metric]:
        waiting = GaugeMetricFamily(
            "anabranch_dead_letters_waiting",
            "Messages of a queue that its consumers could not put aside yet.",
            None,
            ["topic", "subscription"],
        )
        for (topic, subscription), count in sorted(self._waiting().items()):
            waiting.add_metric([topic, subscription], count)
        yield waiting


class BacklogMetrics(Collector):
    """Messages of the topics that this node controls. Collected in the node's event loop."""

    def __init__(
        self,
        view: Callable[[], StateReader],
        load: LoadOf,
        owned: Callable[[], Iterable[str]],
        seen: Mapping[str, TopicSample],
        soon: Mapping[tuple[str, str], float],
    ) -> None:
        self._view = view
        self._load = load
        self._owned = owned
        self._seen = seen
        self._soon = soon  # expiring subscriptions, and the seconds left to each

    def collect(self) -> Iterable[Metric]:
        loads = {name: self._loads(name) for name in self._owned()}
        for place, metric in enumerate(_RATES):
            yield _rate(metric, place, loads)
        yield self._stored()
        yield from self._of_subscriptions(loads)

    def _loads(self, name: str) -> list[SegmentLoad]:
        topic = self._view().topic(name)
        if topic is None:
            return []
        return list((self._load(name, topic.incarnation) or {}).values())

    def _stored(self) -> Metric:
        stored = GaugeMetricFamily(
            "anabranch_topic_stored_messages", "Messages that Kafka has of the topic.", None, _TOPIC
        )
        for name, seen in self._seen.items():
            stored.add_metric([name], seen.stored)
        return stored

    def _of_subscriptions(self, loads: dict[str, list[SegmentLoad]]) -> Iterable[Metric]:
        messages = GaugeMetricFamily(
            "anabranch_subscription_backlog_messages",
            "Unread messages of the subscription, as far as Kafka tells nodes.",
            None,
            _SUBSCRIPTION,
        )
        size = GaugeMetricFamily(
            "anabranch_subscription_backlog_bytes",
            "Estimated bytes of these, by the sizes of messages produced lately.",
            None,
            _SUBSCRIPTION,
        )
        rate = GaugeMetricFamily(
            "anabranch_subscription_messages_per_second",
            "Messages that the subscription read a second, between the last two looks.",
            None,
            _SUBSCRIPTION,
        )
        expires = GaugeMetricFamily(
            "anabranch_subscription_expires_in_seconds",
            "Time until an unused subscription is deleted, in the last quarter.",
            None,
            _SUBSCRIPTION,
        )
        for name, seen in self._seen.items():
            average = _average_size(loads.get(name, []))
            for subscription, left in seen.left.items():
                messages.add_metric([name, subscription], left)
                if average is not None or not left:
                    size.add_metric([name, subscription], left * (average or 0.0))
            for subscription, per_second in seen.rates.items():
                rate.add_metric([name, subscription], per_second)
        for key, left_s in self._soon.items():
            expires.add_metric(list(key), left_s)
        return (messages, size, rate, expires)


def _rate(metric: str, place: int, loads: Mapping[str, Iterable[SegmentLoad]]) -> Metric:
    family = GaugeMetricFamily(metric, _RATE, None, _TOPIC)
    for name, parts in loads.items():
        family.add_metric([name], sum(part.rates[place] for part in parts))
    return family


def _average_size(loads: Iterable[SegmentLoad]) -> float | None:
    """Bytes of a message, of those that came in; None: none did."""
    rates = [load.rates for load in loads]
    count = sum(each[0] for each in rates)
    return sum(each[1] for each in rates) / count if count > 0 else None
