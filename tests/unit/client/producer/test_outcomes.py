"""Who is told what became of messages, and what is logged when telling them fails."""

from __future__ import annotations

import logging

import pytest

from anabranch.client import DeliveryError, DeliveryResult
from anabranch.client._producer.messages import Callbacks
from anabranch.client._producer.partition_writer import PendingMessage


def test_a_failing_callback_is_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """With Kafka down a producer logged 175 traces a second."""
    now = [100.0]
    callbacks = Callbacks("topic://public/default/orders", lambda: now[0])
    told = 0

    def careless(result: DeliveryResult | None, _: Exception | None) -> None:
        nonlocal told
        told += 1
        assert result is not None

    def fail(count: int) -> None:
        for _ in range(count):
            message = PendingMessage(b"key", b"value", on_delivery=careless)
            callbacks.failed(message, DeliveryError("Kafka is down"))
            callbacks.tell()

    with caplog.at_level(logging.ERROR):
        fail(175)
        now[0] += 1.0
        fail(175)
    assert told == 350
    records = [each for each in caplog.records if each.name == Callbacks.__module__]
    assert [record.__dict__["fields"]["times"] for record in records] == [1, 175]
    assert all(record.exc_info for record in records)
