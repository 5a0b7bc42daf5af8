"""Bundles of a namespace: `/admin/v2/namespaces/{tenant}/{namespace}/...`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch import admin
from anabranch.broker.bundles.cuts import BundleWord
from anabranch.broker.errors import DeadlineExceededError, NotFoundError, PreconditionError, listed
from anabranch.broker.http.routing import BODY, Home, RouteGroup
from anabranch.broker.operations import Operations
from anabranch.broker.requester import requester
from anabranch.broker.security.guard import AccessGuard
from anabranch.channel.kafka.offsets import LATEST
from anabranch.core import names
from anabranch.core.balance.settings import SplitAlgorithm
from anabranch.core.entities.subscription import SubscriptionKind
from anabranch.core.entities.unit import Unit, UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace, Topic, full_name, parse_scalable_topic
from anabranch.core.ring import CUTS_MAX, RING_END, bundle_name, parse_range, topic_hash
from anabranch.core.security.resources import namespace_resource
from anabranch.core.security.table import PLACING_BUNDLES

_ALGORITHMS: Final = tuple(each.value for each in SplitAlgorithm)
_WORDS: Final = frozenset(BundleWord)
_PATH: Final = "/namespaces/{tenant}/{namespace}"
_BUNDLE: Final = f"{_PATH}/{{bundle}}"

_Bundle = Annotated[str, Meta(description="A bundle's range, such as 0x00000000_0x40000000.")]
_ToSplit = Annotated[
    str,
    Meta(
        description="A bundle's range; or LARGEST, the one with the most scalable topics; or HOT, "
        "the one whose scalable topics have the most traffic."
    ),
]
_Destination = Annotated[
    str, Meta(description="Broker id, host:port, that shall own it; if left, the next asked.")
]
_Topics = Annotated[
    list[str] | None, Meta(description="Topics, by full or local name; may be repeated.")
]
_Positions = Annotated[
    list[int] | None,
    BODY,
    Meta(description=f"Positions to cut at; for {SplitAlgorithm.POSITIONS.value} only."),
]
_Domain = Literal["persistent", "non-persistent", "scalable"]
_Algorithm = Annotated[str, Meta(description=f"One of {', '.join(_ALGORITHMS)}.")]


def routes(operations: Operations, guard: AccessGuard | None) -> RouteGroup:
    """The routes of bundles. `guard`: checks the right to name a topic's next owner; None: there is
    no check.
    """
    found = RouteGroup("bundles", "/admin/v2")
    _reads(found, operations)
    _changes(found, operations, guard)
    _subscriptions(found, operations)
    return found


def edges_of(ranges: Iterable[str]) -> list[str]:
    """Boundaries of ranges that follow one another."""
    pairs = [text.partition("_") for text in ranges]
    return [pairs[0][0], *(upper for _, _, upper in pairs)]


def bundles_data(operations: Operations, home: Namespace) -> admin.BundlesData:
    """The ends of a namespace's bundles. Raises NotFoundError."""
    ranges = [part for part, _ in operations.bundles(home)]
    return admin.BundlesData(edges_of(ranges), len(ranges))


