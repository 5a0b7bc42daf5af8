"""Brokers' loads and their top bundles on Kafka: the two topics between the nodes.

Every node reads the brokers' loads, the leader alone reads the top bundles; both are keyed by
broker. Both are soft state (`soft_state`).
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.channel.balance_records import BrokerLoadRecord, TopBundlesRecord
from anabranch.channel.codec import (
    broker_load_header,
    decode_broker_load,
    decode_top_bundles,
    encode_broker_load,
    encode_top_bundles,
    top_bundles_header,
)
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.channel.load.soft_state import Header, SoftStateTopic
from anabranch.core.errors import InvalidInputError
from anabranch.core.names import broker_id

BrokerLoadChange = tuple[str, BrokerLoadRecord | None]  # None: it was taken away
TopBundlesChange = tuple[str, TopBundlesRecord | None]


class KafkaBrokerLoads(SoftStateTopic[BrokerLoadRecord, BrokerLoadChange]):
    """Brokers' loads: every node reads all, and writes its own; the leader takes away old ones."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        super().__init__(connection, topics.broker_load, "broker_load")

    def write(self, records: Mapping[str, BrokerLoadRecord | None]) -> None:
        """Has them written soon, by broker; None takes one away. Never blocks."""
        self.write_keys(records)

    def _encoded(self, record: BrokerLoadRecord) -> tuple[bytes, Header]:
        return encode_broker_load(record), broker_load_header(record)

    def _decoded(self, key: str, value: bytes | None, written_ms: int) -> BrokerLoadChange | None:
        if not _is_broker(key):
            return None
        return key, None if value is None else decode_broker_load(value)


class KafkaTopBundles(SoftStateTopic[TopBundlesRecord, TopBundlesChange]):
    """Brokers' top bundles: every node writes its own, and only who leads sets `follows`."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        super().__init__(connection, topics.top_bundles, "top_bundles", follows=False)

    def write(self, records: Mapping[str, TopBundlesRecord | None]) -> None:
        """Has them written soon, by broker; None takes them away. Never blocks."""
        self.write_keys(records)

    def _encoded(self, record: TopBundlesRecord) -> tuple[bytes, Header]:
        return encode_top_bundles(record), top_bundles_header(record)

    def _decoded(self, key: str, value: bytes | None, written_ms: int) -> TopBundlesChange | None:
        if not _is_broker(key):
            return None
        return key, None if value is None else decode_top_bundles(value)


def _is_broker(key: str) -> bool:
    try:
        broker_id(key)
    except InvalidInputError:
        return False
    return True
