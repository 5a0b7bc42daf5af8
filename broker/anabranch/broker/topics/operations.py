"""People's requests about scalable topics; semantics and words follow Pulsar's admin interface.

Any node answers reads from its view. The topic's controller makes changes, and another node raises
ElsewhereError. A change returns once the log says that all of it is done, whichever node finished
it. If it was undone because Kafka refused a part, the error has Kafka's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    listed,
)
from anabranch.broker.runtime import Runtime
from anabranch.broker.security.outgoing import OutgoingAccess
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.topics.build import TopicParts, controllers_of, retention
from anabranch.broker.topics.controllers.access import TopicAccess, active_segments
from anabranch.broker.topics.lists import INITIAL_BYTES, TopicLists
from anabranch.broker.topics.metrics import show
from anabranch.broker.topics.policies import AutoScalePolicies, check_layout, check_properties
from anabranch.broker.topics.segment_looks import SegmentLooks
from anabranch.broker.topics.subscriptions.backlogs import Backlogs
from anabranch.broker.topics.subscriptions.changes import Subscriptions
from anabranch.broker.topics.subscriptions.consumers import Consumers
from anabranch.broker.topics.subscriptions.dead_letters import DeadLetterPolicies
from anabranch.broker.topics.subscriptions.groups import Groups
from anabranch.broker.topics.subscriptions.position_watch import PositionWatch
from anabranch.broker.topics.subscriptions.positions import Positions
from anabranch.broker.topics.subscriptions.surveys import AT_ONCE, TopicSurveys
from anabranch.broker.topics.watches import OwnedTopics, Watches
from anabranch.core.entities.layout import SegmentLayout, initial_segments
from anabranch.core.entities.segment import SegmentInfo, parents_of, parse_descriptor
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


def must_be_cut_over(name: str, topic: ScalableTopic) -> None:
    """Raises ConflictError while the topic is an adopted Kafka topic that takes messages."""
    if topic.adopted is not None:
        raise ConflictError(
            f"{full_name(name)} still is Kafka topic {topic.adopted.legacy_topic}, which others "
            "write to: cut it over first (anabranch topics prepare)"
        )


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
        self.watches = Watches(access)
        self.lists = TopicLists(service)
        positions = Positions(parts.open_positions)
        self.subscriptions = subscriptions = Subscriptions(access, Groups(service, positions))
        self.consumers = Consumers(subscriptions)
        self.backlogs = Backlogs(positions, own.topic_prefix)
        self.owned = owned = OwnedTopics(service)
        self.looks = SegmentLooks(service, owned, parts.lived_by)
        # Rounds have threads of their own, because requests must not wait for a round.
        self.position_watch = PositionWatch(
            subscriptions, Positions(parts.open_positions), owned, clock.now
        )
        self.surveys = TopicSurveys(
            *(subscriptions, Positions(parts.open_positions, AT_ONCE), owned, retention(own)),
            *(own.scalable_topic_survey_interval_seconds, clock.now, self.looks.note_ends),
        )
        self.looks.is_retained = self.surveys.is_retained
        self.policies = AutoScalePolicies(access)
        outgoing = OutgoingAccess(own, own.authentication_files_check_seconds)
        self.dead_letters = DeadLetterPolicies(subscriptions, self.create, outgoing)
        self.topic = access.topic
        self.controlled = access.controlled
        self.deadline = access.deadline
        self._settings = settings
        self._runtime = runtime
        self._proposals = access.proposals
        show(
            *(service, owned, self.looks, self.watches, self.lists, self.consumers),
            *(self.surveys, self.position_watch),
        )

    async def stop(self) -> None:
        """Ends the thread that works on Kafka, and all other work of its own."""
        await self.watches.stop()
        await self.lists.stop()
        await self.looks.stop()
        await self.owned.stop()
        await self.position_watch.stop()
        await self.surveys.stop()
        await self.backlogs.stop()
        await self.access.service.stop()

    # --- reading ------------------------------------------------------------------------

    async def names(
        self,
        ns: Namespace,
        wanted: Iterable[tuple[str, str]],
        limiter: AsyncDualMemoryLimiter,
    ) -> list[str]:
        """Returns the full names of the topics with all the properties, in order.

        Raises NotFoundError, or OverloadedError if there is no memory to look for them.
        """
        self._runtime.namespace(ns)
        selection = by_properties(wanted)
        try:
            async with limiter.held(INITIAL_BYTES, LimitType.HEAP_MEMORY):
                return (await self.lists.of(ns, selection)).list.names
        except PermitAcquireError as error:
            raise OverloadedError(str(error)) from None

    def open_topic(self, name: str) -> ScalableTopic | None:
        """The topic if it is there for clients."""
        topic = self._runtime.view.topic(name)
        return topic if topic is not None and topic.is_open else None

    # --- topics -------------------------------------------------------------------------

    async def create(self, name: str, segments: int, properties: Mapping[str, str]) -> None:
        """Creates a topic with that many segments of equal size. Raises ConflictError."""
        self.access.must_be_enabled()
        self.access.namespace(name)
        check_properties(properties)
        policy = self._settings.now.auto_scale_policy
        most = policy.max_entry_buckets_per_segment
        parts = initial_segments(segments, policy.entry_bucket_budget, most)
        await self.make(name, parts, properties=properties_flat(properties))

    async def make(self, name: str, parts: tuple[SegmentInfo, ...], **fields: Any) -> None:
        """Creates a topic with this first layout; returns when it is ready. Raises ConflictError.

        `fields`: what else the record says.
        """
        check_layout(self.access.service.prefix, name, parts)
        deadline = self.deadline()

        def exists() -> ConflictError:
            return ConflictError(f"Scalable topic already exists: {full_name(name)}")

        await self.access.control(name, deadline)
        if self._runtime.view.topic(name) is not None:
            raise exists()
        self.access.service.failures.pop(name, None)  # of a topic of this name that is gone
        room = self.access.room(TenantLimit.MAX_TOPICS_PER_NAMESPACE, name)
        record = self.access.proposal(
            name,
            None,
            TopicMove.CREATE,
            segments=parts,
            **fields,
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
                if self.access.service.failures.get(name):
                    raise self._undone(name, "was not created")
                raise ConflictError(f"{full_name(name)} was deleted before it was ready")
            return topic.is_open

        await self._until(name, done, deadline, "was not created")

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        unless: Callable[[str, ScalableTopic], None] | None = None,
    ) -> None:
        """Deletes a topic with its data; force also deletes one with consumers, and ends these.

        `unless` raises the error of a topic that must not be deleted as it is just now.
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
            if unless is not None:
                unless(name, topic)
            if not force:
                for each, known in self._runtime.view.subscriptions(name):
                    remedy = ", or delete the topic by force"
                    self.subscriptions.must_be_unused(name, each, known, remedy)
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

    @property
    def _buckets_max(self) -> int:
        """Of a segment, by the rules of now."""
        return self._settings.now.auto_scale_policy.max_entry_buckets_per_segment

    async def split(self, name: str, segment_id: int) -> None:
        """Divides a segment in halves. Raises NotFoundError, PreconditionError, ConflictError."""
        await self.operate(
            name,
            Operation.SPLIT,
            f"of {segment_id}",
            lambda layout: layout.split_children(segment_id),
        )

    async def merge(self, name: str, first: int, second: int) -> None:
        """Makes one segment of two neighbours. Raises as `split`."""
        await self.operate(
            name,
            Operation.MERGE,
            f"of {first}+{second}",
            lambda layout: layout.merge_children(first, second, self._buckets_max),
        )

    async def rebucket(self, name: str, segment_id: int, buckets: int) -> None:
        """Replaces a segment by one with another number of entry buckets. Raises as `split`."""
        await self.operate(
            name,
            Operation.REBUCKET,
            f"of {segment_id}",
            lambda layout: layout.rebucket_children(segment_id, buckets, self._buckets_max),
        )

    async def prepare(self, name: str, segments: int, buckets: int | None, *, keeps: bool) -> None:
        """Makes so many segments of equal size of all, at once; nothing where they are there.

        `buckets` are those of each; as many as before in all, if None. `keeps`: an adopted Kafka
        topic stays in the layout. Raises as `split`.
        """
        await self.operate(
            name,
            Operation.PREPARE,
            f"to {segments} segments",
            lambda layout: layout.prepare_children(segments, buckets, self._buckets_max),
            keeps=keeps,
        )

    async def operate(
        self, name: str, operation: Operation, of: str, make: Children, **fields: Any
    ) -> None:
        """Lets what `make` returns take the place of its parents; nothing, if that is nothing.

        `of` follows the operation's name in errors. Raises as `split`.
        """
        deadline = self.deadline()
        children: tuple[SegmentInfo, ...] = ()

        def begin(topic: ScalableTopic) -> TopicChange | None:
            nonlocal children
            children = self._children(name, topic, make)
            if not children:
                return None
            if operation is not Operation.PREPARE:
                must_be_cut_over(name, topic)
            return self.access.proposal(
                name,
                topic,
                TopicMove.BEGIN,
                operation=operation,
                parents=parents_of(children),
                segments=children,
                **fields,
            )

        if await self.access.change(name, begin) is None:
            return
        first = children[0].segment_id
        what = f"{operation.name.lower()} {of} was not done"

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
        if topic.operation is not Operation.NONE:
            raise ConflictError(
                f"{full_name(name)} has an operation under way, {topic.operation.name} of "
                f"segment {listed(topic.parents)}; try again when it is done"
            )
        check_layout(self.access.service.prefix, name, (*topic.segments, *children))
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
            why = self.access.service.failures.get(name)
            rest = f": {why}. It is tried again by itself" if why else "; it goes on by itself"
            raise DeadlineExceededError(
                f"{full_name(name)}: {what} in time{rest}; look before you ask again"
            ) from None

    def _undone(self, name: str, what: str) -> Exception:
        why = self.access.service.failures.get(name) or "its controller's log says why"
        return KafkaFailedError(f"{full_name(name)}: {what}, and it was undone: {why}")
