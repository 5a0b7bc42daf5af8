"""`AutoScaler`: the times at which a topic's controller evaluates its load, and a decision's open
steps.

It has no timer and no event of its own. At each reconciliation of its controller, it compares the
state at its last evaluation with the present one. It evaluates at once if a consumer came or left,
an operation took over, or the policy changed. It looks at the load every `interval_s` and at the
end of a cooldown. It also looks once the load of every segment is known, because a look may have
waited for it (PIP-483, "Evaluation triggers").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, unique
from typing import Final

import msgspec
from msgspec.structs import replace

from anabranch.core.autoscale.decide import Demand, LastActions, decide
from anabranch.core.autoscale.decisions import Blocked, Decision, Merge, NoAction, Rebucket, Split
from anabranch.core.autoscale.load import SegmentLoad
from anabranch.core.autoscale.policy import (
    AutoScalePolicy,
    EffectivePolicy,
    Level,
    effective_policy,
)
from anabranch.core.entities.layout import SegmentLayout
from anabranch.core.entities.subscription import NOBODY, Subscription, SubscriptionKind
from anabranch.core.entities.topic import ScalableTopic
from anabranch.core.log.state import StateReader
from anabranch.core.names import namespace_of

_REPEAT_S: Final = 1.0
Loads = Mapping[int, SegmentLoad] | None  # by segment id; None: not read yet
LoadOf = Callable[[str, int], Loads]  # takes topic and incarnation


@unique
class Trigger(Enum):
    """The cause of the controller's look."""

    TICK = "tick"
    CONSUMERS = "consumers"
    OPERATION = "operation"  # one has just taken over, by hand or not
    POLICY = "policy"


class AutoScaleSettings(msgspec.Struct, frozen=True):
    """`policy`: the base that namespaces and topics override. `interval_s`: between looks at the
    load.

    `is_allowed`: True if auto-scaling may act here; no override changes that.
    """

    policy: AutoScalePolicy = AutoScalePolicy()
    interval_s: float = 60.0
    is_allowed: bool = True


class _Levels(msgspec.Struct, frozen=True):
    """The parts of the policy in force: the broker's settings and the overrides of them."""

    broker: AutoScaleSettings
    namespace: tuple[str, ...]
    topic: tuple[str, ...]


class Evaluation(msgspec.Struct, frozen=True):
    """One look and its result; `at_ms` by the log's clock.

    `done`: the earlier decision that has taken over since.
    """

    at_ms: int
    trigger: Trigger
    decision: Decision
    done: Split | Merge | Rebucket | None = None


class _Seen(msgspec.Struct, frozen=True):
    """The input of the last evaluation. It says of the load only whether that of all segments was
    known.
    """

    last: LastActions
    next_segment_id: int  # grows with each operation that begins, be it given up later or not
    consumers: tuple[tuple[str, int], ...]
    levels: _Levels
    is_loaded: bool


class _Rolling(msgspec.Struct, frozen=True):
    """A Rebucket of several segments: the last proposed one, and the circumstances at that time."""

    action: Rebucket
    segment_id: int
    next_segment_id: int
    levels: _Levels


def demand_of(state: StateReader, topic: str) -> dict[str, Demand]:
    """The consumers of a topic that count."""
    return demand_in(state.subscriptions(topic), {})


def demand_in(
    subscriptions: Iterable[tuple[str, Subscription]], away: Mapping[str, int]
) -> dict[str, Demand]:
    """The consumers that count: those of a queue share every segment anyway.

    `away`: the controller's own counts for subscriptions; for others the log's numbers count.
    """
    return {
        name: Demand(len(each.consumers), away.get(name, each.instances.count(NOBODY)))
        for name, each in subscriptions
        if each.kind is not SubscriptionKind.QUEUE
    }


def policy_of(
    state: StateReader, name: str, topic: ScalableTopic, broker: AutoScalePolicy
) -> EffectivePolicy:
    """The policy in force for a topic."""
    home = state.namespace(namespace_of(name))
    return effective_policy(broker, home.auto_scale if home is not None else (), topic.auto_scale)


