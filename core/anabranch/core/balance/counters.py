"""The balancer's counters: results and their reasons, in the spelling that metrics show."""

from __future__ import annotations

from collections.abc import Mapping
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


UNLOADS: Final[Mapping[BalanceResult, tuple[UnloadReason, ...]]] = {
    BalanceResult.SUCCESS: (
        UnloadReason.OVERLOADED,
        UnloadReason.UNDERLOADED,
        UnloadReason.ADMIN,
    ),
    BalanceResult.SKIP: (
        UnloadReason.HIT_COUNT,
        UnloadReason.NO_BUNDLES,
        UnloadReason.COOL_DOWN,
        UnloadReason.OUT_DATED_DATA,
        UnloadReason.NO_LOAD_DATA,
        UnloadReason.NO_BROKERS,
        UnloadReason.UNKNOWN,
    ),
    BalanceResult.FAILURE: (UnloadReason.UNKNOWN,),
}
"""Every pair that is counted for unloads; all begin at 0, and there are no others."""

SPLITS: Final[Mapping[BalanceResult, tuple[SplitReason, ...]]] = {
    BalanceResult.SUCCESS: (
        SplitReason.TOPICS,
        SplitReason.SESSIONS,
        SplitReason.MSG_RATE,
        SplitReason.BANDWIDTH,
        SplitReason.ADMIN,
    ),
    BalanceResult.FAILURE: (SplitReason.UNKNOWN,),
}
"""The same for splits."""

ASSIGNMENTS: Final = (BalanceResult.SUCCESS, BalanceResult.SKIP, BalanceResult.FAILURE)
"""A broker was chosen for a free unit, the unit had one already, the look-up ended in an error."""
