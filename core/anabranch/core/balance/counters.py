"""The balancer's counters: results and their reasons, in the spelling that metrics show."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final


@unique
class BalanceResult(StrEnum):
    """The result of a round, or of one decision."""

    SUCCESS = "Success"
    SKIP = "Skip"
    FAILURE = "Failure"


@unique
class UnloadReason(StrEnum):
    """Why bundles were unloaded, or why not."""

    OVERLOADED = "Overloaded"
    UNDERLOADED = "Underloaded"
    ADMIN = "Admin"
    HIT_COUNT = "HitCount"
    NO_BUNDLES = "NoBundles"
    COOL_DOWN = "CoolDown"
    OUT_DATED_DATA = "OutDatedData"
    NO_LOAD_DATA = "NoLoadData"
    NO_BROKERS = "NoBrokers"
    UNKNOWN = "Unknown"


@unique
class SplitReason(StrEnum):
    """Why a bundle was split, or why not."""

    TOPICS = "Topics"
    SESSIONS = "Sessions"
    MSG_RATE = "MsgRate"
    BANDWIDTH = "Bandwidth"
    ADMIN = "Admin"
    UNKNOWN = "Unknown"


_DONE, _SKIPPED, _FAILED = BalanceResult
_REASONS: Final = tuple(UnloadReason)

UNLOADS: Final = (
    *((_DONE, reason) for reason in _REASONS[:3]),
    *((_SKIPPED, reason) for reason in _REASONS[3:]),
    (_FAILED, UnloadReason.UNKNOWN),
)
"""Every pair that is counted for unloads; all begin at 0, and there are no others."""

SPLITS: Final = (
    *((_DONE, reason) for reason in SplitReason if reason is not SplitReason.UNKNOWN),
    (_FAILED, SplitReason.UNKNOWN),
)
"""The same for splits."""

ASSIGNMENTS: Final = (_DONE, _SKIPPED, _FAILED)
"""A broker was chosen for a free unit, the unit had one already, the look-up ended in an error."""
