"""What the SDK is given wrongly is refused by name, before anything is connected or queued."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from confluent_kafka import Consumer

from anabranch.client import (
    CheckpointConsumer,
    Client,
    ConsumerSettings,
    LayoutWatch,
    ProducerSettings,
    QueueSettings,
    ReadSettings,
)
from anabranch.client._consumer.consumer import Membership
from anabranch.client._kafka_options import CONSUMER
from anabranch.client._producer.messages import event_time, header_pairs
from anabranch.client._topics.nodes import Nodes
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX
from support.still_watch import no_producer

_URL = "pulsar://127.0.0.1:1"


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ("security.protocol=ssl", "mapping"),
        ({5: "x"}, "5 cannot be set"),
        ({"acks": "0"}, "'acks' cannot be set"),
        ({"bootstrap.servers": "x:1"}, "cannot be set"),
        ({"client.id": None}, "NoneType"),
        ({"client.id": ["a"]}, "list"),
        ({"security.protocol": "telepathy"}, "security.protocol"),
        ({"ssl.no.such.thing": "x"}, "ssl.no.such.thing"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location"),
    ],
)
def test_kafka_properties_that_cannot_be_are_refused_at_once(kafka: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        Client(_URL, kafka=kafka)


@pytest.mark.parametrize("given", [-1, 2**63, 2**70, 1.5, "1", b"1", None, True, float("nan")])
def test_an_event_time_that_cannot_be_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="event_time_ms"):
        event_time(given)


def test_an_event_time_too_far_in_the_future_is_refused() -> None:
    now_ms = int(time.time() * 1000)
    assert event_time(now_ms + FUTURE_MS_MAX // 2) == now_ms + FUTURE_MS_MAX // 2
    with pytest.raises(InvalidInputError, match="60 minutes in the future"):
        event_time(now_ms + 2 * FUTURE_MS_MAX)


@pytest.mark.parametrize(
    "given",
    [
        5,
        "abc",
        [("a",)],
        [("a", b"b", b"c")],
        [5],
        {"a": 1},
        {"a": None},
        {5: b"x"},
        {"ab": b"the producer's own"},
        {"a": "\ud800"},
        {"\ud800": b"x"},
    ],
)
def test_headers_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="header"):
        header_pairs(given)


@pytest.mark.parametrize(
    "given",
    [
        {"linger_ms": "5"},
        {"linger_ms": float("nan")},
        {"linger_ms": True},
        {"buffer_messages_max": None},
        {"delivery_timeout_s": "long"},
        *({"buffer_messages_max": each} for each in (0, 1.5, 1e6, "100", True)),
        *({"buffer_bytes_max": each} for each in (0, 1e6, "64 MiB")),
        {"key_serializer": b"json"},
        {"value_serializer": "json"},
        {"count_batches": "yes"},
        {"compression": 5},
        {"encrypt": "aes"},
        {"encrypt": b"key"},
    ],
)
def test_settings_of_a_wrong_type_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(given))):
        ProducerSettings(**given)


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        *((ReadSettings, {"bytes_max": each}) for each in (0, 2**63, 1e6, "64 MiB", True, None)),
        *((ReadSettings, {"batch_messages_max": each}) for each in (-1, 1_000_001, 1.5)),
        *((ReadSettings, {"buffered_messages_max": each}) for each in (0, "many")),
        *((ReadSettings, {"queued_messages_min": each}) for each in (0, 10_000_001, 1.5)),
        *((ReadSettings, {"fetch_wait_ms": each}) for each in (-1, 300_001, 0.5)),
        *((ConsumerSettings, {"commit_interval_s": each}) for each in (-1, math.nan, "1", None)),
        *((ConsumerSettings, {"commit_again_s": each}) for each in (0, math.nan, "1")),
        *((ConsumerSettings, {"settle_timeout_s": each}) for each in (-1, math.nan, True)),
        *((ConsumerSettings, {"subscribe_timeout_s": each}) for each in (-1, math.nan)),
        *((ConsumerSettings, {"read": each}) for each in (None, 64 * 1024 * 1024)),
        *((QueueSettings, {"messages_max": each}) for each in (0, 0.5, 1.5, 2**31, "1", True)),
        *((QueueSettings, {"lock_s": each}) for each in (0, math.nan, "30")),
        *((QueueSettings, {"subscribe_timeout_s": each}) for each in (-1, math.nan, "30")),
        *((each, {"key_deserializer": "json"}) for each in (ConsumerSettings, QueueSettings)),
        *((each, {"value_deserializer": b"{}"}) for each in (ConsumerSettings, QueueSettings)),
    ],
)
def test_settings_of_consumers_that_cannot_be_are_refused(
    settings: Any, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(given))):
        settings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        *({"bytes_max": each} for each in (1, 2**40, 2**63 - 1)),
        *({"queued_messages_min": each} for each in (1, 10_000_000)),
        *({"fetch_wait_ms": each} for each in (0, 300_000)),
    ],
)
def test_kafkas_client_takes_what_read_settings_take(given: dict[str, int]) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "log_level": 0}
    Consumer({**CONSUMER, **ReadSettings(**given).kafka(), **nowhere}).close()


@pytest.mark.parametrize("settings", [ConsumerSettings, QueueSettings])
def test_a_decrypt_that_cannot_be_called_is_refused(settings: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"decrypt must be callable.*: bytes"):
        settings.of(None, {"decrypt": b"key"})


@pytest.mark.parametrize("settings", [ProducerSettings, ConsumerSettings, QueueSettings])
def test_settings_are_checked_again_with_every_change(settings: Any) -> None:
    base = settings()
    assert settings.of(None, {}) == settings.of(base, {}) == base
    with pytest.raises(InvalidInputError, match=f"{settings.__name__} has no setting linger_s: it"):
        settings.of(base, {"linger_s": 1})
    with pytest.raises(InvalidInputError, match=f"settings must be {settings.__name__}: dict"):
        settings.of({}, {})
    changed = {"delivery_timeout_s": "1"} if settings is ProducerSettings else {"decrypt": 5}
    with pytest.raises(InvalidInputError, match=next(iter(changed))):
        settings.of(base, changed)


def test_what_is_no_checkpoint_is_refused() -> None:
    nodes = Nodes(_URL)
    watch = LayoutWatch(nodes, "topic://public/default/orders")
    stored: Any = b'{"incarnation":1}'
    with pytest.raises(InvalidInputError, match="checkpoint must be a Checkpoint: bytes"):
        CheckpointConsumer(
            Membership(nodes, watch, {}, "lake", "", no_producer), ConsumerSettings(), stored
        )