def _reads(routes: RouteGroup, operations: Operations) -> None:
    @routes.get(f"{_PATH}/bundles")
    async def get_bundles(home: Home) -> admin.BundlesData:
        """The ends of a namespace's bundles."""
        return bundles_data(operations, home)

    @routes.get(f"{_PATH}/bundles/ownership")
    async def get_bundle_ownership(home: Home) -> admin.NamespaceOwnership:
        """Every bundle with its owner and state (Anabranch's own; Pulsar has no such path)."""
        return admin.NamespaceOwnership(
            home,
            [
                admin.BundleOwnership(
                    bundle=part,
                    state=unit.state.name,
                    broker=unit.broker,
                    source=unit.source,
                    version=unit.version,
                    since_millis=unit.since_ms,
                    since_offset=unit.since_offset,
                )
                for part, unit in operations.bundles(home)
            ],
        )

    @routes.get(f"{_BUNDLE}/topicHashPositions")
    async def get_topic_hash_positions(
        home: Home, bundle: _Bundle, topics: _Topics = None
    ) -> admin.TopicHashPositions:
        """The positions of an owned bundle's topics on the ring; those of other bundles are left
        out.

        Names have to be given.
        """
        part = parse_range(bundle)
        if _bundle(operations, home, str(part)).state in (UnitState.FREE, UnitState.ASSIGNING):
            raise PreconditionError(
                f"Failed to find ownership for ServiceUnit:{home}/{part}: look up one of its "
                "topics first"
            )
        positions = {topic: topic_hash(topic) for topic in _full_names(home, topics or [])}
        return admin.TopicHashPositions(
            home, str(part), {name: at for name, at in positions.items() if at in part}
        )


def _bundle(operations: Operations, home: Namespace, part: str) -> Unit:
    """Raises PreconditionError for a range that is no bundle."""
    found = dict(operations.bundles(home)).get(part)
    if found is None:
        raise PreconditionError(
            f"Cannot find bundle {part} in the bundles list of {home}; GET .../bundles lists them"
        )
    return found


def _full_names(home: Namespace, topics: Sequence[str]) -> list[Topic]:
    found = []
    for name in topics:
        if "://" in name:
            topic, its_home = names.parse_topic(name)
            if its_home != home:
                raise InvalidInputError(f"topic {name!r} is not of namespace {home}")
        else:
            topic = names.topic(home, name)
        found.append(topic)
    return found


def _changes(routes: RouteGroup, operations: Operations, guard: AccessGuard | None) -> None:
    @routes.put(f"{_PATH}/unload")
    async def unload_namespace(home: Home) -> None:
        """Takes every bundle of a namespace from its owner; the next look-ups assign them."""
        await operations.unload_namespace(home)

    @routes.put(f"{_BUNDLE}/unload")
    async def unload_bundle(
        home: Home, bundle: _Bundle, destinationBroker: _Destination = ""
    ) -> None:
        """Takes a bundle from its owner, or transfers it. A free bundle counts as done."""
        unit = bundle_name(home, parse_range(bundle))
        await operations.unload(unit, _broker(destinationBroker))

    @routes.put("/{domain}/{tenant}/{namespace}/{topic}/unload")
    async def unload_topic(
        domain: _Domain, home: Home, topic: str, destinationBroker: _Destination = ""
    ) -> None:
        """Takes the topic's bundle, with all of its topics, from its owner, or transfers it.

        To name the broker needs what moving a bundle needs, a superuser.
        """
        scheme = names.SCALABLE_DOMAIN if domain == "scalable" else domain
        bundle = operations.bundle_of(names.topic(home, topic, scheme), home)
        destination = _broker(destinationBroker)
        if destination and guard is not None:
            guard.check(
                requester(), PLACING_BUNDLES, namespace_resource(home), "say where a bundle goes"
            )
        await operations.unload(bundle, destination)

    @routes.put(f"{_BUNDLE}/split")
    async def split_bundle(
        home: Home,
        bundle: _ToSplit,
        unload: Annotated[bool, Meta(description="Also unload the children.")] = False,
        splitAlgorithmName: _Algorithm = SplitAlgorithm.RANGE.value,
        positions: _Positions = None,
    ) -> None:
        """Divides a bundle: in halves, between its scalable topics by number or by traffic, or at
        the given positions.
        """
        algorithm = _algorithm(splitAlgorithmName, positions or [])
        unit = (
            await operations.bundle_meant(home, BundleWord(bundle))
            if bundle in _WORDS
            else bundle_name(home, parse_range(bundle))
        )
        cuts = await operations.cuts(unit, algorithm, positions or [])
        await operations.split(unit, cuts, unload)


