"""The fold's answer to a record."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.core.log.records import Record
from anabranch.core.log.state import Change
from anabranch.core.log.verdicts import Verdict


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """A verdict and, if it is ACCEPTED, everything that changes with it."""

    verdict: Verdict
    changes: tuple[Change, ...] = ()


class Folded(msgspec.Struct, frozen=True, gc=False):
    """One log entry after it was read: its place, its record (None: unreadable) and the answer."""

    offset: int
    timestamp_ms: int
    record: Record | None
    outcome: Outcome


REJECTED: Final = {verdict: Outcome(verdict) for verdict in Verdict}
