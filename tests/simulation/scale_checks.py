"""What must hold of auto-scaling at every instant, judged by the log alone.

The caps, the cooldowns and the switch are those of the policies that were in force lately: a
namespace's may have changed while a record was on its way, a topic's cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.autoscale.decide import LastActions, decide
from anabranch.core.autoscale.decisions import NoAction, Reason
from anabranch.core.autoscale.policy import AutoScalePolicy, effective_policy
from anabranch.core.autoscale.schedule import demand_of, policy_of
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove
from anabranch.core.log.outcome import Folded
from anabranch.core.log.records import NamespaceChange, TopicChange
from anabranch.core.names import namespace_of
from simulation.cluster import LATE_S_MAX
from simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

AUTOMATIC = frozenset(reason.name for reason in Reason)
LATELY_S = 2 * LATE_S_MAX + 5.0  # a record that is held back and then late, with a slow decision
LONG_MS = 10**9
_BOTH = (Operation.SPLIT, Operation.MERGE)  # a prepared topic rests from them

_Id = tuple[str, int]  # topic, incarnation


class ScaleChecks:
    """The observer of what topics do by themselves."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._took_over: dict[tuple[_Id, Operation], int] = {}  # when, in the log's time
        self._begun: dict[_Id, TopicChange] = {}
        self._by_itself: dict[_Id, TopicChange] = {}  # the last one
        self._overrides: dict[str, list[tuple[float, tuple[str, ...]]]] = {}
        self.counts: dict[str, int] = {}

    def folded(self, folded: Folded) -> None:
        """An accepted record, which the truth holds already."""
        record = folded.record
        if isinstance(record, NamespaceChange):
            now = self._world.sched.now
            history = self._overrides.setdefault(record.namespace, [(-LATELY_S, ())])
            history.append((now, record.auto_scale))
        if not isinstance(record, TopicChange):
            return
        topic = self._world.cluster.checks.truth.topic(record.topic)
        if topic is None:
            return
        which = (record.topic, topic.incarnation)
        if record.move is TopicMove.BEGIN:
            if record.cause.name in AUTOMATIC and _is_adopted(topic):
                raise ViolationError(f"{record.topic} is cut over by nobody: {record}")
            if record.cause.name in AUTOMATIC:
                self._must_be_allowed(which, topic, record, folded.timestamp_ms)
                self._count(which, record)
            self._begun[which] = record
        elif record.move is TopicMove.COMMIT:
            done = self._begun[which].operation
            for each in _BOTH if done is Operation.PREPARE else (done,):
                self._took_over[which, each] = folded.timestamp_ms

    def _count(self, which: _Id, record: TopicChange) -> None:
        before = self._by_itself.get(which)
        self._by_itself[which] = record
        names = [f"auto_{record.operation.name.lower()}", record.cause.name]
        if before is not None and before.actor != record.actor:
            names.append("auto_after_fail_over")
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + 1

    def _must_be_allowed(
        self, which: _Id, topic: ScalableTopic, record: TopicChange, at_ms: int
    ) -> None:
        faults = []
        for policy, fault in self._policies(record.topic, topic):
            found = fault or self._fault(which, topic, record, at_ms, policy)
            if not found:
                return
            faults.append(found)
        raise ViolationError(f"{record.topic} did by itself what it must not: {faults}: {record}")

    def _policies(self, name: str, topic: ScalableTopic) -> list[tuple[AutoScalePolicy, str]]:
        """Those that may have been in force when the record was made, each with its fault."""
        history = self._overrides.get(namespace_of(name), [(0.0, ())])
        since = self._world.sched.now - LATELY_S
        first = max(n for n, (at, _) in enumerate(history) if n == 0 or at <= since)
        broker = self._world.settings.auto_scale.policy
        found = [effective_policy(broker, each, topic.auto_scale) for _, each in history[first:]]
        return [(each.policy, each.fault) for each in found]

    def _fault(
        self,
        which: _Id,
        topic: ScalableTopic,
        record: TopicChange,
        at_ms: int,
        policy: AutoScalePolicy,
    ) -> str:
        count, layout = len(topic.layout.active), topic.layout
        if not policy.enabled:
            return "it is switched off"
        match record.operation:
            case Operation.SPLIT:
                if count >= policy.max_segments:
                    return f"it has {count} segments of at most {policy.max_segments}"
                return self._within(which, record, at_ms, policy.split_cooldown_seconds)
            case Operation.MERGE:
                if count <= policy.min_segments:
                    return f"it has {count} segments of at least {policy.min_segments}"
                depth = max(layout.merge_depth(each) for each in record.parents)
                if depth >= policy.max_dag_depth:
                    return f"the merge depth is {depth} of at most {policy.max_dag_depth}"
                return self._within(which, record, at_ms, policy.merge_cooldown_seconds)
            case _:
                buckets = record.segments[0].buckets
                raised = buckets > layout.segment(record.parents[0]).buckets
                if raised and buckets > policy.max_entry_buckets_per_segment:
                    return f"{buckets} buckets are more than the ceiling"
                if self._goes_on(which, record):
                    return ""
                return self._within(which, record, at_ms, policy.rebucket_cooldown_seconds)

    def _within(self, which: _Id, record: TopicChange, at_ms: int, cooldown_s: float) -> str:
        """Whether the last operation of this kind, by hand or not, took over too lately."""
        last_ms = self._took_over.get((which, record.operation))
        if last_ms is None or at_ms - last_ms >= cooldown_s * 1000:
            return ""
        return f"the cooldown of {cooldown_s} s has lasted for {at_ms - last_ms} ms only"

    def _goes_on(self, which: _Id, record: TopicChange) -> bool:
        """Whether it is the next segment of the decision before it, by the same controller."""
        before = self._begun.get(which)
        return (
            before is not None
            and before.operation is Operation.REBUCKET
            and before.actor == record.actor  # whose session may have lapsed meanwhile
            # Somebody may have asked for the very step that was decided: no state tells whose.
            and (before.cause is record.cause or before.cause.name not in AUTOMATIC)
            and before.segments[0].buckets == record.segments[0].buckets
        )

    # --- after the faults -------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """What topics have still to do by themselves, once every cooldown and window is over."""
        truth, found = self._world.cluster.checks.truth, []
        for name in self._world.topics:
            topic = truth.topic(name)
            if topic is None or not topic.is_open or _is_adopted(topic):
                continue
            effective = policy_of(truth, name, topic, self._world.settings.auto_scale.policy)
            if effective.fault:
                continue
            load = self._world.loads.newest(name, topic.incarnation)
            now_ms = self._world.cluster.log_ms() + LONG_MS
            demand = demand_of(truth, name)
            left = decide(topic.layout, load, demand, effective.policy, now_ms, LastActions())
            if not isinstance(left, NoAction):
                found.append(f"{name} has yet to do by itself: {left.why}")
        return found


def _is_adopted(topic: ScalableTopic) -> bool:
    """Whether it is a Kafka topic of others yet, which only people cut over."""
    return any(part.is_legacy for part in topic.layout.active)
