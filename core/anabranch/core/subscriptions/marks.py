"""Whose a position is that Kafka has of a subscription's group: each says so in its metadata.

A group keeps its name when its subscription is put somewhere else, and Kafka lets anybody commit to
a group without members. So whoever commits for a subscription writes with the offset which life of
the subscription that is for: the log offset that created it, or reset it last. What says something
else, or nothing, is a late commit from before a reset, or a stranger's, and is not believed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MARK: Final = "anabranch "
_KEPT: Final = " kept"


class CommittedPosition(NamedTuple):
    """What Kafka has of one partition for a group; `mark`: its metadata."""

    offset: int
    mark: str = ""


def mark_of(created_offset: int) -> str:
    """What a consumer writes with its positions.

    >>> mark_of(57)
    'anabranch 57'
    """
    return f"{MARK}{created_offset}"


def kept_mark(created_offset: int) -> str:
    """What a controller writes with a position that is in the log: for others to see.

    No consumer begins at it, so one that comes late does no harm that lasts.

    >>> kept_mark(57)
    'anabranch 57 kept'
    """
    return f"{mark_of(created_offset)}{_KEPT}"
