"""Operators of scalable topics, simulated: at any moment they ask whoever controls a topic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.autoscale.policy import override_flat
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.giving_back import give_back_children
from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import SegmentInfo, parents_of
from anabranch.core.entities.subscription import SubscriptionKind, SubscriptionOp
from anabranch.core.entities.topic import Operation, ScalableTopic, TopicMove, TopicState
from anabranch.core.entities.unit import UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.log.records import NamespaceChange, PolicyOp
from anabranch.core.subscriptions.propose import subscription_change
from anabranch.core.topics.propose import topic_change
from anabranch.core.topics.retention import unsettled_s
from simulation.consumers import BACK_MS
from simulation.old_topics import ENTRY
from simulation.process import Process
from simulation.topic_plan import SETTINGS, draw_override
from support.world import successor

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld

HOME = "public/default"
LATE = "late"  # a subscription that comes and goes
ACTIVE_MAX = 6  # segments of one topic, so that splits do not go on for ever


class Operators:
    """They split, merge, rebucket and prepare, create and delete, set policies, and seek."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._sched = world.sched
        self._plan = world.plan

    def operate(self) -> None:
        interval_s = self._plan.operation_interval_s
        self._sched.after(self._sched.rng.expovariate(1.0 / interval_s), self.operate)
        for name in (
            self._world.topics
            if self._world.faults_over
            else [self._sched.rng.choice(self._world.topics)]
        ):
            for process in self._world.cluster.processes:
                process.call(partial(self._ask, process, name))

    def _ask(self, process: Process, name: str) -> None:
        core, now = process.core, process.local_now()
        unit_name, holder = controller_of(core.state, name)
        unit = core.state.unit(unit_name)
        if unit is not None and unit.state is UnitState.FREE:
            process.look_up(unit_name)
        if holder != core.me or not core.may_act(unit_name, now):
            return
        topic = core.state.topic(name)
        if topic is not None and topic.is_open:
            self._seek(process, name)
        if topic is None:
            if not self._world.faults_over or name in self._world.lasting:
                self._create(process, name)
        elif topic.state is TopicState.STABLE and not self._world.faults_over:
            self._change(process, name, topic)

    def _create(self, process: Process, name: str) -> None:
        old = self._world.old.to_adopt(name)
        if old is None:
            first = initial_segments(self._plan.segments, self._plan.bucket_budget)
            self._propose(process, name, None, TopicMove.CREATE, segments=first)
            return
        what = {"segments": (old.segment(),), "adoptable": ENTRY}
        self._propose(process, name, None, TopicMove.CREATE, **what)

    def _seek(self, process: Process, name: str) -> None:
        if (
            self._world.faults_over
            or not self._plan.seeks
            or not self._sched.chance(self._plan.seeks)
        ):
            return
        rng, now_ms = self._sched.rng, self._world.cluster.log_ms()
        known = [
            each
            for each, subscription in process.core.state.subscriptions(name)
            if subscription.kind is SubscriptionKind.STREAM
        ]
        if known:
            to_ms = rng.choice((EARLIEST, LATEST, now_ms - rng.randrange(BACK_MS)))
            self._world.hosts[process.name].seek(name, rng.choice(known), to_ms)

    def _change(self, process: Process, name: str, topic: ScalableTopic) -> None:
        what, layout = self._sched.rng.random(), topic.layout
        if name in self._world.passing and what < 0.4:
            self._propose(process, name, topic, TopicMove.DELETE)
            return
        gone, until = ("s0", 0.6) if name in self._world.passing else (LATE, 0.2)
        known = process.core.state.subscription(name, gone)
        if what < until and known is not None:
            actor, new_id = process.core.actor(), process.new_id()
            delete = SubscriptionOp.DELETE
            process.append(subscription_change(actor, name, topic, gone, known, delete, new_id))
            return
        if self._plan.overrides and what > 0.9:
            self._override(process, name, topic)
            return
        if self._may_give_back(process, name, topic) and self._sched.chance(0.8):
            children = give_back_children(layout)
            self._begin(process, name, topic, Operation.GIVE_BACK, children)
            return
        adopted = topic.adopted
        cuts_over = adopted is not None and self._sched.chance(0.4)
        if adopted is not None and not is_settled(process, adopted):
            return
        if not self._plan.operators and not cuts_over:
            return
        try:
            operation, children = self._prepared(layout) if cuts_over else self._operation(layout)
        except InvalidInputError:
            return
        if children:  # else it is prepared
            self._begin(process, name, topic, operation, children)

    @staticmethod
    def _may_give_back(process: Process, name: str, topic: ScalableTopic) -> bool:
        sealed = topic.cut_over
        if sealed is None or not is_settled(process, sealed):
            return False
        known = process.core.state.subscriptions(name)
        return all(sealed.segment_id in each.drained for _, each in known)

    def _begin(
        self,
        process: Process,
        name: str,
        topic: ScalableTopic,
        operation: Operation,
        children: tuple[SegmentInfo, ...],
    ) -> None:
        self._propose(
            process,
            name,
            topic,
            TopicMove.BEGIN,
            operation=operation,
            parents=parents_of(children),
            segments=children,
        )

    def _override(self, process: Process, name: str, topic: ScalableTopic) -> None:
        """Of one topic, or of all."""
        flat = override_flat(draw_override(self._sched.rng))
        home = process.core.state.namespace(HOME)
        if home is None or self._sched.chance(0.6):
            self._propose(process, name, topic, TopicMove.POLICY, auto_scale=flat)
            return
        actor, new_id = process.core.actor(), process.new_id()
        fields = {"namespace": HOME, "op": PolicyOp.UPDATE, "bundles": 0, "auto_scale": flat}
        process.append(successor(NamespaceChange, home, actor, new_id, **fields))

    def _operation(self, layout: SegmentLayout) -> tuple[Operation, tuple[SegmentInfo, ...]]:
        rng, active = self._sched.rng, layout.active
        place = rng.randrange(len(active))
        part = active[place]
        what = rng.random()
        if what < 0.15:
            wanted = rng.choice((1, 2, 3, 4))
            if wanted == part.buckets:
                return Operation.RESTORE, layout.restore_children(part.segment_id)
            return Operation.REBUCKET, layout.rebucket_children(part.segment_id, wanted)
        if what > 0.8:
            return self._prepared(layout)
        if place and (what < 0.5 or len(active) >= ACTIVE_MAX):
            pair = (active[place - 1].segment_id, part.segment_id)
            return Operation.MERGE, layout.merge_children(*pair)
        return Operation.SPLIT, layout.split_children(part.segment_id)

    def _prepared(self, layout: SegmentLayout) -> tuple[Operation, tuple[SegmentInfo, ...]]:
        buckets = self._sched.rng.choice((None, None, 1, 3))
        count = self._sched.rng.randint(1, ACTIVE_MAX)
        return Operation.PREPARE, layout.prepare_children(count, buckets)

    def _propose(
        self,
        process: Process,
        name: str,
        topic: ScalableTopic | None,
        move: TopicMove,
        **fields: Any,
    ) -> None:
        actor, new_id = process.core.actor(), process.new_id()
        process.append(topic_change(actor, name, topic, move, new_id, **fields))


def is_settled(process: Process, part: SegmentInfo) -> bool:
    """Tells whether it was cut over, or given back, long enough ago for all to know."""
    return not unsettled_s(part, process.core.log_ms, SETTINGS.settled_s)
