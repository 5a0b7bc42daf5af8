"""Loads of brokers and bundles, and where a node reads and writes them, without a Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.channel.balance_records import broker_load_record, top_bundles_record
from anabranch.core.balance.broker_load import (
    NOTHING_USED,
    BrokerLoadData,
    Resources,
    ResourceUsage,
)
from anabranch.core.balance.bundle_load import BundleLoad, TopBundlesLoadData
from anabranch.core.names import Namespace, parse_topic
from support.memory_cluster import MemoryNode


class Outbox:
    """Keeps what is written, by broker; for loads and for top bundles."""

    def __init__(self) -> None:
        self.follows = False
        self.written: list[tuple[str, Any]] = []

    def write(self, records: Mapping[str, Any]) -> None:
        self.written += records.items()

    def newest(self) -> dict[str, Any]:
        """What a reader would have."""
        return {key: record for key, record in dict(self.written).items() if record is not None}


def use(cpu: float) -> Resources:
    """A node that uses so many percent of its processor."""
    nothing = NOTHING_USED
    return Resources(ResourceUsage(cpu, 100.0), nothing, nothing, nothing, nothing)


def tell(node: MemoryNode, loads: Mapping[str, float], top: Mapping[str, tuple[str, ...]]) -> None:
    """Everybody's load, and the bundles of the loaded ones, as this node reads them."""
    at_ms, board = node.runtime.core.log_ms, node.operations.balance.board
    for broker, load in loads.items():
        told = BrokerLoadData(
            msg_throughput_in=1e6 * load,
            msg_throughput_ema=1e6 * load,
            weighted_max_ema=load,
            updated_at_ms=at_ms,
        )
        board.take([(broker, broker_load_record(told))])
        share = BundleLoad(msg_throughput_in=1e6 * load / max(1, len(top.get(broker, ()))))
        report = TopBundlesLoadData(tuple((b, share) for b in top.get(broker, ())), at_ms)
        board.take_top([(broker, top_bundles_record(report))])


async def give_all(node: MemoryNode, home: Namespace, bundles: int) -> tuple[str, ...]:
    """Makes a namespace, all of whose bundles come to belong to the node."""
    operations = node.operations
    await operations.tenancy.create_namespace(home, bundles)
    for number in range(bundles * 5):
        topic, _ = parse_topic(f"persistent://{home}/t{number}")
        await operations.lookups.lookup(topic, home)
    names = tuple(f"{home}/{part}" for part, _ in operations.bundles(home))
    for name in names:
        await operations.unload(name, node.id)
    return names
