"""A subscription of an adopted topic begins where a group of Kafka's has come to.

The group must be empty at two looks, with the same positions, so that no message is worked on twice
and none is left out. Nothing is committed in its name, and nothing of it is deleted.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final

import msgspec

from anabranch.broker.errors import ConflictError, PreconditionError
from anabranch.broker.logging import get_logger
from anabranch.broker.topics.controllers.access import TopicAccess
from anabranch.broker.topics.subscriptions.groups import StartPositions, beginning, written_parts
from anabranch.broker.topics.subscriptions.positions import Positions
from anabranch.broker.topics.subscriptions.queue_positions import KafkaPositions
from anabranch.channel.kafka.offsets import EARLIEST, LATEST, Place
from anabranch.core.names import full_name

_KAFKA_S: Final = 10.0
_LOOKS: Final = 2


@unique
class Missing(StrEnum):
    """The beginning in partitions for which the group has no position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    REFUSE = "refuse"  # Kafka does not know the group's own `auto.offset.reset`


class FromGroup(msgspec.Struct, frozen=True):
    """A group of Kafka's, in whose place a subscription begins."""

    group: str
    missing: Missing = Missing.REFUSE


async def taken_over(
    access: TopicAccess, positions: Positions, name: str, start: FromGroup
) -> StartPositions:
    """The group's positions in the Kafka topic that was adopted, clipped to what is there.

    Raises PreconditionError for a topic that was not adopted, and for missing positions if these
    are to be refused; ConflictError while the group has members; KafkaFailedError and
    UnavailableError.
    """
    group, missing = start.group, start.missing
    topic = access.topic(name)
    parts = written_parts(access.service.prefix, name, topic)
    places = [place for part in parts if part.segment.is_legacy for place in part.places()]
    if not places:
        raise PreconditionError(
            f"{full_name(name)} has no adopted Kafka topic, or not any more, so no group of Kafka "
            "has positions in it: give a time to begin at"
        )
    at, again = [
        await positions.ask(lambda keeper, s: _committed(keeper, group, places, s), _KAFKA_S)
        for _ in range(_LOOKS)
    ]
    if at != again:
        raise ConflictError(f"group {group} still moves: stop its consumers, and try again")
    unknown = [place for place in places if place not in at]
    if unknown and missing is Missing.REFUSE:
        raise PreconditionError(
            f"group {group} has no position in {len(unknown)} of {len(places)} partitions of "
            f"{places[0][0]}: say whether it begins at the earliest or the latest message there"
        )
    first, last = await positions.ask(lambda keeper, s: _bounds(keeper, places, s), _KAFKA_S)
    gone = sum(max(0, first[place] - at.get(place, first[place])) for place in places)
    beyond = sum(at.get(place, 0) > last[place] for place in places)
    for part in parts:
        begun = zip(part.places(), part.segment.start_offsets, strict=False)
        if any(at.get(place, begin) < begin for place, begin in begun):
            raise PreconditionError(
                f"group {group} has yet to read what {places[0][0]} held before it was cut over "
                "and given back, which is in no segment any more: let its consumers read that first"
            )
    for place in places:
        if place in at:
            at[place] = min(max(at[place], first[place]), last[place])
        else:
            at[place] = last[place] if missing is Missing.LATEST else first[place]
    get_logger(broker=access.runtime.core.me).info(
        "subscription.taken_over",
        topic=name,
        group=group,
        missing=len(unknown),
        gone=gone,
        beyond=beyond,
    )
    return beginning(topic, parts, at)


def _bounds(
    keeper: KafkaPositions, places: list[Place], seconds: float
) -> tuple[dict[Place, int], dict[Place, int]]:
    first = keeper.offsets(places, EARLIEST, seconds / 2)
    return first, keeper.offsets(places, LATEST, seconds / 2)


def _committed(
    keeper: KafkaPositions, group: str, places: list[Place], seconds: float
) -> dict[Place, int]:
    """Raises ConflictError while the group has members."""
    if keeper.has_members(group, seconds / 2):
        raise ConflictError(
            f"group {group} has members: stop its consumers first, because two readers of one "
            "topic would both work on what follows"
        )
    found = keeper.committed(group, places, seconds / 2)
    return {place: each.offset for place, each in found.items()}
