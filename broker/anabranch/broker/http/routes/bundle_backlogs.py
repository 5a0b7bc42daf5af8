"""Subscriptions of all topics of a bundle: `.../{bundle}/clearBacklog` and `unsubscribe`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Path

from anabranch.broker.errors import DeadlineExceededError, NotFoundError, PreconditionError, listed
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import Authoritative
from anabranch.broker.http.routing import DecidingRoute, Home
from anabranch.broker.operations import Operations
from anabranch.channel.kafka.offsets import LATEST
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.names import Namespace, Topic, full_name, parse_scalable_topic
from anabranch.core.ring import parse_range, topic_hash

_PATH: Final = "/{tenant}/{namespace}/{bundle}"

_Bundle = Annotated[str, Path(description="A bundle's range, such as 0x00000000_0x40000000.")]


def router(operations: Operations) -> APIRouter:
    """Both, for all subscriptions or one name."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/namespaces", tags=["bundles"])
    refusals = problems(307, 404, 412, 500, 503, 504)

    @routes.post(_PATH + "/clearBacklog", status_code=204, responses=refusals)
    async def clear_backlog(
        home: Home, bundle: _Bundle, authoritative: Authoritative = False
    ) -> None:
        """Skips all that is there, in every topic of the bundle, for every stream."""
        await _clear(operations, home, bundle, "")

    @routes.post(_PATH + "/clearBacklog/{subscription}", status_code=204, responses=refusals)
    async def clear_backlog_of_subscription(
        home: Home,
        bundle: _Bundle,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> None:
        """The same for the subscriptions of one name."""
        await _clear(operations, home, bundle, subscription)

    @routes.post(_PATH + "/unsubscribe/{subscription}", status_code=204, responses=refusals)
    async def unsubscribe_bundle(
        home: Home,
        bundle: _Bundle,
        subscription: str,
        authoritative: Authoritative = False,
    ) -> None:
        """Deletes the subscriptions of this name, in every topic of the bundle."""
        consumers = operations.topics.consumers
        async for topic, _ in _found(operations, home, bundle, subscription):
            with suppress(NotFoundError):  # somebody else was as fast
                await consumers.delete(topic, subscription)

    return routes


async def _clear(operations: Operations, home: Namespace, bundle: str, subscription: str) -> None:
    left: list[str] = []
    topics = operations.topics
    async for topic, found in _found(operations, home, bundle, subscription):
        for name, kind in found.items():
            if kind is SubscriptionKind.STREAM:
                with suppress(NotFoundError):  # it was deleted meanwhile
                    await topics.resets.reset(topic, name, LATEST)
            else:
                left.append(f"{name} ({kind.name}) of {full_name(topic)}")
    if left:
        raise PreconditionError(
            f"{listed(left)} keep their positions elsewhere, and were left as they are; all "
            "streams of the bundle are cleared"
        )


async def _found(
    operations: Operations, home: Namespace, bundle: str, subscription: str
) -> AsyncIterator[tuple[str, dict[str, SubscriptionKind]]]:
    """The bundle's topics, and of each the subscriptions of that name, or all for "".

    Raises ElsewhereError when another node owns the bundle, DeadlineExceededError after too long.
    """
    part = parse_range(bundle)
    topics = operations.topics
    if str(part) not in {text for text, _ in operations.bundles(home)}:
        raise PreconditionError(
            f"Cannot find bundle {part} in the bundles list of {home}; GET .../bundles lists them"
        )
    deadline = topics.deadline()
    find = await topics.names(home, (), operations.topic_list_limiter)
    names = await find()
    full = [name for name in names if topic_hash(Topic(name)) in part]
    for place, topic in enumerate(map(parse_scalable_topic, full)):
        if asyncio.get_running_loop().time() >= deadline:
            raise DeadlineExceededError(
                f"{place} of the {len(full)} topics of bundle {home}/{part} are done, and the "
                "others were not in time; ask again"
            )
        try:
            await topics.controlled(topic)
        except NotFoundError:
            continue  # it was deleted meanwhile
        known = {name: said.kind for name, said, _ in topics.subscriptions(topic)}
        wanted = {name: kind for name, kind in known.items() if subscription in ("", name)}
        if wanted:
            yield topic, wanted
