"""What the SDK is given wrongly is refused by name, before anything is connected or queued."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from anabranch import client as sdk
from anabranch.client._kafka_options import CONSUMER
from anabranch.client._producer.messages import event_time, header_pairs
from anabranch.core.errors import InvalidInputError
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX
from support.still_watch import lone_member


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        (5, "mapping"),
        ("no/such/file", "cannot be read"),
        ({"sasl.pasword": "x"}, r"write sasl\.password"),
        ({"client.id": ["a"]}, "list"),
        ({"security.protocol": "telepathy"}, "security.protocol"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}, "ssl.ca.location"),
    ],
)
def test_kafka_properties_that_cannot_be_are_refused_at_once(kafka: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        sdk.Client("pulsar://127.0.0.1:1", kafka=kafka)


def test_properties_of_kafka_come_from_a_mapping_or_a_file_and_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_KAFKA_SASL_PASSWORD", "b")
    told = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ada"}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}: {value}\n" for name, value in told.items()))
    for kafka in (file, str(file)):
        client = sdk.Client("pulsar://127.0.0.1:1", kafka=kafka)
        assert client.kafka == {**told, "sasl.password": "b"}
    whole = {**told, "sasl.password": "a"}
    assert sdk.Client("pulsar://127.0.0.1:1", kafka=whole).kafka == whole


@pytest.mark.parametrize("given", [-1, 2**63, 1.5, "1", True])
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
        {"a": 1},
        {5: b"x"},
        {"a": "\ud800"},
    ],
)
def test_headers_that_cannot_be_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="header"):
        header_pairs(given)


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        *((sdk.ReadSettings, {"bytes_max": each}) for each in (0, 2**63, True)),
        *((sdk.ConsumerSettings, {"commit_interval_s": each}) for each in (-1, math.nan, "1")),
        *((sdk.ConsumerSettings, {"commit_again_s": each}) for each in (0, math.nan, "1")),
        *((sdk.ConsumerSettings, {"settle_timeout_s": each}) for each in (-1, math.nan, "1")),
        *((sdk.ConsumerSettings, {"read": each}) for each in (None, 64 * 1024 * 1024)),
        *((sdk.QueueSettings, {"messages_max": each}) for each in (0, 1.5, 2**31)),
        *((sdk.QueueSettings, {"subscribe_timeout_s": each}) for each in (-1, math.nan, "30")),
        (sdk.ConsumerSettings, {"key_deserializer": "json"}),
        (sdk.ConsumerSettings, {"value_deserializer": b"{}"}),
        (sdk.ProducerSettings, {"linger_ms": "5"}),
        (sdk.ProducerSettings, {"delivery_timeout_s": "long"}),
        *((sdk.ProducerSettings, {"buffer_messages_max": each}) for each in (0, 1.5, True)),
        (sdk.ProducerSettings, {"key_serializer": b"json"}),
        (sdk.ProducerSettings, {"stamp_bounds": 1}),
        (sdk.ProducerSettings, {"compression": 5}),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(given))):
        settings(**given)


@pytest.mark.parametrize("bytes_max", [1, 2**40, 2**63 - 1])
def test_kafkas_client_takes_what_read_settings_take(bytes_max: int) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "log_level": 0}
    Consumer({**CONSUMER, **sdk.ReadSettings(bytes_max).kafka(), **nowhere}).close()


@pytest.mark.parametrize(
    "settings", [sdk.ProducerSettings, sdk.ConsumerSettings, sdk.QueueSettings]
)
def test_settings_are_checked_again_with_every_change(settings: Any) -> None:
    base = settings()
    assert settings.of(None, {}) == settings.of(base, {}) == base
    with pytest.raises(InvalidInputError, match=f"{settings.__name__} has no setting linger_s: it"):
        settings.of(base, {"linger_s": 1})
    with pytest.raises(InvalidInputError, match=f"settings must be {settings.__name__}: dict"):
        settings.of({}, {})
    name = "encrypt" if settings is sdk.ProducerSettings else "decrypt"
    with pytest.raises(InvalidInputError, match=rf"{name} must be callable.*: bytes"):
        settings.of(base, {name: b"key"})


def test_what_is_no_checkpoint_is_refused() -> None:
    stored: Any = b'{"incarnation":1}'
    with pytest.raises(InvalidInputError, match="checkpoint must be a Checkpoint: bytes"):
        sdk.CheckpointConsumer(lone_member("lake"), sdk.ConsumerSettings(), stored)
