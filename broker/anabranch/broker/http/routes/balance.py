"""The load balancer: its loads, its next step and its past ones (Anabranch's own)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query

from anabranch.broker.balance.shown import MOVES_MAX, ShownBalance
from anabranch.broker.http.errors import problems
from anabranch.broker.http.models.balance import (
    AutomaticMoveStats,
    BalanceHistoryStats,
    BalanceOutlook,
    BrokerLoadStats,
    CycleStats,
    ExchangeStats,
    UnloadStats,
    UnmovedBundle,
)
from anabranch.broker.http.routing import DecidingRoute, Marked
from anabranch.core.balance.broker_load import FRESH
from anabranch.core.balance.history import AutomaticMove
from anabranch.core.balance.offload import Exchange
from anabranch.core.balance.shedding import Round
from anabranch.core.balancer import Outlook, SeenBroker

_Newest = Annotated[
    int, Query(ge=1, le=MOVES_MAX, description="So many of the newest moves at most.")
]


def router(shown: ShownBalance) -> APIRouter:
    """All of them."""
    routes = APIRouter(route_class=DecidingRoute, prefix="/admin/v2/balance", tags=["balance"])

    @routes.get("", dependencies=[Marked], responses=problems(307, 503))
    async def get_outlook() -> BalanceOutlook:
        """Brokers' loads, their deviation, and the next cycle's moves."""
        return _outlook(shown.outlook())

    @routes.get("/history", dependencies=[Marked])
    async def get_history(limit: _Newest = 100) -> BalanceHistoryStats:
        """The latest moves and splits and their results, as this node has read them."""
        told = shown.newest(limit)
        return BalanceHistoryStats(
            sinceOffset=told.since_offset, moves=[_move(each) for each in told.moves]
        )

    return routes


def _move(done: AutomaticMove) -> AutomaticMoveStats:
    return AutomaticMoveStats(
        offset=done.offset,
        timestampMillis=done.timestamp_ms,
        move=done.move,
        bundle=done.bundle,
        to=done.to,
        reason=done.reason,
        deviation=done.deviation,
        predicted=done.predicted,
        rule=done.rule,
        observed=done.observed,
    )


def _outlook(found: Outlook) -> BalanceOutlook:
    settings = {
        name: ",".join(value) if isinstance(value, list | tuple) else value
        for name, value in msgspec.to_builtins(found.settings).items()
        if value is not None
    }
    return BalanceOutlook(
        leader=found.leader,
        atMillis=found.at_ms,
        nextCycleMillis=None if found.due_in_s is None else round(found.due_in_s * 1000),
        settings=settings,
        average=found.average,
        deviation=found.std,
        hits=found.hits,
        prevented=found.prevented.value if found.prevented else "",
        brokers=[_broker(each) for each in found.brokers],
        cycles=[] if found.cycle is None else [_cycle(found.cycle)],
    )


def _broker(seen: SeenBroker) -> BrokerLoadStats:
    known = seen.load is not None
    load = seen.load or FRESH
    return BrokerLoadStats(
        brokerId=seen.broker,
        load=load.weighted_max_ema if known else None,
        msgThroughput=load.msg_throughput if known else None,
        msgRate=load.msg_rate if known else None,
        bundles=load.bundle_count if known else None,
        topics=load.topics if known else None,
        updatedMillis=load.updated_at_ms if known else None,
        reportedBundles=seen.reported,
        ignored=seen.ignored,
    )


def _cycle(found: Round) -> CycleStats:
    return CycleStats(
        ended=found.ended.name,
        why=found.ended.value,
        setting=found.ended.setting,
        condition=found.condition.value if found.condition else None,
        counted=found.skipped.value if found.skipped else None,
        hits=found.hits,
        average=found.average,
        deviation=found.std,
        predicted=found.std_after,
        awaited=list(found.awaited),
        thresholds=found.thresholds,
        strategy=found.strategy,
        fault=found.fault,
        exchanges=[_exchange(each) for each in found.exchanges],
        unloads=[
            UnloadStats(
                bundle=each.bundle,
                source=each.source,
                destination=each.destination,
                reason=each.reason.value,
                deviation=each.std_before,
                predicted=each.std_after,
            )
            for each in found.decisions
        ],
    )


def _exchange(exchange: Exchange) -> ExchangeStats:
    return ExchangeStats(
        source=exchange.source,
        destination=exchange.destination,
        wanted=exchange.wanted,
        moved=exchange.moved,
        stopped=exchange.stopped.name,
        why=exchange.stopped.value,
        nextBundle=exchange.next_bundle,
        unmoved=[
            UnmovedBundle(bundle=bundle, reason=why.name, why=why.value, setting=why.setting)
            for bundle, why in exchange.unmoved
        ],
    )
