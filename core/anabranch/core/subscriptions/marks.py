"""The owner of a position that Kafka has of a subscription's group: each says so in its metadata.

A group keeps its name after its subscription is put somewhere else, and Kafka lets anybody commit
to a group without members. So a commit for a subscription also names the life of the subscription:
the log offset that created it, or reset it last. A commit with another mark, or none, is a late one
from before a reset, or a stranger's, and is not believed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MARK: Final = "anabranch "
_KEPT: Final = " kept"


class CommittedPosition(NamedTuple):
    """Kafka's position of a group in one partition; `mark`: its metadata."""

    offset: int
    mark: str = ""


def mark_of(created_offset: int) -> str:
    """The mark that a consumer writes with its positions.

    >>> mark_of(57)
    'anabranch 57'
    """
    return f"{MARK}{created_offset}"


def kept_mark(created_offset: int) -> str:
    """The mark that a controller writes with a position from the log, for others to see.

    No consumer begins at it, so a late one does no lasting harm.

    >>> kept_mark(57)
    'anabranch 57 kept'
    """
    return f"{mark_of(created_offset)}{_KEPT}"
