"""What this node's controllers have decided about load, for logs, metrics and statistics."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.broker.log import get_logger
from anabranch.core.autoscale_decisions import Blocked, Merge, NoAction, Split, describe
from anabranch.core.autoscaler import Evaluation
from anabranch.core.controller import TopicController
from anabranch.core.state import StateReader
from anabranch.core.topics import ScalableTopic, TopicMove

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


def is_rollover(change: object) -> bool:
    """Whether that is what a topic has just become by a rollover that took over.

    To be asked of each change once: a topic stays so until its next one.
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


class Scaling(Collector):
    """One node's, of the topics that something came of. To be used in the node's event loop."""

    def __init__(
        self,
        broker: str,
        view: Callable[[], StateReader],
        controllers: Callable[[], Iterable[TopicController]],
    ) -> None:
        self._view = view
        self._controllers = controllers
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
        active = GaugeMetricFamily(
            f"{_PREFIX}active_segments", "Active segments of the topic.", None, ["topic"]
        )
        view = self._view()
        self.drop(lambda name: view.topic(name) is None)
        names = {controller.name for controller in self._controllers()}
        for name in sorted(names.union(self._topics)):
            topic = view.topic(name)
            if topic is not None:
                active.add_metric([name], sum(part.is_active for part in topic.segments))
        yield active
        for counter, text in _COUNTERS.items():
            family = CounterMetricFamily(f"{_PREFIX}{counter}", text, None, ["topic"])
            for name, known in self._topics.items():
                family.add_metric([name], known.counts[counter])
            yield family

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
