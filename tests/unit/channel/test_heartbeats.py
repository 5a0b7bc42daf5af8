"""A heartbeat that Kafka has not acknowledged says nothing, and renews nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from anabranch.channel.codec import encode_heartbeat
from anabranch.channel.errors import NewerSchemaError, ProducerLostError
from anabranch.channel.heartbeats import KafkaHeartbeats
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.topics import Topics
from anabranch.core.sessions.lease import Heartbeat
from support.mock_kafka import MockKafka
from support.waiting import WAIT_S

TOPICS = Topics("heartbeats-test.")


def beat(sequence: int) -> Heartbeat:
    return Heartbeat("b1:8080", 1, sequence, 1.5, "serving", 7, "00", -1, "", "", "test")


def test_only_what_kafka_has_acknowledged_is_reported_as_acknowledged() -> None:
    acknowledged: list[int] = []
    with MockKafka(TOPICS.brokers) as kafka:
        heartbeats = KafkaHeartbeats(KafkaConnection(kafka.servers), TOPICS)
        deadline = time.monotonic() + WAIT_S
        heartbeats.publish(beat(1), lambda sent: acknowledged.append(sent.sequence))
        while not acknowledged and time.monotonic() < deadline:
            heartbeats.poll(0.05)
        assert acknowledged == [1]
        kafka.stand_still()
        heartbeats.publish(beat(2), lambda sent: acknowledged.append(sent.sequence))
        with capture_logs() as logged:
            while not logged and time.monotonic() < deadline:
                heartbeats.poll(0.05)
        assert [(line["event"], line["sequence"]) for line in logged] == [("heartbeat.lost", 2)]
        assert acknowledged == [1]
        heartbeats.close()


def test_what_cannot_even_be_handed_over_is_lost_and_does_not_stop_its_sender() -> None:
    with MockKafka(TOPICS.brokers) as kafka:
        heartbeats = KafkaHeartbeats(KafkaConnection(kafka.servers), TOPICS)
        kafka.stand_still()
        acknowledged: list[int] = []
        with capture_logs() as logged:
            for sequence in range(200):  # more than the client keeps
                heartbeats.publish(beat(sequence), lambda sent: acknowledged.append(sent.sequence))
        assert {line["reason"] for line in logged} == {"too many are waiting"}
        assert acknowledged == []
        heartbeats.close()


# --- what the two clients are asked ---------------------------------------------------------


class Clients:
    """A connection whose producer and consumer note what they are asked; `incoming` is read."""

    def __init__(self, *incoming: object) -> None:
        self.incoming = list(incoming)
        self.settings: list[dict[str, Any]] = []
        self.on_error: Callable[[KafkaError], None] = print
        self.sent: list[tuple[object, ...]] = []
        self.refusal: KafkaError | None = None
        self.assigned: list[TopicPartition] = []
        self.patience: list[float] = []

    def heartbeats(self) -> KafkaHeartbeats:
        return KafkaHeartbeats(cast(KafkaConnection, self), TOPICS)

    def producer(self, on_error: Callable[[KafkaError], None], **settings: Any) -> Clients:
        self.on_error = on_error
        self.settings.append(settings)
        return self

    def consumer(self, **settings: Any) -> Clients:
        self.settings.append(settings)
        return self

    def produce(
        self, *given: object, on_delivery: Callable[[KafkaError | None, object], None]
    ) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        self.sent.append(given)

    def get_watermark_offsets(self, _place: TopicPartition, _seconds: float) -> tuple[int, int]:
        return 3, 8

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = places

    def poll(self, seconds: float) -> object:
        self.patience.append(seconds)
        return self.incoming.pop(0) if seconds and self.incoming else None

    def consume(self, most: int, seconds: float) -> list[object]:
        self.patience.append(seconds)
        taken, self.incoming = self.incoming[:most], self.incoming[most:]
        return taken


def message(value: bytes | None, error: int | None = None) -> object:
    return SimpleNamespace(
        error=lambda: None if error is None else KafkaError(error),
        value=lambda: value,
        key=lambda: b"b1:8080",
        timestamp=lambda: (1, 1_234),
    )


def test_a_late_heartbeat_is_dropped_and_reading_starts_at_the_topics_end() -> None:
    clients = Clients()
    clients.heartbeats()
    producer, consumer = clients.settings
    assert producer["delivery_timeout_ms"] == producer["request_timeout_ms"] == 2_000
    assert producer["is_polled"]
    assert consumer == {"is_polled": True, "auto_offset_reset": "latest"}
    (place,) = clients.assigned
    assert (place.topic, place.partition, place.offset) == (TOPICS.brokers, 0, 8)


def test_heartbeats_go_to_the_one_partition_under_their_brokers_name() -> None:
    clients = Clients()
    clients.heartbeats().publish(beat(1), lambda _: None)
    assert clients.sent == [(TOPICS.brokers, encode_heartbeat(beat(1)), "b1:8080", 0)]


def test_a_poll_waits_for_the_first_heartbeat_alone_and_takes_all_that_are_there() -> None:
    clients = Clients(*(message(encode_heartbeat(beat(number))) for number in range(900)))
    assert clients.heartbeats().poll(0.5) == [(beat(number), 1_234) for number in range(900)]
    assert clients.patience == [0, 0.5, 0, 0]


def test_what_is_no_heartbeat_and_what_passes_hide_no_heartbeat_behind_them() -> None:
    good = message(encode_heartbeat(beat(1)))
    heartbeats = Clients(message(None, KafkaError._TRANSPORT), message(None), good).heartbeats()
    assert heartbeats.poll(0.5) == [(beat(1), 1_234)]
    assert heartbeats.unreadable == 0


def test_a_heartbeat_of_a_later_release_is_told_of_and_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def later(_: bytes) -> Heartbeat:
        raise NewerSchemaError("Heartbeat9", "a heartbeat")

    monkeypatch.setattr("anabranch.channel.heartbeats.decode_heartbeat", later)
    heartbeats = Clients(message(b"later"), message(b"later")).heartbeats()
    with capture_logs() as logged:
        assert heartbeats.poll(0.5) == []
    assert heartbeats.unreadable == 2
    assert [(line["event"], line["schema"], line["key"]) for line in logged] == [
        ("heartbeat.newer", "Heartbeat9", b"b1:8080")
    ]


def test_a_producer_that_refuses_everything_for_ever_is_told_of_by_the_next_poll() -> None:
    told, refused = Clients(), Clients()
    heartbeats = told.heartbeats()
    assert heartbeats.poll(0.5) == []
    told.on_error(KafkaError(KafkaError._FATAL))
    with pytest.raises(ProducerLostError):
        heartbeats.poll(0.5)
    heartbeats = refused.heartbeats()
    refused.refusal = KafkaError(KafkaError._FATAL)
    heartbeats.publish(beat(1), lambda _: None)
    with pytest.raises(ProducerLostError):
        heartbeats.poll(0.5)
