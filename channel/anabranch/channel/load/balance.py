"""Brokers' loads and their top bundles on Kafka: the two topics between the nodes.

Every node reads the brokers' loads, the leader alone reads the top bundles; both are keyed by
broker. Both are soft state (`soft_state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from anabranch.channel.balance_records import BrokerLoadRecord, TopBundlesRecord
from anabranch.channel.codec import BROKER_LOADS, TOP_BUNDLES
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.soft_state import SoftStateTopic
from anabranch.core.names import broker_id, is_valid

_R = TypeVar("_R", bound=msgspec.Struct)
BrokerLoadChange = tuple[str, BrokerLoadRecord | None]  # None: it was taken away
TopBundlesChange = tuple[str, TopBundlesRecord | None]


class _ByBroker(SoftStateTopic[_R, tuple[str, _R | None]]):
    def write(self, records: Mapping[str, _R | None]) -> None:
        """Has them written soon, by broker; None takes one away. Never blocks."""
        self.write_keys(records)

    def _change(self, key: str, record: _R | None, written_ms: int) -> tuple[str, _R | None] | None:
        return (key, record) if is_valid(broker_id, key) else None


class KafkaBrokerLoads(_ByBroker[BrokerLoadRecord]):
    """Brokers' loads: every node reads all, and writes its own; the leader takes away old ones."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        super().__init__(connection, topics.broker_load, "broker_load", BROKER_LOADS)


class KafkaTopBundles(_ByBroker[TopBundlesRecord]):
    """Brokers' top bundles: every node writes its own, and only who leads sets `follows`."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        super().__init__(connection, topics.top_bundles, "top_bundles", TOP_BUNDLES, follows=False)
