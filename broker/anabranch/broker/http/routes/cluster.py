"""The cluster: overridden settings, and the load balancer."""

from __future__ import annotations

import msgspec

from anabranch import admin
from anabranch.broker.balance.shown import ShownBalance
from anabranch.broker.configuration import Configuration
from anabranch.broker.http.routing import RouteGroup
from anabranch.broker.operations import Operations
from anabranch.broker.settings.fields import text_of
from anabranch.core.balance.broker_load import FRESH
from anabranch.core.balance.offload import Exchange
from anabranch.core.balance.shedding import Round
from anabranch.core.balancer import Outlook, SeenBroker


def routes(operations: Operations) -> RouteGroup:
    """The routes of both."""
    found = RouteGroup("cluster", "/admin/v2")
    _configuration(found, operations.configuration)
    _balance(found, operations.balance)
    return found


def _configuration(routes: RouteGroup, configuration: Configuration) -> None:
    path = "/brokers/configuration"

    @routes.get(f"{path}/overrides")
    async def get_overrides() -> dict[str, admin.SettingOverrideData]:
        """The overrides with their former values, times and brokers (Anabranch's own)."""
        return {
            each.name: admin.SettingOverrideData(
                value=each.override.value,
                before=each.override.before[0] if each.override.before else None,
                since_ms=each.override.since_ms,
                broker=each.override.broker,
                ignored=each.ignored,
            )
            for each in configuration.overrides()
        }

    @routes.get(f"{path}/runtime")
    async def get_settings() -> dict[str, str]:
        """The settings that this node goes by at this moment, as text."""
        values = configuration.current.now.by_name()
        return {name: text_of(value) for name, value in values.items() if value is not None}

    @routes.post(f"{path}/{{setting}}/{{value:text}}")  # slashes may stand as they are
    async def change_setting(setting: str, value: str) -> None:
        """Overrides a setting for all nodes, at once."""
        await configuration.override(setting, value)

    @routes.delete(f"{path}/{{setting}}")
    async def reset_setting(setting: str) -> None:
        """Lets every node go by its own setting again."""
        await configuration.withdraw(setting)


def _balance(routes: RouteGroup, shown: ShownBalance) -> None:
    @routes.get("/balance")
    async def get_outlook() -> admin.BalanceOutlook:
        """Brokers' loads, their deviation, and the next cycle's moves."""
        return _outlook(shown.outlook())


def _outlook(found: Outlook) -> admin.BalanceOutlook:
    settings = {
        name: ",".join(value) if isinstance(value, list | tuple) else value
        for name, value in msgspec.to_builtins(found.settings).items()
        if value is not None
    }
    return admin.BalanceOutlook(
        leader=found.leader,
        at_millis=found.at_ms,
        next_cycle_millis=None if found.due_in_s is None else round(found.due_in_s * 1000),
        settings=settings,
        average=found.average,
        deviation=found.std,
        hits=found.hits,
        prevented=found.prevented.value if found.prevented else "",
        brokers=[_broker(each) for each in found.brokers],
        cycles=[] if found.cycle is None else [_cycle(found.cycle)],
    )


def _broker(seen: SeenBroker) -> admin.BrokerLoadStats:
    known = seen.load is not None
    load = seen.load or FRESH
    return admin.BrokerLoadStats(
        broker_id=seen.broker,
        load=load.weighted_max_ema if known else None,
        msg_throughput=load.msg_throughput if known else None,
        msg_rate=load.msg_rate if known else None,
        bundles=load.bundle_count if known else None,
        topics=load.topics if known else None,
        updated_millis=load.updated_at_ms if known else None,
        reported_bundles=seen.reported,
        ignored=seen.ignored,
    )


def _cycle(found: Round) -> admin.CycleStats:
    return admin.CycleStats(
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
            admin.UnloadStats(
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


def _exchange(exchange: Exchange) -> admin.ExchangeStats:
    return admin.ExchangeStats(
        source=exchange.source,
        destination=exchange.destination,
        wanted=exchange.wanted,
        moved=exchange.moved,
        stopped=exchange.stopped.name,
        why=exchange.stopped.value,
        next_bundle=exchange.next_bundle,
        unmoved=[
            admin.UnmovedBundle(bundle, why.name, why.value, why.setting)
            for bundle, why in exchange.unmoved
        ],
    )
