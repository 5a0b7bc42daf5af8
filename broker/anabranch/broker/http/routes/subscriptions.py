"""Subscriptions of scalable topics: `/admin/v2/scalable/.../subscriptions`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from anabranch.broker.errors import PreconditionError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.wanted import Wanted
from anabranch.broker.http.routes.topics import PREFIX
from anabranch.broker.http.routing import DecidingRoute, TopicName
from anabranch.broker.security.guard import AccessGuard
from anabranch.broker.topics.operations import TopicOperations
from anabranch.broker.topics.subscriptions.changes import DeadLetterSettings
from anabranch.channel.kafka.offsets import EARLIEST, LATEST
from anabranch.core.entities.subscription import DELIVERIES, DELIVERIES_MAX, SubscriptionKind

_TIMESTAMP_MAX: Final = 2**62

_Timestamp = Annotated[
    int | None,
    Query(ge=0, le=_TIMESTAMP_MAX, description="Milliseconds since 1970, of the messages."),
]


class SubscriptionType(Enum):
    """Pulsar's names of the types; CHECKPOINT is ours."""

    STREAM = "STREAM"
    QUEUE = "QUEUE"
    CHECKPOINT = "CHECKPOINT"


class DeadLetters(Wanted, strict=False):
    """A queue's topic for messages that it cannot process, and its number of tries; ours."""

    deadLetterTopic: str = Field(
        "", description="A scalable topic, made if it is not there; TOPIC-SUBSCRIPTION-DLQ if left."
    )
    maxDeliveries: int = Field(
        DELIVERIES,
        description=f"Deliveries of a message before it goes there: 1 to {DELIVERIES_MAX}",
    )


class Position(Enum):
    """The two ends of every segment; ours."""

    EARLIEST = "earliest"
    LATEST = "latest"


_Position = Annotated[Position | None, Query(description="Instead of a time.")]
_ENDS: Final = {Position.EARLIEST: EARLIEST, Position.LATEST: LATEST}


def router(topics: TopicOperations, guard: AccessGuard | None) -> APIRouter:
    """All routes of subscriptions. `guard`: asked of topics of dead letters as well."""
    routes = APIRouter(route_class=DecidingRoute, prefix=PREFIX, tags=["scalable topics"])
    _existence(routes, topics)
    _positions(routes, topics)
    _dead_letters(routes, topics, guard)
    return routes


def _existence(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"
    refusals = problems(307, 400, 404, 412, 500, 503, 504)

    @routes.put(path, status_code=204, responses=refusals)
    async def create_subscription(
        name: TopicName,
        subscription: str,
        kind: Annotated[SubscriptionType, Query(alias="type")] = SubscriptionType.STREAM,
        timestamp: _Timestamp = None,
        position: _Position = None,
    ) -> None:
        """Creates a subscription, which begins at the first message or where it is told to.

        Nothing is changed if it is there.
        """
        if timestamp is not None and position is not None:
            raise PreconditionError(
                "say where to begin by timestamp=milliseconds since 1970, or by position=earliest "
                "or latest, not both"
            )
        await topics.controlled(name)
        at = timestamp if position is None else _ENDS[position]
        start_ms = EARLIEST if at is None else at
        await topics.consumers.create(name, subscription, SubscriptionKind[kind.value], start_ms)

    @routes.delete(path, status_code=204, responses=problems(307, 404, 409, 412, 500, 503, 504))
    async def delete_subscription(
        name: TopicName,
        subscription: str,
        force: Annotated[bool, Query(description="Also if it has consumers.")] = False,
    ) -> None:
        """Deletes a subscription and its positions; force ends its consumers' sessions, too."""
        await topics.controlled(name)
        await topics.consumers.delete(name, subscription, force=force)


def _positions(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"
    refusals = problems(307, 400, 404, 409, 412, 500, 503, 504)

    @routes.post(path + "/seek", status_code=204, responses=refusals)
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
        await topics.resets.reset(name, subscription, EARLIEST if to is None else to)

    @routes.post(path + "/skip-all", status_code=204, responses=refusals)
    async def skip_all(name: TopicName, subscription: str) -> None:
        """Leaves out all that is in the topic now; its consumers subscribe again."""
        await topics.controlled(name)
        await topics.resets.reset(name, subscription, LATEST)


def _dead_letters(routes: APIRouter, topics: TopicOperations, guard: AccessGuard | None) -> None:
    path = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}/deadLetterPolicy"
    refusals = problems(307, 403, 404, 412, 500, 503, 504)
    found: dict[int | str, dict[str, Any]] = {
        200: {"model": DeadLetters},
        204: {"description": "It has none."},
    }

    @routes.get(path, responses={**found, **problems(307, 404, 412)})
    async def get_dead_letter_policy(name: TopicName, subscription: str) -> Response:
        """A queue subscription's topic for messages that it cannot process."""
        await topics.controlled(name, reading=True)
        policy = topics.dead_letters.of(name, subscription)
        if policy is None:
            return Response(status_code=204)
        said = DeadLetters(deadLetterTopic=policy.topic, maxDeliveries=policy.deliveries_max)
        return JSONResponse(said.model_dump())

    @routes.put(path, status_code=204, responses=refusals)
    async def set_dead_letter_policy(
        name: TopicName, subscription: str, policy: DeadLetters
    ) -> None:
        """Lets a queue subscription put aside messages that were delivered so often in vain."""
        await topics.controlled(name)
        given = DeadLetterSettings(policy.deadLetterTopic, policy.maxDeliveries)
        await topics.dead_letters.set(name, subscription, given, guard)

    @routes.delete(path, status_code=204, responses=refusals)
    async def remove_dead_letter_policy(name: TopicName, subscription: str) -> None:
        """Puts nothing aside any more: Kafka discards messages delivered ten times in vain."""
        await topics.controlled(name)
        await topics.dead_letters.set(name, subscription, None, guard)