def _algorithm(name: str, positions: list[int]) -> SplitAlgorithm:
    """Raises PreconditionError for a word that is no algorithm, or does not fit the positions."""
    if name not in _ALGORITHMS:
        raise PreconditionError(
            "Unsupported namespace bundle split algorithm, supported algorithms are "
            f"[{', '.join(_ALGORITHMS)}]"
        )
    found = SplitAlgorithm(name)
    if found is not SplitAlgorithm.POSITIONS:
        if positions:
            raise PreconditionError(
                f"positions are for {SplitAlgorithm.POSITIONS.value} only: name it in "
                "splitAlgorithmName, or send none"
            )
        return found
    if not positions:
        raise PreconditionError(
            f"With {found.value} split algorithm, splitBoundaries must not be empty"
        )
    if len(positions) > CUTS_MAX:
        raise InvalidInputError(
            f"{len(positions)} positions are too many for one split: give at most {CUTS_MAX}"
        )
    outside = [position for position in positions if not 0 <= position <= RING_END]
    if outside:
        raise InvalidInputError(
            f"positions {listed(outside)} are outside the ring: 0 to {RING_END}"
        )
    return found


def _broker(text: str) -> str:
    """A destination as Pulsar's clients give it, with or without the scheme."""
    plain = text.removeprefix("http://").removeprefix("https://").rstrip("/")
    return names.broker_id(plain) if plain else ""


def _subscriptions(routes: RouteGroup, operations: Operations) -> None:
    """Adds the routes of the subscriptions of all topics of a bundle."""

    @routes.post(f"{_BUNDLE}/clearBacklog")
    async def clear_backlog(home: Home, bundle: _Bundle) -> None:
        """Skips all that is there, in every topic of the bundle, for every stream."""
        await _clear(operations, home, bundle, "")

    @routes.post(f"{_BUNDLE}/clearBacklog/{{subscription}}")
    async def clear_backlog_of_subscription(home: Home, bundle: _Bundle, subscription: str) -> None:
        """The same for the subscriptions of one name."""
        await _clear(operations, home, bundle, subscription)

    @routes.post(f"{_BUNDLE}/unsubscribe/{{subscription}}")
    async def unsubscribe_bundle(home: Home, bundle: _Bundle, subscription: str) -> None:
        """Deletes the subscriptions of this name, in every topic of the bundle."""
        subscriptions = operations.topics.subscriptions
        async for topic, _ in _subscribed(operations, home, bundle, subscription):
            with suppress(NotFoundError):  # somebody else was as fast
                await subscriptions.delete(topic, subscription)


async def _clear(operations: Operations, home: Namespace, bundle: str, subscription: str) -> None:
    left: list[str] = []
    topics = operations.topics
    async for topic, found in _subscribed(operations, home, bundle, subscription):
        for name, kind in found.items():
            if kind is SubscriptionKind.STREAM:
                with suppress(NotFoundError):  # it was deleted meanwhile
                    await topics.subscriptions.reset(topic, name, LATEST)
            else:
                left.append(f"{name} ({kind.name}) of {full_name(topic)}")
    if left:
        raise PreconditionError(
            f"{listed(left)} keep their positions elsewhere, and were left as they are; all "
            "streams of the bundle are cleared"
        )


async def _subscribed(
    operations: Operations, home: Namespace, bundle: str, subscription: str
) -> AsyncIterator[tuple[str, dict[str, SubscriptionKind]]]:
    """The bundle's topics, and of each the subscriptions of that name, or all for "".

    Raises ElsewhereError when another node owns the bundle, DeadlineExceededError after too long.
    """
    part, topics = parse_range(bundle), operations.topics
    _bundle(operations, home, str(part))
    deadline = topics.deadline()
    names_there = await topics.names(home, (), operations.topic_list_limiter)
    full = [name for name in names_there if topic_hash(Topic(name)) in part]
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
        known = topics.access.runtime.view.subscriptions(topic)
        wanted = {name: said.kind for name, said in known if subscription in ("", name)}
        if wanted:
            yield topic, wanted
