"""The result of a check, in a form that adds up over the parts of a divided replay."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Final

import msgspec

WITNESSES_MAX: Final = 5  # the first few show the fault; a million would hide it


@unique
class CheckName(StrEnum):
    """The checks, in the order of the report."""

    OFFSETS = "offsets"
    VERSIONS = "versions"
    OWNERSHIP = "ownership"
    LEASES = "leases"
    LEADERSHIP = "leadership"
    PERMISSIONS = "permissions"
    COVERAGE = "coverage"
    LAYOUTS = "layouts"
    SEALS = "seals"
    DRAINING = "draining"
    ADOPTION = "adoption"
    STUCK = "stuck"
    ORPHANS = "orphans"
    PLACEMENT = "placement"
    BALANCE = "balance"
    SETTINGS = "settings"
    SEGMENTS = "segments"
    ORDER = "order"
    SNAPSHOT = "snapshot"
    DIGESTS = "digests"


class Witness(msgspec.Struct, frozen=True, order=True):
    """One violation: its place in the log, and the fault in words."""

    offset: int
    text: str


class CheckTally(msgspec.Struct):
    """The counts of a check's looks and violations. It keeps the earliest witnesses."""

    examined: int = 0
    violated: int = 0
    witnesses: list[Witness] = []

    def violate(self, offset: int, text: str) -> None:
        """Adds a violation that shows at `offset`."""
        self.violated += 1
        if len(self.witnesses) < WITNESSES_MAX:
            self.witnesses.append(Witness(offset, text))

    def __add__(self, other: CheckTally) -> CheckTally:
        witnesses = sorted([*self.witnesses, *other.witnesses])[:WITNESSES_MAX]
        return CheckTally(self.examined + other.examined, self.violated + other.violated, witnesses)


def total(tallies: Iterable[CheckTally]) -> CheckTally:
    """Returns the sum of a check's tallies over all parts."""
    result = CheckTally()
    for tally in tallies:
        result = result + tally
    return result