def policy_here(
    state: StateReader, name: str, topic: ScalableTopic, settings: AutoScaleSettings
) -> EffectivePolicy:
    """Returns what `policy_of` does; off where the settings do not allow auto-scaling."""
    found = policy_of(state, name, topic, settings.policy)
    if settings.is_allowed:
        return found
    off = replace(found.policy, enabled=False)
    return replace(found, policy=off, origins={**found.origins, "enabled": Level.BROKER})


def evaluate(
    effective: EffectivePolicy,
    topic: ScalableTopic,
    layout: SegmentLayout,
    loads: Loads,
    demand: Mapping[str, Demand],
    now_ms: int,
) -> Decision:
    """Returns the present decision, from the log and the load records."""
    if effective.fault:
        return NoAction(Blocked.INVALID_POLICY, effective.fault)
    if loads is None:
        return NoAction(None, "the loads of segments were not read yet")
    last = LastActions(topic.split_ms, topic.merge_ms, topic.rebucket_ms)
    return decide(layout, loads, demand, effective.policy, now_ms, last)


class AutoScaler:
    """Schedules the evaluations of one topic; its controller calls it when nothing is under way."""

    def __init__(self, name: str, settings: AutoScaleSettings, load: LoadOf) -> None:
        self.name = name
        self.settings = settings
        self._load = load
        self._forget(-1)

    def _forget(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._seen: _Seen | None = None
        self._next_at = 0.0
        self._ends_early = False  # True if that is before a tick
        self._acted: tuple[Split | Merge | Rebucket, int] | None = None  # and its clock before it
        self._rolling: _Rolling | None = None

    @property
    def is_waiting(self) -> bool:
        """Tells whether the controller must ask again before the next tick. It must if a decision
        is under way, or if a cooldown ends.
        """
        return self._acted is not None or self._ends_early

    def ended(self) -> None:
        """The topic is gone."""
        self._forget(-1)

    def refused(self, now: float) -> None:
        """Notes that the decision cannot be proposed; there is no new one before the next tick."""
        self._acted = self._rolling = None
        self._next_at = now + self.settings.interval_s

    def due(
        self,
        state: StateReader,
        topic: ScalableTopic,
        layout: SegmentLayout,
        demand: Mapping[str, Demand],
        now: float,
        at_ms: int,
    ) -> Evaluation | None:
        """Returns what there is to do now; None when it is not the time to look.

        A Rebucket of several segments comes out one segment at a time.
        """
        if topic.incarnation != self._incarnation:
            self._forget(topic.incarnation)
        done = self._done(topic)
        following = self._following(state, topic, layout)
        if following is not None:
            self._acted = (following, topic.rebucket_ms)
            return Evaluation(at_ms, Trigger.OPERATION, following, done)
        loads = self._load(self.name, topic.incarnation)
        is_loaded = loads is not None and all(p.segment_id in loads for p in layout.active)
        trigger = self._trigger(state, topic, demand, now, is_loaded=is_loaded)
        if trigger is None:
            return None
        effective = policy_here(state, self.name, topic, self.settings)
        found = evaluate(effective, topic, layout, loads, demand, at_ms)
        # Should a record lose, nothing else tells.
        acts = not isinstance(found, NoAction)
        pause_s = _REPEAT_S if acts else self._pause_s(effective.policy, topic, at_ms)
        self._next_at = now + pause_s
        self._ends_early = pause_s < self.settings.interval_s
        if isinstance(found, Rebucket) and len(found.segment_ids) > 1:
            found = self._roll(found, found.segment_ids[0], topic, self._levels(state, topic))
        self._acted = None if isinstance(found, NoAction) else (found, _clock_of(found, topic))
        return Evaluation(at_ms, trigger, found, done)

    def _done(self, topic: ScalableTopic) -> Split | Merge | Rebucket | None:
        if self._acted is None:
            return None
        action, before_ms = self._acted
        if _clock_of(action, topic) == before_ms:
            return None
        self._acted = None
        parts = (topic.segment(each) for each in _segments_of(action))
        # Another operation of the kind may have been faster.
        return None if any(part is not None and part.is_active for part in parts) else action

    def _trigger(
        self,
        state: StateReader,
        topic: ScalableTopic,
        demand: Mapping[str, Demand],
        now: float,
        *,
        is_loaded: bool,
    ) -> Trigger | None:
        consumers = tuple((name, each.consumers - each.away) for name, each in demand.items())
        levels = self._levels(state, topic)
        last = LastActions(topic.split_ms, topic.merge_ms, topic.rebucket_ms)
        before = self._seen
        self._seen = _Seen(last, topic.next_segment_id, consumers, levels, is_loaded)
        if before is None:
            return Trigger.TICK
        if before.next_segment_id != topic.next_segment_id and before.last == last:
            # Begun and given up: Kafka refused, so not again at once.
            self._next_at = now + self.settings.interval_s
            self._acted = None
        if before.consumers != consumers:
            return Trigger.CONSUMERS
        if before.last != last:
            return Trigger.OPERATION
        if before.levels != levels:
            return Trigger.POLICY
        is_new = is_loaded and not before.is_loaded
        return Trigger.TICK if is_new or now >= self._next_at else None

    def _pause_s(self, policy: AutoScalePolicy, topic: ScalableTopic, at_ms: int) -> float:
        """Returns the seconds until the next tick, or until a cooldown ends before that."""
        ends = (
            (topic.split_ms, policy.split_cooldown_seconds),
            (topic.rebucket_ms, policy.rebucket_cooldown_seconds),
        )
        left = (since + cooldown * 1000 - at_ms for since, cooldown in ends if since)
        soon = [each / 1000 + 0.001 for each in left if each > 0]
        return min([self.settings.interval_s, *soon])

    def _levels(self, state: StateReader, topic: ScalableTopic) -> _Levels:
        home = state.namespace(namespace_of(self.name))
        above = home.auto_scale if home is not None else ()
        return _Levels(self.settings, above, topic.auto_scale)

    def _roll(
        self, action: Rebucket, segment_id: int, topic: ScalableTopic, levels: _Levels
    ) -> Rebucket:
        self._rolling = _Rolling(action, segment_id, topic.next_segment_id, levels)
        return replace(action, segment_ids=(segment_id,))

    def _following(
        self, state: StateReader, topic: ScalableTopic, layout: SegmentLayout
    ) -> Rebucket | None:
        """The next segment of a decision, or the same again if its record was lost.

        The first failure stops the rest, as does another operation or another policy.
        """
        rolling, self._rolling = self._rolling, None
        if rolling is None:
            return None
        active = {part.segment_id for part in layout.active}
        if topic.next_segment_id != rolling.next_segment_id and not _has_made(topic, rolling):
            return None
        if self._levels(state, topic) != rolling.levels:
            return None
        left = [each for each in rolling.action.segment_ids if each in active]
        return self._roll(rolling.action, left[0], topic, rolling.levels) if left else None


def _has_made(topic: ScalableTopic, rolling: _Rolling) -> bool:
    """Tells whether the step proposed last has taken over, and nothing else: not another's,
    either.
    """
    if topic.next_segment_id != rolling.next_segment_id + 1:
        return False
    made = topic.segment(rolling.next_segment_id)
    wanted = ((rolling.segment_id,), rolling.action.buckets)
    return made is not None and (made.parent_ids, made.buckets) == wanted


def _clock_of(action: Split | Merge | Rebucket, topic: ScalableTopic) -> int:
    """Returns when an operation of this kind took over last."""
    match action:
        case Split():
            return topic.split_ms
        case Merge():
            return topic.merge_ms
        case Rebucket():
            return topic.rebucket_ms


def _segments_of(action: Split | Merge | Rebucket) -> tuple[int, ...]:
    match action:
        case Split(segment_id):
            return (segment_id,)
        case Merge(first_id, second_id):
            return (first_id, second_id)
        case Rebucket(segment_ids):
            return segment_ids
