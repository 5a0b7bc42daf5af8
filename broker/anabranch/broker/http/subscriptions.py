"""Subscriptions of scalable topics: `/admin/v2/scalable/.../subscriptions`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

from fastapi import APIRouter, Query

from anabranch.broker.errors import PreconditionError
from anabranch.broker.http.errors import problems
from anabranch.broker.http.paths import TopicName
from anabranch.broker.http.scalable import PREFIX
from anabranch.broker.topics.operations import TopicOperations
from anabranch.channel.positions import EARLIEST, LATEST
from anabranch.core.subscriptions import SubscriptionKind

_TIMESTAMP_MAX: Final = 2**62

_Timestamp = Annotated[
    int | None,
    Query(ge=0, le=_TIMESTAMP_MAX, description="Milliseconds since 1970, of the messages."),
]


class SubscriptionType(Enum):
    """As Pulsar names them; CHECKPOINT is ours."""

    STREAM = "STREAM"
    QUEUE = "QUEUE"
    CHECKPOINT = "CHECKPOINT"


class Position(Enum):
    """The two ends of every segment; ours."""

    EARLIEST = "earliest"
    LATEST = "latest"


_ENDS: Final = {Position.EARLIEST: EARLIEST, Position.LATEST: LATEST}


def router(topics: TopicOperations) -> APIRouter:
    """All routes of subscriptions."""
    routes = APIRouter(prefix=PREFIX, tags=["scalable topics"])
    _existence(routes, topics)
    _positions(routes, topics)
    return routes


def _existence(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"
    refusals = problems(307, 404, 412, 500, 503, 504)

    @routes.put(path, status_code=204, responses=refusals)
    async def create_subscription(
        name: TopicName,
        subscription: str,
        kind: Annotated[SubscriptionType, Query(alias="type")] = SubscriptionType.STREAM,
    ) -> None:
        """Creates a subscription that begins at the first message; nothing if it is there."""
        await topics.controlled(name)
        await topics.consumers.create(name, subscription, SubscriptionKind[kind.value])

    @routes.delete(path, status_code=204, responses=refusals)
    async def delete_subscription(name: TopicName, subscription: str) -> None:
        """Deletes a subscription and what it has consumed; its consumers are told."""
        await topics.controlled(name)
        await topics.consumers.delete(name, subscription)


def _positions(routes: APIRouter, topics: TopicOperations) -> None:
    path = "/{tenant}/{namespace}/{topic}/subscriptions/{subscription}"
    refusals = problems(307, 400, 404, 409, 412, 500, 503, 504)

    @routes.post(path + "/seek", status_code=204, responses=refusals)
    async def seek_subscription(
        name: TopicName,
        subscription: str,
        timestamp: _Timestamp = None,
        position: Annotated[Position | None, Query(description="Instead of a time.")] = None,
    ) -> None:
        """Goes on with what has this time or a later one; its consumers subscribe again."""
        if (timestamp is None) is (position is None):
            raise PreconditionError(
                "say where to go on: timestamp=milliseconds since 1970, or position=earliest or "
                "latest"
            )
        await topics.controlled(name)
        to = timestamp if position is None else _ENDS[position]
        await topics.reading.resets.reset(name, subscription, EARLIEST if to is None else to)

    @routes.post(path + "/skip-all", status_code=204, responses=refusals)
    async def skip_all(name: TopicName, subscription: str) -> None:
        """Leaves out all that is in the topic now; its consumers subscribe again."""
        await topics.controlled(name)
        await topics.reading.resets.reset(name, subscription, LATEST)
