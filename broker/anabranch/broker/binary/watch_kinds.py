"""The two kinds of watches of a namespace's topics, by their commands and their subjects."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from anabranch.core.topic_lists.selection import Selection, by_properties, check_filters
from anabranch.wire.anabranch_pb2 import BaseCommand, CommandWatchScalableTopics


class WatchKind(Enum):
    """The commands that open and tell a watch; each kind has numbers of its own."""

    TOPIC_LIST = auto()  # 64 to 67
    SCALABLE_TOPICS = auto()  # 76 to 78


WATCH_OPENERS: Final = {
    WatchKind.TOPIC_LIST: BaseCommand.WATCH_TOPIC_LIST,
    WatchKind.SCALABLE_TOPICS: BaseCommand.WATCH_SCALABLE_TOPICS,
}


def selection_of(asked: CommandWatchScalableTopics) -> Selection:
    """The topics that a watch of scalable topics is for. Raises InvalidInputError."""
    check_filters(len(asked.property_filters))  # of a stranger there may be a million
    return by_properties((each.key, each.value) for each in asked.property_filters)
