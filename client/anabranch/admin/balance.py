"""The load balancer: the loads of brokers, its next cycle, and its past moves."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.admin.calls import Answer, Call, Resource, RestMethod, TransportT, path


class BrokerLoadStats(Answer, frozen=True):
    """A broker's load as it was reported. None means that the broker reported nothing."""

    broker_id: str
    load: float | None  # the average that decisions are made by; 1 is all of a resource
    msg_throughput: float | None  # bytes a second, in and out
    msg_rate: float | None
    bundles: int | None
    topics: int | None
    updated_millis: int | None
    reported_bundles: int  # the number that the leader was told of
    ignored: str  # why this load takes no part; empty if it does


class UnmovedBundle(Answer, frozen=True):
    """A bundle that was reported but is not offered to another broker."""

    bundle: str
    reason: str
    why: str
    setting: str  # the one that could change this; empty for none


class ExchangeStats(Answer, frozen=True):
    """Two brokers, the more loaded one first, and the load that they would exchange, in bytes a
    second.
    """

    source: str
    destination: str
    wanted: float
    moved: float
    stopped: str  # why not more
    why: str
    next_bundle: str  # the one that it stopped at; empty for none
    unmoved: list[UnmovedBundle]


class UnloadStats(Answer, frozen=True):
    """A bundle that would be moved.
    `deviation` is that of the loads before the move, `predicted` after it.
    """

    bundle: str
    source: str
    destination: str  # empty: the broker that the next look-up finds
    reason: str
    deviation: float
    predicted: float


class CycleStats(Answer, frozen=True):
    """One cycle of shedding."""

    ended: str  # why it does no more
    why: str
    setting: str  # the one that could change this; empty for none
    condition: str | None  # why there is something to do
    counted: str | None  # the name in the metrics if it moves nothing
    hits: int  # cycles in a row with a condition, after this one
    average: float | None
    deviation: float | None
    predicted: float | None
    awaited: list[str]  # brokers whose next report it waits for
    thresholds: str  # those in place of the settings, with the reason; empty for none
    strategy: str  # your own one that decided; empty for the built-in one
    fault: str  # why the strategy that is set did not decide; empty if it did
    exchanges: list[ExchangeStats]
    unloads: list[UnloadStats]


class BalanceOutlook(Answer, frozen=True):
    """The brokers' loads, and the leader's next cycle."""

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
    deviation: float | None  # that of the loads at the decision
    predicted: float | None  # the deviation expected after this move
    rule: str  # with the strategy and the thresholds, where these are not the built-in or set ones
    observed: float | None  # the deviation that the next cycle with a move has found


class BalanceHistoryStats(Answer, frozen=True):
    """The newest automatic moves that a node has read, the oldest of them first."""

    since_offset: int  # the node knows nothing from before it in the log
    moves: list[AutomaticMoveStats]


_OUTLOOK: Final = msgspec.json.Decoder(BalanceOutlook).decode
_HISTORY: Final = msgspec.json.Decoder(BalanceHistoryStats).decode


class BalanceQuestions(Resource[TransportT]):
    """Questions to the load balancer.
    The leader answers for the outlook, any node for the history.
    """

    @RestMethod
    def get_outlook(self) -> Call[BalanceOutlook]:
        """Returns the brokers' loads, their deviation, and what the next cycle would do."""
        return Call("GET", path("admin", "v2", "balance"), _OUTLOOK)

    @RestMethod
    def get_history(self, limit: int = 100) -> Call[BalanceHistoryStats]:
        """Returns the newest automatic moves and splits with their results, as the asked node has
        read them. `limit` bounds their number.
        """
        return Call(
            "GET", path("admin", "v2", "balance", "history"), _HISTORY, {"limit": str(limit)}
        )
