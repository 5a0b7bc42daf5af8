"""A topic's controller: the way to it, and its proposals on the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.broker.bundles.lookups import Located, LookupService
from anabranch.broker.errors import (
    ConflictError,
    ElsewhereError,
    ForbiddenError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    listed,
    no_namespace,
)
from anabranch.broker.proposals import Refusals, not_permitted
from anabranch.broker.runtime import Runtime
from anabranch.broker.settings.current import CurrentSettings
from anabranch.broker.tenants.limits import RoomForOne, TenantLimits
from anabranch.broker.topics.controllers.service import TopicService
from anabranch.core.bundles.guards import controller_of
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.subscription import Subscription
from anabranch.core.entities.topic import ScalableTopic, TopicMove
from anabranch.core.errors import UnknownSegmentError
from anabranch.core.log.records import TopicCause, TopicChange
from anabranch.core.log.verdicts import Verdict
from anabranch.core.names import full_name, namespace_of
from anabranch.core.tenants.limits import TenantLimit
from anabranch.core.topics.kafka_names import kafka_group
from anabranch.core.topics.propose import topic_change


class TopicAccess:
    """The common part of REST and consumers' sessions, for use in the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        lookups: LookupService,
        service: TopicService,
        settings: CurrentSettings,
    ) -> None:
        self.runtime = runtime
        self.proposals = runtime.proposals
        self.service = service
        self.settings = settings
        self._limits = TenantLimits(runtime, settings)
        self._lookups = lookups

    def must_be_enabled(self) -> None:
        """Raises PreconditionError where topics are neither made, watched nor consumed."""
        if not self.settings.own.scalable_topic_enabled:
            raise PreconditionError("Scalable topics are disabled on this broker")

    def deadline(self) -> float:
        """Returns the end of the time of a request that begins now."""
        return self.proposals.deadline(self.settings.now.operation_timeout_s)

    def topic(self, name: str) -> ScalableTopic:
        """The topic, for clients. Raises NotFoundError unless it is there and open."""
        topic = self.runtime.view.topic(name)
        if topic is None or not topic.is_open:
            self.namespace(name)
            raise NotFoundError(f"Scalable topic not found: {full_name(name)}")
        return topic

    def lineage(self, name: str, segment_id: int) -> tuple[ScalableTopic, tuple[SegmentInfo, ...]]:
        """The topic, and of its segments that one with its ancestors and descendants, by id.

        Raises NotFoundError.
        """
        topic = self.topic(name)
        try:
            return topic, topic.layout.lineage(segment_id)
        except UnknownSegmentError as error:
            raise NotFoundError(f"{error}; {active_segments(topic)}") from None

    def namespace(self, name: str) -> None:
        """Raises NotFoundError unless the topic's namespace is there."""
        self.runtime.namespace(namespace_of(name))

    def room(self, what: TenantLimit, topic: str, subscription: str = "") -> RoomForOne:
        """For this topic, for one more subscription of it, or for one more consumer of that."""
        home = namespace_of(topic)
        whose = f"subscription {subscription} of {full_name(topic)}"
        if what is TenantLimit.MAX_TOPICS_PER_NAMESPACE:
            whose = f"namespace {home}"
        elif what is TenantLimit.MAX_SUBSCRIPTIONS_PER_TOPIC:
            whose = full_name(topic)
        return RoomForOne(self._limits, what, whose, home)

    def group_id(self, topic: str, subscription: str, known: Subscription) -> str:
        """The Kafka group of a subscription."""
        return kafka_group(self.service.prefix, topic, subscription, known.group_offset)

    def controller_at(self, name: str) -> Located | None:
        """Returns the address of the topic's controller, as far as it is known at once."""
        return self._lookups.locate_cached(full_name(name), namespace_of(name))

    async def find_controller(self, name: str) -> Located:
        """Returns the address of the topic's controller; sees to it that there is one."""
        return await self._lookups.find(full_name(name), namespace_of(name))

    async def control(self, name: str, deadline: float) -> None:
        """Returns once this node is the topic's controller. Raises ElsewhereError if another is."""
        while not self.service.may_act(name):
            located = await self.find_controller(name)
            if located.broker != self.runtime.core.me:
                raise _elsewhere(name, located)
            self.proposals.must_have_lease()
            unit, _ = controller_of(self.runtime.view, name)
            what = f"bundle {unit} of {full_name(name)} was not opened here"
            if not self.service.may_act(name):
                await self.runtime.until_changed(unit, deadline, what)

    async def controlled(
        self, name: str, deadline: float | None = None, *, reading: bool = False
    ) -> ScalableTopic:
        """Returns the open topic, once this node is its controller, which knows most of it.

        `deadline`: the time of a request from now on, if None. `reading`: a node that has lost
        touch with the log answers from its state. Raises NotFoundError, ElsewhereError, and
        DeadlineExceededError after that.
        """
        self.topic(name)
        if self.runtime.has_lease or not reading:
            await self.control(name, self.deadline() if deadline is None else deadline)
        return self.topic(name)

    def must_control(self, name: str) -> None:
        """Raises ElsewhereError or UnavailableError unless this node is the controller now."""
        if self.service.may_act(name):
            return
        located = self.controller_at(name)
        if located is not None and located.broker != self.runtime.core.me:
            raise _elsewhere(name, located)
        raise UnavailableError(f"{full_name(name)} has no controller at this moment; try again")

    async def change(
        self, name: str, build: Callable[[ScalableTopic], TopicChange | None]
    ) -> TopicChange | None:
        """Proposes, at the topic's controller, what `build` makes of it (`Proposals.settle`).

        Raises NotFoundError unless the topic is open, and ElsewhereError.
        """
        deadline = self.deadline()
        return await self.proposals.settle(
            lambda: build(self.topic(name)),
            self.refusals(name),
            deadline,
            lambda: self.controlled(name, deadline),
        )

    def proposal(
        self, name: str, topic: ScalableTopic | None, move: TopicMove, **fields: Any
    ) -> TopicChange:
        """Returns an operator's change of a topic; the log refuses it of others than the
        controller.
        """
        return topic_change(
            self.proposals.actor(),
            name,
            topic,
            move,
            self.proposals.new_id(),
            TopicCause.OPERATOR,
            **fields,
        )

    def refusals(self, name: str) -> Refusals:
        """Returns the errors for a proposal on a topic that the log refuses for good."""
        full = full_name(name)

        def gone() -> NotFoundError:
            return NotFoundError(f"Scalable topic not found: {full}")

        def busy() -> UnavailableError | ConflictError:
            topic = self.runtime.view.topic(name)
            if topic is not None and topic.is_open:
                return UnavailableError(f"the Kafka topic of {full} is being given back; try again")
            return ConflictError(f"{full} is being created or deleted")

        return {
            Verdict.UNKNOWN_NAMESPACE: lambda: no_namespace(namespace_of(name)),
            Verdict.UNKNOWN_TOPIC: gone,
            Verdict.OTHER_INCARNATION: gone,
            Verdict.UNKNOWN_SUBSCRIPTION: lambda: NotFoundError(
                f"the subscription on {full} is gone"
            ),
            Verdict.NOT_CONTROLLER: lambda: UnavailableError(
                f"{full}: its controller has just changed; try again"
            ),
            Verdict.NOT_PERMITTED: lambda: not_permitted(full),
            Verdict.NOT_ADOPTABLE: lambda: ForbiddenError(
                f"the log does not let {namespace_of(name)} adopt that Kafka topic: see "
                "adoptableTopics"
            ),
            Verdict.ALREADY_ADOPTED: lambda: ConflictError(
                f"another topic of {namespace_of(name)} has that Kafka topic already"
            ),
            Verdict.TOPIC_BUSY: busy,
        }


def _elsewhere(name: str, located: Located) -> ElsewhereError:
    return ElsewhereError(
        f"{full_name(name)} is controlled by {located.broker}, at {located.where}",
        located.web_url,
        located.web_url_tls,
    )


def active_segments(topic: ScalableTopic, *, descriptors: bool = False) -> str:
    """Lists ids or descriptors in the order of the ring, for an error about another segment."""
    active = topic.layout.active
    names_ = [part.descriptor if descriptors else part.segment_id for part in active]
    return f"the active segments are {listed(names_)}"
