"""Where a topic is controlled, and proposals on it by whoever controls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.broker.errors import (
    ConflictError,
    ElsewhereError,
    NotFoundError,
    UnavailableError,
)
from anabranch.broker.lookups import Located, Lookups
from anabranch.broker.requests import Requests
from anabranch.broker.topics.service import TopicService
from anabranch.core import names
from anabranch.core.names import full_name, namespace_of
from anabranch.core.records import TopicCause, TopicChange
from anabranch.core.topic_guards import controller_of
from anabranch.core.topic_proposals import topic_change
from anabranch.core.topics import ScalableTopic, TopicMove
from anabranch.core.verdicts import Verdict


class Access:
    """What REST and consumers' sessions share. To be used in the event loop."""

    def __init__(self, requests: Requests, lookups: Lookups, service: TopicService) -> None:
        self.requests = requests
        self.runtime = requests.runtime
        self.service = service
        self._lookups = lookups

    def topic(self, name: str) -> ScalableTopic:
        """The topic, for clients. Raises NotFoundError unless it is there and open."""
        topic = self.runtime.view.topic(name)
        if topic is None or not topic.is_open:
            self.namespace(name)
            raise NotFoundError(f"Scalable topic not found: {full_name(name)}")
        return topic

    def namespace(self, name: str) -> None:
        """Raises NotFoundError unless the topic's namespace is there."""
        home = namespace_of(name)
        if self.runtime.view.namespace(home) is None:
            raise NotFoundError(f"Namespace {home} does not exist")

    def controller_at(self, name: str) -> Located | None:
        """Where the topic's controller is, as far as it is known at once."""
        return self._lookups.locate_cached(full_name(name), namespace_of(name))

    async def find_controller(self, name: str) -> Located:
        """Where the topic's controller is; sees to it that there is one."""
        return await self._lookups.lookup(full_name(name), namespace_of(name))

    async def control(self, name: str, deadline: float) -> None:
        """Returns once this node is the topic's controller. Raises ElsewhereError if another is."""
        while not self.service.may_act(name):
            located = await self.find_controller(name)
            if located.broker != self.runtime.core.me:
                raise _elsewhere(name, located)
            self.requests.actor()
            unit, _ = controller_of(self.runtime.view, name)
            what = f"bundle {unit} of {full_name(name)} was not opened here"
            if not self.service.may_act(name):
                await self.requests.changed(unit, deadline, what)

    async def controlled(
        self, name: str, deadline: float, *, reading: bool = False
    ) -> ScalableTopic:
        """The open topic, once this node is its controller, which knows most of it.

        `reading`: a node that has lost touch with the log tells what it has. Raises NotFoundError
        and ElsewhereError.
        """
        self.topic(name)
        if self.runtime.has_lease or not reading:
            await self.control(name, deadline)
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
        self, name: str, build: Callable[[ScalableTopic], TopicChange | None], deadline: float
    ) -> TopicChange | None:
        """Proposes, at the topic's controller, what `build` makes of it (`Requests.settle`).

        Raises NotFoundError unless the topic is open, and ElsewhereError.
        """
        await self.controlled(name, deadline)
        return await self.requests.settle(
            lambda: build(self.topic(name)), self.refusals(name), deadline
        )

    def proposal(
        self, name: str, topic: ScalableTopic | None, move: TopicMove, **fields: Any
    ) -> TopicChange:
        """An operator's change of a topic. Raises ElsewhereError or UnavailableError unless this
        node is the topic's controller now.
        """
        self.must_control(name)
        return topic_change(
            self.requests.actor(),
            name,
            topic,
            move,
            self.runtime.new_id(),
            TopicCause.OPERATOR,
            **fields,
        )

    def refusals(self, name: str) -> dict[Verdict, Exception | None]:
        """What a proposal on a topic ends in when the log refuses it for good."""
        full = full_name(name)
        gone = NotFoundError(f"Scalable topic not found: {full}")
        return {
            Verdict.UNKNOWN_NAMESPACE: NotFoundError(
                f"Namespace {namespace_of(name)} does not exist"
            ),
            Verdict.UNKNOWN_TOPIC: gone,
            Verdict.OTHER_INCARNATION: gone,
            Verdict.UNKNOWN_SUBSCRIPTION: NotFoundError(f"the subscription on {full} is gone"),
            Verdict.NOT_CONTROLLER: UnavailableError(
                f"{full}: its controller has just changed; try again"
            ),
            Verdict.TOPIC_BUSY: ConflictError(f"{full} is being created or deleted"),
        }


def _elsewhere(name: str, located: Located) -> ElsewhereError:
    where = located.service_url or located.web_url
    return ElsewhereError(
        f"{full_name(name)} is controlled by {located.broker}, at {where}",
        located.web_url,
        located.service_url,
    )


def parse(name: str) -> str:
    """`tenant/namespace/name` of `[topic://]...`. Raises InvalidInputError."""
    return names.parse_scalable_topic(name)
