"""What people can ask of scalable topics; semantics and words follow Pulsar's admin interface.

Reading is served by any node from its view. Changes are served by the topic's controller; another
node raises ElsewhereError. A change returns once the log says that all of it is done, whoever
finished it; when it was undone because Kafka refused what it needs, the error says what Kafka said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from anabranch.broker.errors import (
    ConflictError,
    DeadlineError,
    KafkaFailedError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from anabranch.broker.requests import RACES_MAX
from anabranch.broker.topics.access import Access
from anabranch.broker.topics.consumers import Consumers
from anabranch.broker.topics.limits import Limits, check_layout, check_properties
from anabranch.broker.topics.policies import AutoScalePolicies
from anabranch.broker.topics.reading import Reading
from anabranch.broker.topics.seeker import Seeker
from anabranch.broker.topics.watches import Watches
from anabranch.core import names
from anabranch.core.errors import InvalidInputError, UnknownSegmentError
from anabranch.core.layout import SegmentLayout, initial_segments
from anabranch.core.names import Namespace, full_name
from anabranch.core.records import TopicCause, topic_key
from anabranch.core.segment_topics import kafka_topic
from anabranch.core.segments import SegmentInfo, parse_descriptor
from anabranch.core.subscriptions import Subscription
from anabranch.core.topic_proposals import topic_change
from anabranch.core.topics import (
    Operation,
    ScalableTopic,
    TopicMove,
    TopicState,
    properties_dict,
    properties_flat,
)
from anabranch.core.verdicts import Verdict

_READ_AT_ONCE: Final = 256  # topics, before other requests have their turn

Children = Callable[[SegmentLayout], tuple[SegmentInfo, ...]]


class TopicOperations:
    """The requests of one node. To be used in its event loop."""

    def __init__(
        self,
        access: Access,
        consumers: Consumers,
        reading: Reading,
        watches: Watches,
        seeker: Seeker,
        limits: Limits,
        policies: AutoScalePolicies,
    ) -> None:
        self.access = access
        self.consumers = consumers
        self.reading = reading
        self.watches = watches
        self._seeker = seeker
        self.limits = limits
        self.policies = policies
        self._runtime = access.runtime
        self._requests = access.requests

    async def stop(self) -> None:
        """Ends the thread that works on Kafka, and whatever else runs by itself."""
        await self._seeker.stop()
        await self.reading.stop()
        await self.access.service.stop()

    # --- reading ------------------------------------------------------------------------

    async def names(self, ns: Namespace, wanted: Mapping[str, str]) -> list[str]:
        """Full names of the namespace's topics that have all the wanted properties."""
        if self._runtime.view.namespace(ns) is None:
            raise NotFoundError("Namespace does not exist")
        found: list[str] = []
        for place, name in enumerate(list(self._runtime.view.topics(ns))):
            if place % _READ_AT_ONCE == _READ_AT_ONCE - 1:
                await asyncio.sleep(0)
            topic = self._runtime.view.topic(name)
            if topic is None or not topic.is_open:
                continue
            if wanted.items() <= properties_dict(topic.properties).items():
                found.append(full_name(name))
        return found

    def topic(self, name: str) -> ScalableTopic:
        """Raises NotFoundError."""
        return self.access.topic(name)

    def open_topic(self, name: str) -> ScalableTopic | None:
        """The topic if it is there for clients."""
        topic = self._runtime.view.topic(name)
        return topic if topic is not None and topic.is_open else None

    @property
    def is_stale(self) -> bool:
        """Whether this node has lost touch with the log, so that what it says may have changed."""
        return not self._runtime.has_lease

    def subscriptions(self, name: str) -> list[tuple[str, Subscription, dict[str, bool]]]:
        """Names, what the log says, and the consumers of each: whether they are connected."""
        self.topic(name)
        controller = self.access.service.known_controller(name)
        found = []
        for each, known in self._runtime.view.subscriptions(name):
            coordinator = controller.coordinators.get(each) if controller else None
            connected = set(coordinator.connected if coordinator else ())
            names_ = sorted(connected.union(known.consumers))
            found.append((each, known, {one: one in connected for one in names_}))
        return found

    def kafka_topic(self, name: str, topic: ScalableTopic, part: SegmentInfo) -> str:
        """The Kafka topic of one of the topic's segments."""
        return kafka_topic(self.access.service.prefix, name, topic.incarnation, part)

    async def control(self, name: str) -> None:
        """Returns once this node is the topic's controller. Raises ElsewhereError if another is."""
        await self.access.control(name, self._requests.deadline(self.limits.timeout_s))

    def deadline(self) -> float:
        """When a request that begins now is over."""
        return self._requests.deadline(self.limits.timeout_s)

    # --- topics -------------------------------------------------------------------------

    async def create(self, name: str, segments: int, properties: Mapping[str, str]) -> None:
        """Creates a topic with that many segments of equal size. Raises ConflictError."""
        self._enabled()
        self.access.namespace(name)
        check_properties(properties)
        parts = initial_segments(segments, self.limits.bucket_budget, self.limits.buckets_max)
        check_layout(self.access.service.prefix, name, parts)
        deadline = self._requests.deadline(self.limits.timeout_s)
        exists = ConflictError(f"Scalable topic already exists: {full_name(name)}")
        await self.access.control(name, deadline)
        if self._runtime.view.topic(name) is not None:
            raise exists
        self.access.service.failures.forget(name)  # of a topic of this name that is gone
        record = topic_change(
            self._requests.actor(),
            name,
            None,
            TopicMove.CREATE,
            self._runtime.new_id(),
            TopicCause.OPERATOR,
            segments=parts,
            properties=properties_flat(properties),
        )
        refusals = {**self.access.refusals(name), Verdict.STALE_VERSION: exists}
        # A repetition could create what was deleted meanwhile: it is proposed once.
        folded = await self._requests.propose(record, deadline)
        if folded.outcome.verdict is not Verdict.ACCEPTED:
            raise refusals.get(folded.outcome.verdict, UnavailableError("try again"))

        def done() -> bool:
            topic = self._runtime.view.topic(name)
            if topic is None or topic.incarnation != folded.offset:
                if self.access.service.failures.why(name):
                    raise self._undone(name, "was not created")
                raise ConflictError(f"{full_name(name)} was deleted before it was ready")
            return topic.is_open

        await self._until(name, done, deadline, "was not created")

    async def delete(self, name: str) -> None:
        """Deletes a topic with its data. Raises NotFoundError."""
        deadline = self._requests.deadline(self.limits.timeout_s)
        before = self._runtime.view.topic(name)
        if before is None:
            self.access.topic(name)
        await self.access.control(name, deadline)
        for _ in range(RACES_MAX):
            topic = self._runtime.view.topic(name)
            if topic is None:
                raise NotFoundError(f"Scalable topic not found: {full_name(name)}")
            if topic.state is TopicState.SEALING:
                what = "was being sealed, which comes before it can be deleted, and was not done"
                await self._changed(name, deadline, what)
                continue
            if topic.state is not TopicState.DELETING:
                verdict = await self.propose(name, topic, TopicMove.DELETE, deadline)
                if verdict is not Verdict.ACCEPTED:
                    continue
            await self._gone(name, topic.incarnation, deadline)
            return
        raise ConflictError(f"{full_name(name)} kept changing; try again")

    async def _gone(self, name: str, incarnation: int, deadline: float) -> None:
        def gone() -> bool:
            topic = self._runtime.view.topic(name)
            return topic is None or topic.incarnation != incarnation

        await self._until(name, gone, deadline, "was not deleted")

    # --- layouts ------------------------------------------------------------------------

    async def split(self, name: str, segment_id: int) -> None:
        """Divides a segment in halves. Raises NotFoundError, PreconditionError, ConflictError."""
        await self._operate(
            name, Operation.SPLIT, (segment_id,), lambda layout: layout.split_children(segment_id)
        )

    async def merge(self, name: str, first: int, second: int) -> None:
        """Makes one segment of two neighbours. Raises as `split`."""

        def children(layout: SegmentLayout) -> tuple[SegmentInfo, ...]:
            most = self.limits.buckets_max
            made = layout.merge_children(first, second)
            return tuple(msgspec.structs.replace(p, buckets=min(p.buckets, most)) for p in made)

        await self._operate(name, Operation.MERGE, (first, second), children)

    async def rebucket(self, name: str, segment_id: int, buckets: int) -> None:
        """Replaces a segment by one with another number of entry buckets. Raises as `split`."""
        most = self.limits.buckets_max
        if not 1 <= buckets <= most:
            raise PreconditionError(f"bucketCount must be in [1, {most}]: {buckets}")
        await self._operate(
            name,
            Operation.REBUCKET,
            (segment_id,),
            lambda layout: layout.rebucket_children(segment_id, buckets),
        )

    async def _operate(
        self, name: str, operation: Operation, segments: Sequence[int], make: Children
    ) -> None:
        deadline = self._requests.deadline(self.limits.timeout_s)
        self.topic(name)
        await self.access.control(name, deadline)
        children = await self._begin(name, operation, segments, make, deadline)
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

    async def _begin(
        self,
        name: str,
        operation: Operation,
        segments: Sequence[int],
        make: Children,
        deadline: float,
    ) -> tuple[SegmentInfo, ...]:
        for _ in range(RACES_MAX):
            topic = self.topic(name)
            try:
                children = make(topic.layout)
            except UnknownSegmentError as error:
                raise NotFoundError(str(error)) from None
            except InvalidInputError as error:
                raise PreconditionError(str(error)) from None
            check_layout(self.access.service.prefix, name, (*topic.segments, *children))
            if topic.operation is not Operation.NONE:
                busy = "+".join(str(each) for each in topic.parents)
                raise ConflictError(
                    f"{full_name(name)} has an operation under way, {topic.operation.name} of "
                    f"segment {busy}; try again when it is done"
                )
            verdict = await self.propose(
                name,
                topic,
                TopicMove.BEGIN,
                deadline,
                operation=operation,
                parents=children[0].parent_ids,
                segments=children,
            )
            if verdict is Verdict.ACCEPTED:
                return children
        raise ConflictError(f"{full_name(name)} kept changing; try again")

    # --- segments -----------------------------------------------------------------------

    def segment(self, name: str, descriptor: str) -> SegmentInfo | None:
        """The segment of the layout that the descriptor names. Raises NotFoundError (topic)."""
        start, end, segment_id = parse_descriptor(descriptor)
        part = self.topic(name).segment(segment_id)
        return part if part is not None and (part.start, part.end) == (start, end) else None

    async def prune(self, name: str, descriptor: str) -> None:
        """Deletes a sealed segment that nobody needs; one that is not there is as good as deleted.

        Raises PreconditionError for one that is needed.
        """
        deadline = self._requests.deadline(self.limits.timeout_s)
        self.topic(name)
        await self.access.control(name, deadline)
        for _ in range(RACES_MAX):
            topic = self.topic(name)
            part = self.segment(name, descriptor)
            if part is None:
                return
            self._must_be_prunable(name, topic, part)
            verdict = await self.propose(
                name, topic, TopicMove.PRUNE, deadline, segment_ids=(part.segment_id,)
            )
            if verdict is Verdict.ACCEPTED:
                return
        raise ConflictError(f"{full_name(name)} kept changing; try again")

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

    async def propose(
        self, name: str, topic: ScalableTopic, move: TopicMove, deadline: float, **fields: Any
    ) -> Verdict:
        """ACCEPTED, or the reason of a race that was lost. Raises for what stays refused."""
        self.access.must_control(name)
        record = topic_change(
            self._requests.actor(),
            name,
            topic,
            move,
            self._runtime.new_id(),
            TopicCause.OPERATOR,
            **fields,
        )
        verdict = (await self._requests.propose(record, deadline)).outcome.verdict
        refusals = self.access.refusals(name)
        if verdict in refusals:
            raise refusals[verdict]
        if verdict is Verdict.SESSION_OVER:
            raise UnavailableError("this node's session is over; try again, or ask another")
        return verdict

    async def _until(self, name: str, done: Callable[[], bool], deadline: float, what: str) -> None:
        while not done():
            await self._changed(name, deadline, what)

    async def _changed(self, name: str, deadline: float, what: str) -> None:
        """Waits for the topic to change. What a request began goes on when its time is over."""
        try:
            await self._requests.changed(topic_key(name), deadline, what)
        except DeadlineError:
            why = self.access.service.failures.why(name)
            rest = f": {why}. It is tried again by itself" if why else "; it goes on by itself"
            raise DeadlineError(
                f"{full_name(name)}: {what} in time{rest}; look before you ask again"
            ) from None

    def _undone(self, name: str, what: str) -> Exception:
        why = self.access.service.failures.why(name) or "its controller's log says why"
        return KafkaFailedError(f"{full_name(name)}: {what}, and it was undone: {why}")

    def _enabled(self) -> None:
        if not self.limits.enabled:
            raise PreconditionError("Scalable topics are disabled on this broker")


def parse(tenant: str, namespace: str, topic: str) -> str:
    """`tenant/namespace/name`, checked. Raises InvalidInputError."""
    return names.scalable_topic(tenant, namespace, topic)
