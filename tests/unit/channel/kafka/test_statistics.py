"""Which clients of Kafka are told statistics, and what those keep that nobody polls."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.channel.errors import BrokersForgottenError
from anabranch.channel.kafka import connection
from anabranch.channel.kafka.connection import KafkaConnection
from support.waiting import until


async def test_a_client_that_nobody_polls_keeps_no_statistics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_STATISTICS_MS", 10)
    nowhere = KafkaConnection("127.0.0.1:1")
    idle, polled = nowhere.producer(), nowhere.producer(is_polled=True)

    # Events that wait to be polled are counted: without a broker, errors and statistics.
    await until(lambda: len(polled) > 50)
    assert 3 * len(idle) < len(polled)


def test_a_client_that_is_polled_is_known_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_STATISTICS_MS", 10)
    monkeypatch.setattr(connection, "_REAL", frozenset())  # as if there were no broker
    nowhere = KafkaConnection("127.0.0.1:1")
    client = nowhere.consumer(is_polled=True)

    def is_forgotten() -> bool:
        client.poll(0)
        try:
            nowhere.refusals.check()
        except BrokersForgottenError:
            return True
        return False

    asyncio.run(until(is_forgotten))
    client.close()
