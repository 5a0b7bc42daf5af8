"""Archives of the log: the registered ones; the cluster trims no record that one of them still
needs.

An archive is not a broker and has no session. Any program that may write to the log may register
one, and retire one that is gone for good. So the verdict on such a record depends on nothing but
the archive it names. A program that follows these records alone reaches the same state as a node.
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
    """The operations on an archive."""

    REGISTER = 0
    RETIRE = 1  # it is gone for good: nothing waits for it any more


class Archive(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An archive that the log is kept for.

    `first_offset`: its first offset of the log. Its consumer group's committed offset says its
    progress. `place`: its place, for people.
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
    """Tells whether the id is valid: 1 to 100 letters, digits and . _ - after the first."""
    return _ID.fullmatch(text) is not None


def is_archive_place(first_offset: int, place: str) -> bool:
    """Says if an archive may begin at this offset of the log, and be at this place."""
    return first_offset >= 0 and len(place) <= _PLACE_MAX
