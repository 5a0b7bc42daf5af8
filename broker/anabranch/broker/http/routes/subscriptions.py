"""Subscriptions of scalable topics: `/admin/v2/scalable/.../subscriptions`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch.admin import DeadLetterPolicy, SubscriptionType
from anabranch.broker.errors import PreconditionError
from anabranch.broker.http.routing import Named, RouteGroup, TopicName
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.subscriptions.changes import Start
from anabranch.broker.topics.subscriptions.dead_letters import DeadLettersWanted
from anabranch.broker.topics.subscriptions.takeover import FromGroup, Missing
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.names import full_name

_Type = Annotated[SubscriptionType, Named("type")]
_Timestamp = Annotated[
    Annotated[int, Meta(ge=0, le=2**62)] | None,
    Meta(description="Milliseconds since 1970, of the messages."),
]
_Position = Annotated[Literal["earliest", "latest"] | None, Meta(description="Instead of a time.")]
_Group = Annotated[
    Annotated[str, Meta(min_length=1)] | None,
    Named("fromGroup"),
    Meta(description="Instead of a time: a group of an adopted Kafka topic, without members."),
]
_Missing = Annotated[
    Missing, Meta(description="The beginning in partitions for which that group has no position.")
]
_ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}  # the ends of every segment; ours
_PATH: Final = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"


def routes(topics: TopicOperations, guard: AccessGuard | None) -> RouteGroup:
    """All routes of subscriptions. `guard`: asked of topics of dead letters as well."""
    found = RouteGroup("scalable topics", f"/admin/v2/scalable{_PATH}")
    _subscriptions(found, topics)
    _dead_letters(found, topics, guard)
    return found


def _subscriptions(routes: RouteGroup, topics: TopicOperations) -> None:
    @routes.put("")
    async def create_subscription(
        name: TopicName,
        subscription: str,
        kind: _Type = "STREAM",
        timestamp: _Timestamp = None,
        position: _Position = None,
        group: _Group = None,
        missing: _Missing = Missing.REFUSE,
    ) -> None:
        """Creates a subscription, which begins at the first message or where it is told to.

        Nothing is changed if it is there.
        """
        if sum(each is not None for each in (timestamp, position, group)) > 1:
            raise PreconditionError(
                "say where to begin in one way: timestamp=milliseconds since 1970, or "
                "position=earliest or latest, or fromGroup=a group of Kafka's"
            )
        await topics.controlled(name)
        at = timestamp if position is None else _ENDS[position]
        start: Start = EARLIEST if at is None else at
        if group is not None:
            start = FromGroup(group, missing)
        await topics.subscriptions.create(name, subscription, SubscriptionKind[kind], start)

    @routes.delete("")
    async def delete_subscription(
        name: TopicName,
        subscription: str,
        force: Annotated[bool, Meta(description="Also if it has consumers.")] = False,
    ) -> None:
        """Deletes a subscription and its positions; force ends its consumers' sessions, too."""
        await topics.controlled(name)
        await topics.subscriptions.delete(name, subscription, force=force)

    @routes.post("/seek")
    async def seek_subscription(
        name: TopicName,
        subscription: str,
        timestamp: _Timestamp = None,
        position: _Position = None,
    ) -> None:
        """Goes on with messages of this time or a later one; its consumers subscribe again."""
        if (timestamp is None) is (position is None):
            raise PreconditionError(
                "say where to go on: timestamp=milliseconds since 1970, or position=earliest or "
                "latest"
            )
        await topics.controlled(name)
        to = timestamp if position is None else _ENDS[position]
        await topics.subscriptions.reset(name, subscription, EARLIEST if to is None else to)

    @routes.post("/skip-all")
    async def skip_all(name: TopicName, subscription: str) -> None:
        """Leaves out all that is in the topic now; its consumers subscribe again."""
        await topics.controlled(name)
        await topics.subscriptions.reset(name, subscription, LATEST)


def _dead_letters(routes: RouteGroup, topics: TopicOperations, guard: AccessGuard | None) -> None:
    path = "/deadLetterPolicy"

    @routes.get(path)
    async def get_dead_letter_policy(name: TopicName, subscription: str) -> DeadLetterPolicy | None:
        """The topic for messages that it cannot process, and a queue's tries; 204 for none."""
        await topics.controlled(name, reading=True)
        known = topics.subscriptions.known(name, subscription)
        if not known.dead_letter:
            return None
        return DeadLetterPolicy(full_name(known.dead_letter), known.deliveries_max)

    @routes.put(path)
    async def set_dead_letter_policy(
        name: TopicName, subscription: str, policy: DeadLettersWanted
    ) -> None:
        """Lets a queue put aside what was delivered so often in vain, and a stream what failed."""
        await topics.controlled(name)
        await topics.dead_letters.set(name, subscription, policy, guard)

    @routes.delete(path)
    async def remove_dead_letter_policy(name: TopicName, subscription: str) -> None:
        """Puts nothing aside any more: Kafka discards a queue's messages after ten deliveries."""
        await topics.controlled(name)
        await topics.dead_letters.set(name, subscription, None, guard)
