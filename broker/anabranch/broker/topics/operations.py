"""People's requests about scalable topics; semantics and words follow Pulsar's admin interface.

Any node answers reads from its view. The topic's controller makes changes, and another node raises
ElsewhereError. A change returns once the log says that all of it is done, whichever node finished
it. If it was undone because Kafka refused a part, the error has Kafka's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from anabranch.broker.bundles.lookups import LookupService
from anabranch.broker.errors import (
    ConflictError,
    DeadlineExceededError,
    KafkaFailedError,
    NotFoundError,
    OverloadedError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.runtime import Runtime
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.build import TopicParts, controllers_of, retention, show
from anabranch.broker.topics.controllers.access import TopicAccess, active_segments
from anabranch.broker.topics.lists import INITIAL_BYTES, TopicLists
from anabranch.broker.topics.policies import (
    AutoScalePolicies,
    check_layout,
    check_properties,
)
from anabranch.broker.topics.segment_looks import SegmentLooks
from anabranch.broker.topics.subscriptions.backlogs import Backlogs
from anabranch.broker.topics.subscriptions.changes import DeadLetterPolicies, Resets
from anabranch.broker.topics.subscriptions.consumers import Consumers
from anabranch.broker.topics.subscriptions.groups import Groups
from anabranch.broker.topics.subscriptions.position_watch import PositionWatch
from anabranch.broker.topics.subscriptions.positions import Positions
from anabranch.broker.topics.subscriptions.surveys import AT_ONCE, TopicSurveys
from anabranch.broker.topics.watches import ControllerFinder, OwnedTopics, Watches
from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import SegmentInfo, parse_descriptor
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import (
    Operation,
    ScalableTopic,
    TopicMove,
    TopicState,
    properties_dict,
    properties_flat,
)
from anabranch.core.errors import InvalidInputError, UnknownSegmentError
from anabranch.core.log.records import TopicChange, topic_key
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import Namespace, full_name, namespace_of
from anabranch.core.tenants.limits import TenantLimit
from anabranch.core.topic_lists.errors import PermitAcquireError
from anabranch.core.topic_lists.selection import by_properties
from anabranch.wire import clock
from anabranch.wire.memory.limiter import AsyncDualMemoryLimiter, LimitType

Children = Callable[[SegmentLayout], tuple[SegmentInfo, ...]]


class TopicOperations:
    """The requests of one node, for use in its event loop."""

    def __init__(
        self,
        runtime: Runtime,
        lookups: LookupService,
        settings: CurrentSettings,
        parts: TopicParts,
    ) -> None:
        own = settings.now
        service = controllers_of(runtime, settings, parts)
        self.access = access = TopicAccess(runtime, lookups, service, settings)
        self._finder = ControllerFinder(access)
        self.watches = Watches(access, self._finder)
        self.lists = TopicLists(service)
        positions = Positions(parts.open_positions)
        self.consumers = Consumers(access, Groups(service, positions))
        self.resets = Resets(access, self.consumers)
        self.backlogs = Backlogs(positions, own.topic_prefix)
        owned = OwnedTopics(service)
        service.scaling.owned = owned.names
        self.looks = SegmentLooks(service, owned, parts.lived_by)
        # Rounds have threads of their own, because requests must not wait for a round.
        watch = PositionWatch(
            access, self.consumers, Positions(parts.open_positions), owned, clock.now
        )
        self.surveys = TopicSurveys(
            *(access, self.consumers, Positions(parts.open_positions, AT_ONCE), owned),
            *(retention(own), own.scalable_topic_survey_interval_seconds, clock.now),
            *(self.looks.note_ends, watch),
        )
        self.looks.is_retained = self.surveys.is_retained
        self.policies = AutoScalePolicies(access)
        self.placement = parts.placement
        outgoing = OutgoingAccess(own, own.authentication_files_check_seconds)
        self.dead_letters = DeadLetterPolicies(access, self.consumers, self.create, outgoing)
        self.topic = access.topic
        self.controlled = access.controlled
        self.deadline = access.deadline
        self._settings = settings
        self._runtime = runtime
        self._proposals = access.proposals
        show(service, owned, self.looks, self.watches, self.lists, self.consumers, self.surveys)

    async def stop(self) -> None:
        """Ends the thread that works on Kafka, and all other work of its own."""
        await self._finder.stop()
        await self.lists.stop()
        await self.looks.stop()
        await self.surveys.stop()
        await self.backlogs.stop()
        self.consumers.groups.stop()
        await self.placement.close()
        await self.access.service.stop()

    # --- reading ------------------------------------------------------------------------

    async def names(
        self,
        ns: Namespace,
        wanted: Iterable[tuple[str, str]],
        limiter: AsyncDualMemoryLimiter,
    ) -> Callable[[], Awaitable[list[str]]]:
        """Returns a function that finds the full names of the topics with all the properties.

        It finds those at the time of its call, in small steps, because the list is made by then.
        Raises NotFoundError, or OverloadedError if there is no memory to look for them.
        """
        self._runtime.namespace(ns)
        selection = by_properties(wanted)

        async def find() -> list[str]:
            return (await self.lists.of(ns, selection)).list.names

        try:
            async with limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY):
                await find()
        except PermitAcquireError as error:
            raise OverloadedError(str(error)) from None
        return find

    def open_topic(self, name: str) -> ScalableTopic | None:
        """The topic if it is there for clients."""
        topic = self._runtime.view.topic(name)
        return topic if topic is not None and topic.is_open else None

    @property
    def is_stale(self) -> bool:
        """True if this node has lost touch with the log, so that its state may have changed."""
        return not self._runtime.has_lease

    def subscriptions(self, name: str) -> list[tuple[str, Subscription, dict[str, bool]]]:
        """Returns names, the log's entries, and the consumers of each, with True if connected."""
        self.topic(name)
        controller = self.access.service.known_controller(name)
        found = []
        for each, known in self._runtime.view.subscriptions(name):
            coordinator = controller.coordinators.get(each) if controller else None
            connected = set(coordinator.connected if coordinator else ())
            names_ = sorted(connected.union(known.consumers))
            found.append((each, known, {one: one in connected for one in names_}))
        return found

    # --- topics -------------------------------------------------------------------------

    async def create(self, name: str, segments: int, properties: Mapping[str, str]) -> None:
        """Creates a topic with that many segments of equal size. Raises ConflictError."""
        self.access.must_be_enabled()
        self.access.namespace(name)
        check_properties(properties)
        policy = self._settings.now.auto_scale_policy
        most = policy.max_entry_buckets_per_segment
        parts = initial_segments(segments, policy.entry_bucket_budget, most)
        check_layout(self.access.service.prefix, name, parts)
        deadline = self.deadline()

        def exists() -> ConflictError:
            return ConflictError(f"Scalable topic already exists: {full_name(name)}")

        await self.access.control(name, deadline)
        if self._runtime.view.topic(name) is not None:
            raise exists()
        self.access.service.failures.forget(name)  # of a topic of this name that is gone
        room = self.access.room(TenantLimit.MAX_TOPICS_PER_NAMESPACE, name)
        record = self.access.proposal(
            name,
            None,
            TopicMove.CREATE,
            segments=parts,
            properties=properties_flat(properties),
            limit=room.taken(self._runtime.view.topics(namespace_of(name))),
        )
        own = {Verdict.STALE_VERSION: exists, Verdict.LIMIT_REACHED: room.full}
        refusals = {**self.access.refusals(name), **own}
        # A repetition could create what was deleted meanwhile: it is proposed once.
        folded = await self._proposals.propose(record, deadline)
        if folded.outcome.verdict is not Verdict.ACCEPTED:
            refuse = refusals.get(folded.outcome.verdict)
            raise refuse() if refuse else UnavailableError("try again")

        def done() -> bool:
            topic = self._runtime.view.topic(name)
            if topic is None or topic.incarnation != folded.offset:
                if self.access.service.failures.why(name):
                    raise self._undone(name, "was not created")
                raise ConflictError(f"{full_name(name)} was deleted before it was ready")
            return topic.is_open

        await self._until(name, done, deadline, "was not created")

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Deletes a topic with its data; force also deletes one with consumers, and ends these.

        Raises NotFoundError, and ConflictError for a topic that has, or may have, consumers.
        """
        deadline = self.deadline()

        def state() -> TopicState | None:
            topic = self._runtime.view.topic(name)
            return None if topic is None else topic.state

        async def sealed() -> None:
            what = "was being sealed, which comes before it can be deleted, and was not done"
            await self.access.control(name, deadline)
            await self._until(name, lambda: state() is not TopicState.SEALING, deadline, what)

        def build() -> TopicChange | None:
            topic = self._runtime.view.topic(name)
            if topic is None:
                raise NotFoundError(f"Scalable topic not found: {full_name(name)}")
            if topic.state is TopicState.DELETING:
                return None
            if not force:
                self.consumers.usage.none_may_be_used(name, ", or delete the topic by force")
            return self.access.proposal(name, topic, TopicMove.DELETE)

        if state() is None:
            self.access.topic(name)  # says what is missing
        if not force:
            await self.access.control(name, deadline)  # the controller knows its consumers
        await self._proposals.settle(build, self.access.refusals(name), deadline, sealed)
        gone = "was not deleted"
        await self._until(name, lambda: state() is not TopicState.DELETING, deadline, gone)

    async def change_properties(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Replaces the properties by what `change` makes of them; it may be asked repeatedly.

        Raises NotFoundError, PreconditionError for what cannot be stored, or ConflictError.
        """

        def build(topic: ScalableTopic) -> TopicChange | None:
            before = properties_dict(topic.properties)
            after = change(dict(before))
            check_properties(after)
            if after == before:
                return None
            return self.access.proposal(
                name, topic, TopicMove.UPDATE, properties=properties_flat(after)
            )

        await self.access.change(name, build)

    # --- layouts ------------------------------------------------------------------------

    async def split(self, name: str, segment_id: int) -> None:
        """Divides a segment in halves. Raises NotFoundError, PreconditionError, ConflictError."""
        await self.operate(
            name, Operation.SPLIT, (segment_id,), lambda layout: layout.split_children(segment_id)
        )

    async def merge(self, name: str, first: int, second: int) -> None:
        """Makes one segment of two neighbours. Raises as `split`."""
        most = self._settings.now.auto_scale_policy.max_entry_buckets_per_segment
        await self.operate(
            name,
            Operation.MERGE,
            (first, second),
            lambda layout: layout.merge_children(first, second, most),
        )

    async def rebucket(self, name: str, segment_id: int, buckets: int) -> None:
        """Replaces a segment by one with another number of entry buckets. Raises as `split`."""
        most = self._settings.now.auto_scale_policy.max_entry_buckets_per_segment
        await self.operate(
            name,
            Operation.REBUCKET,
            (segment_id,),
            lambda layout: layout.rebucket_children(segment_id, buckets, most),
        )

    async def relocate(self, name: str, segment_id: int, off: Collection[int] = ()) -> None:
        """Replaces a segment by one of the same range and buckets on other brokers of Kafka.

        `off`: those that it shall leave; if none is named, those that lead it now, where enough
        others are there. Raises as `split`.
        """
        topic = await self.controlled(name)
        survey = await self.placement.fresh()
        self.placement.check_left(survey, off)
        if not off:
            leaders = {each.leader for each in survey.copies(topic.incarnation, segment_id)}
            off = {leader for leader in leaders if leader is not None}
        await self.operate(
            name,
            Operation.RELOCATE,
            (segment_id,),
            lambda layout: layout.relocate_children(segment_id),
            off=tuple(sorted(off)),
        )

    async def operate(
        self,
        name: str,
        operation: Operation,
        segments: Sequence[int],
        make: Children,
        **fields: Any,
    ) -> None:
        """Lets what `make` returns take the place of segments. Raises as `split`."""
        deadline = self.deadline()
        children: tuple[SegmentInfo, ...] = ()

        def begin(topic: ScalableTopic) -> TopicChange:
            nonlocal children
            children = self._children(name, topic, make)
            return self.access.proposal(
                name,
                topic,
                TopicMove.BEGIN,
                operation=operation,
                parents=children[0].parent_ids,
                segments=children,
                **fields,
            )

        await self.access.change(name, begin)
        first = children[0].segment_id
        what = f"{operation.name.lower()} of {'+'.join(map(str, segments))} was not done"

        def done() -> bool:
            topic = self._runtime.view.topic(name)
            if topic is None or topic.state is TopicState.DELETING:
                raise ConflictError(f"{full_name(name)} was deleted meanwhile")
            if any(child.segment_id == first for child in topic.children):
                return False
            if topic.segment(first) is None:
                raise self._undone(name, what)
            return True

        await self._until(name, done, deadline, what)

    def _children(self, name: str, topic: ScalableTopic, make: Children) -> tuple[SegmentInfo, ...]:
        try:
            children = make(topic.layout)
        except UnknownSegmentError as error:
            raise NotFoundError(f"{error}; {active_segments(topic)}") from None
        except InvalidInputError as error:
            raise PreconditionError(f"{error}; {active_segments(topic)}") from None
        check_layout(self.access.service.prefix, name, (*topic.segments, *children))
        if topic.operation is not Operation.NONE:
            busy = "+".join(str(each) for each in topic.parents)
            raise ConflictError(
                f"{full_name(name)} has an operation under way, {topic.operation.name} of "
                f"segment {busy}; try again when it is done"
            )
        return children

    # --- segments -----------------------------------------------------------------------

    def segment(self, name: str, descriptor: str) -> SegmentInfo | None:
        """The segment of the layout that the descriptor names. Raises NotFoundError (topic)."""
        start, end, segment_id = parse_descriptor(descriptor)
        part = self.topic(name).segment(segment_id)
        return part if part is not None and (part.start, part.end) == (start, end) else None

    def must_have_segment(self, name: str, descriptor: str) -> SegmentInfo:
        """As `segment`. Raises NotFoundError, which names the active ones."""
        part = self.segment(name, descriptor)
        if part is None:
            raise NotFoundError(
                f"Segment topic not found: segment://{name}/{descriptor}; "
                f"{active_segments(self.topic(name), descriptors=True)}"
            )
        return part

    async def prune(self, name: str, descriptor: str) -> None:
        """Deletes a sealed segment that is not needed; a missing one is as good as deleted.

        Raises PreconditionError for one that is needed.
        """

        def build(topic: ScalableTopic) -> TopicChange | None:
            part = self.segment(name, descriptor)
            if part is None:
                return None
            self._must_be_prunable(name, topic, part)
            return self.access.proposal(
                name, topic, TopicMove.PRUNE, segment_ids=(part.segment_id,)
            )

        await self.access.change(name, build)

    def _must_be_prunable(self, name: str, topic: ScalableTopic, part: SegmentInfo) -> None:
        what = f"segment {part.descriptor} of {full_name(name)}"
        if part.is_active:
            raise PreconditionError(
                f"{what} is active: its keys have no other segment. Split, merge or rebucket it, "
                "or delete the topic"
            )
        if topic.state is not TopicState.STABLE:
            raise ConflictError(f"{full_name(name)} has an operation under way; try again")
        if part.parent_ids:
            above = ", ".join(str(each) for each in part.parent_ids)
            raise PreconditionError(f"{what} is read after {above}: delete that first")
        for each, known in self._runtime.view.subscriptions(name):
            if part.segment_id not in known.drained:
                raise PreconditionError(
                    f"{what} is still to be read by subscription {each}: let its consumers "
                    "finish, or delete the subscription"
                )

    # --- steps --------------------------------------------------------------------------

    async def _until(self, name: str, done: Callable[[], bool], deadline: float, what: str) -> None:
        """Waits for changes of the topic; one that has begun goes on after the request's time."""
        try:
            while not done():
                await self._runtime.until_changed(topic_key(name), deadline, what)
        except DeadlineExceededError:
            why = self.access.service.failures.why(name)
            rest = f": {why}. It is tried again by itself" if why else "; it goes on by itself"
            raise DeadlineExceededError(
                f"{full_name(name)}: {what} in time{rest}; look before you ask again"
            ) from None

    def _undone(self, name: str, what: str) -> Exception:
        why = self.access.service.failures.why(name) or "its controller's log says why"
        return KafkaFailedError(f"{full_name(name)}: {what}, and it was undone: {why}")
