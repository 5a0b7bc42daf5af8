"""The load balancer: how things stand, what it would do, and what it has done."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, path


class BrokerLoadStats(Answer, frozen=True):
    """A broker's load as it was reported; None where nothing was."""

    broker_id: str
    load: float | None  # the average that decisions are made by; 1 is all of a resource
    msg_throughput: float | None  # bytes a second, in and out
    msg_rate: float | None
    bundles: int | None
    topics: int | None
    updated_millis: int | None
    reported_bundles: int  # of which the leader was told
    ignored: str  # why this load takes no part; empty if it does


class UnmovedBundle(Answer, frozen=True):
    """A bundle that was reported, and is not offered."""

    bundle: str
    reason: str
    why: str
    setting: str  # by which it could be otherwise; empty for none


class ExchangeStats(Answer, frozen=True):
    """Two brokers, the more loaded one first, and what they would exchange, in bytes a second."""

    source: str
    destination: str
    wanted: float
    moved: float
    stopped: str  # why not more
    why: str
    next_bundle: str  # the one that it stopped at; empty for none
    unmoved: list[UnmovedBundle]


class UnloadStats(Answer, frozen=True):
    """A bundle that would be moved; `deviation`, `predicted`: of the loads, before and after."""

    bundle: str
    source: str
    destination: str  # empty: whoever the next look-up finds
    reason: str
    deviation: float
    predicted: float


class CycleStats(Answer, frozen=True):
    """One cycle of shedding."""

    ended: str  # why it does no more
    why: str
    setting: str  # by which it could be otherwise; empty for none
    condition: str | None  # why there is something to do
    counted: str | None  # as what metrics count it if it moves nothing
    hits: int  # cycles in a row with a condition, after this one
    average: float | None
    deviation: float | None
    predicted: float | None
    awaited: list[str]  # brokers whose next report it waits for
    thresholds: str  # that hold in place of the settings, and why; empty for none
    strategy: str  # of your own, that decided; empty for the built-in one
    fault: str  # why the strategy that is set did not decide; empty if it did
    exchanges: list[ExchangeStats]
    unloads: list[UnloadStats]


class BalanceOutlook(Answer, frozen=True):
    """How things stand with the brokers' loads, and what the leader would do."""

    leader: str
    at_millis: int
    next_cycle_millis: int | None
    settings: dict[str, bool | int | float | str]
    average: float | None
    deviation: float | None
    hits: int  # cycles in a row with a condition so far
    prevented: str  # why there is no cycle; empty if there is
    brokers: list[BrokerLoadStats]
    cycles: list[CycleStats]  # the next one; none where it is prevented


class AutomaticMoveStats(Answer, frozen=True):
    """A move or split that the balancer decided on by itself."""

    offset: int  # in the log
    timestamp_millis: int
    move: str  # RELEASE or SPLIT
    bundle: str
    to: str  # the next owner, empty for whoever a look-up finds; or the parts
    reason: str
    deviation: float | None  # of the loads, when it was decided
    predicted: float | None  # as it should be after this one
    rule: str  # with the strategy and the thresholds, where these are not the built-in or set ones
    observed: float | None  # as the next cycle that moved anything has found it


class BalanceHistoryStats(Answer, frozen=True):
    """The newest of them that a node has read, the oldest first."""

    since_offset: int  # of what is before it in the log nothing is known there
    moves: list[AutomaticMoveStats]


_OUTLOOK: Final = msgspec.json.Decoder(BalanceOutlook).decode
_HISTORY: Final = msgspec.json.Decoder(BalanceHistoryStats).decode


class BalanceQuestions(Resource[TransportT]):
    """Questions to the load balancer. The leader answers them, and any node what was done."""

    @RestMethod
    def get_outlook(self) -> Call[BalanceOutlook]:
        """Brokers' loads, their deviation, and what the next cycle would do."""
        return Call("GET", path("admin", "v2", "balance"), _OUTLOOK)

    @RestMethod
    def get_history(self, limit: int = 100) -> Call[BalanceHistoryStats]:
        """What was moved and split, and what came of it, as the node that is asked has read it."""
        return Call(
            "GET", path("admin", "v2", "balance", "history"), _HISTORY, {"limit": str(limit)}
        )
