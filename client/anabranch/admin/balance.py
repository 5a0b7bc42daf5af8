"""The load balancer: how things stand, and what it would do."""

from __future__ import annotations

from collections.abc import Mapping
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
    exchanges: list[ExchangeStats]
    unloads: list[UnloadStats]


class BalanceOutlook(Answer, frozen=True):
    """How things stand with the brokers' loads, and what the leader would do."""

    leader: str
    at_millis: int
    next_cycle_millis: int | None
    settings: dict[str, bool | int | float | str]
    changed: dict[str, bool | int | float | str]  # what the leader itself has, where that differs
    average: float | None
    deviation: float | None
    hits: int  # cycles in a row with a condition so far
    prevented: str  # why there is no cycle at all; empty if there are
    brokers: list[BrokerLoadStats]
    cycles: list[CycleStats]


_OUTLOOK: Final = msgspec.json.Decoder(BalanceOutlook).decode


class BalanceQuestions(Resource[TransportT]):
    """Questions to the load balancer. The leader answers them."""

    @RestMethod
    def get_outlook(self) -> Call[BalanceOutlook]:
        """Brokers' loads, their deviation, and what the next cycle would do."""
        return Call("GET", path("admin", "v2", "balance"), _OUTLOOK)

    @RestMethod
    def plan(self, settings: Mapping[str, object], cycles: int = 1) -> Call[BalanceOutlook]:
        """The same for some cycles, with these settings in place of the leader's.

        They have the names, and take the values, that a node's settings have. Nothing is done.
        """
        query = {"cycles": str(cycles)}
        return Call("POST", path("admin", "v2", "balance", "plan"), _OUTLOOK, query, dict(settings))
