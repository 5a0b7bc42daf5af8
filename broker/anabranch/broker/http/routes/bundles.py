"""Bundles of a namespace: `/admin/v2/namespaces/{tenant}/{namespace}/...`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import Field, StrictInt

from anabranch.broker.bundles.cuts import BundleWord
from anabranch.broker.errors import PreconditionError, listed
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.cluster import (
    Authoritative,
    BundleOwnership,
    BundlesData,
    NamespaceOwnership,
    TopicHashPositions,
)
from anabranch.broker.http.routing import DecidingRoute, Home, Marked
from anabranch.broker.operations import Operations
from anabranch.core import names
from anabranch.core.balance.settings import SplitAlgorithm
from anabranch.core.entities.unit import UnitState
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import Namespace, Topic
from anabranch.core.ring import CUTS_MAX, RING_END, bundle_name, parse_range, topic_hash

_ALGORITHMS: Final = tuple(each.value for each in SplitAlgorithm)
_WORDS: Final = frozenset(BundleWord)

_Bundle = Annotated[str, Path(description="A bundle's range, such as 0x00000000_0x40000000.")]


def router(operations: Operations) -> APIRouter:
    """The routes of bundles."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/namespaces", tags=["bundles"])
    _add_reads(routes, operations)
    _add_changes(routes, operations)
    return routes


def edges_of(ranges: Iterable[str]) -> list[str]:
    """Boundaries of ranges that follow one another."""
    pairs = [text.partition("_") for text in ranges]
    return [pairs[0][0], *(upper for _, _, upper in pairs)]


def bundles_data(operations: Operations, home: Namespace) -> BundlesData:
    """The ends of a namespace's bundles. Raises NotFoundError."""
    ranges = [part for part, _ in operations.bundles(home)]
    return BundlesData(boundaries=edges_of(ranges), numBundles=len(ranges))


def _add_reads(routes: APIRouter, operations: Operations) -> None:
    @routes.get(
        "/{tenant}/{namespace}/bundles",
        dependencies=[Marked],
        responses=problems(404, 412),
    )
    async def get_bundles(home: Home) -> BundlesData:
        """The ends of a namespace's bundles."""
        return bundles_data(operations, home)

    @routes.get(
        "/{tenant}/{namespace}/bundles/ownership",
        dependencies=[Marked],
        responses=problems(404, 412),
    )
    async def get_bundle_ownership(home: Home) -> NamespaceOwnership:
        """Every bundle with its owner and state (Anabranch's own; Pulsar has no such path)."""
        return NamespaceOwnership(
            namespace=home,
            bundles=[
                BundleOwnership(
                    bundle=part,
                    state=unit.state.name,
                    broker=unit.broker,
                    source=unit.source,
                    version=unit.version,
                    sinceMillis=unit.since_ms,
                    sinceOffset=unit.since_offset,
                )
                for part, unit in operations.bundles(home)
            ],
        )

    @routes.get(
        "/{tenant}/{namespace}/{bundle}/topicHashPositions",
        dependencies=[Marked],
        responses=problems(404, 412),
    )
    async def get_topic_hash_positions(
        home: Home,
        bundle: _Bundle,
        topics: Annotated[
            list[str] | None, Query(description="Topics, by full or local name; may be repeated.")
        ] = None,
    ) -> TopicHashPositions:
        """The positions of an owned bundle's topics on the ring; those of other bundles are left
        out.

        Names have to be given: topics are not kept on record in this version.
        """
        part = parse_range(bundle)
        _check_owned(operations, home, str(part))
        positions = {topic: topic_hash(topic) for topic in _full_names(home, topics or [])}
        return TopicHashPositions(
            namespace=home,
            bundle=str(part),
            topicHashPositions={name: at for name, at in positions.items() if at in part},
        )


def _check_owned(operations: Operations, home: Namespace, part: str) -> None:
    for found, unit in operations.bundles(home):
        if found == part:
            if unit.state in (UnitState.FREE, UnitState.ASSIGNING):
                raise PreconditionError(
                    f"Failed to find ownership for ServiceUnit:{home}/{part}: look up one of its "
                    "topics first"
                )
            return
    raise PreconditionError(
        f"Cannot find bundle {part} in the bundles list of {home}; GET .../bundles lists them"
    )


def _full_names(home: Namespace, topics: list[str]) -> list[Topic]:
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


def _add_changes(routes: APIRouter, operations: Operations) -> None:
    @routes.put(
        "/{tenant}/{namespace}/unload",
        status_code=204,
        responses=problems(404, 409, 412, 503, 504),
    )
    async def unload_namespace(home: Home, authoritative: Authoritative = False) -> Response:
        """Takes every bundle of a namespace from its owner; the next look-ups assign them."""
        await operations.unload_namespace(home)
        return Response(status_code=204)

    @routes.put(
        "/{tenant}/{namespace}/{bundle}/unload",
        status_code=204,
        responses=problems(404, 409, 412, 503, 504),
    )
    async def unload_bundle(
        home: Home,
        bundle: _Bundle,
        destinationBroker: Annotated[
            str,
            Query(description="Broker id, host:port, that shall own it; if left, the next asked."),
        ] = "",
        authoritative: Authoritative = False,
    ) -> Response:
        """Takes a bundle from its owner, or transfers it. A free bundle counts as done."""
        unit = bundle_name(home, parse_range(bundle))
        await operations.unload(unit, broker_of(destinationBroker))
        return Response(status_code=204)

    @routes.put(
        "/{tenant}/{namespace}/{bundle}/split",
        status_code=204,
        responses=problems(400, 404, 409, 412, 503, 504),
    )
    async def split_bundle(
        home: Home,
        bundle: Annotated[
            str,
            Path(
                description="A bundle's range; or LARGEST, the one with the most scalable topics; "
                "or HOT, the one whose scalable topics have the most traffic."
            ),
        ],
        unload: Annotated[bool, Query(description="Also unload the children.")] = False,
        splitAlgorithmName: Annotated[
            str, Query(description=f"One of {', '.join(_ALGORITHMS)}.")
        ] = SplitAlgorithm.RANGE.value,
        positions: Annotated[
            Annotated[list[StrictInt], Field(fail_fast=True)] | None,
            Body(description=f"Positions to cut at; for {SplitAlgorithm.POSITIONS.value} only."),
        ] = None,
        authoritative: Authoritative = False,
    ) -> Response:
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
        return Response(status_code=204)


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


def broker_of(text: str) -> str:
    """A destination as Pulsar's clients give it, with or without the scheme."""
    plain = text.removeprefix("http://").removeprefix("https://").rstrip("/")
    return names.broker_id(plain) if plain else ""
