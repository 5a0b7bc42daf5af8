"""Archives of the log: which there are, so that nothing is trimmed that one of them still needs.

An archive is not a broker and has no session: whoever may write to the log may register one, and
retire one that is gone for good. So the verdict on such a record depends on nothing but the archive
it names, and a program that follows these records alone reaches the same state as a node.
"""

from __future__ import annotations

import re
from enum import IntEnum, unique
from typing import Final

import msgspec

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLACE_MAX: Final = 1_000


@unique
class ArchiveOp(IntEnum):
    """What happens to an archive."""

    REGISTER = 0
    RETIRE = 1  # it is gone for good: nothing waits for it any more


class Archive(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An archive that the log is kept for.

    `first_offset`: where it begins; how far it has got is its consumer group's committed offset.
    `place`: where it is, for people.
    """

    version: int
    first_offset: int
    place: str
    since_ms: int
    proposal_id: str


def archive_key(archive: str) -> str:
    """Log and store key of an archive."""
    return f"archive:{archive}"


def is_archive_id(text: str) -> bool:
    """Whether an archive may have this id: 1 to 100 letters, digits and . _ - after the first."""
    return _ID.fullmatch(text) is not None


def is_archive_place(first_offset: int, place: str) -> bool:
    """Says if an archive may begin at this offset of the log, and be at this place."""
    return first_offset >= 0 and len(place) <= _PLACE_MAX
