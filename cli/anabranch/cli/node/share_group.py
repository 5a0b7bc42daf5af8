"""Checks that Kafka can serve queues: takes one record through a share group of its own."""

from __future__ import annotations

import secrets
from contextlib import closing, suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from anabranch.broker.node.startup import segment_settings
from anabranch.broker.settings import Settings
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.deadline import must_pass
from anabranch.channel.segments.admin import SegmentAdmin
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.cli.node.findings import NotWellError
from anabranch.client import share_state
from anabranch.core.errors import AnabranchError
from anabranch.wire import clock

_POLL_S: Final = 0.5
_DOING: Final = "to join share group"


def take_record(settings: Settings, connection: KafkaConnection) -> str:
    """Says how long it took; deletes the topic and the group. Raises NotWellError, or as the
    channel.
    """
    name = f"{settings.topic_prefix}doctor.{secrets.token_hex(6)}"
    with closing(SegmentAdmin(connection, segment_settings(settings))) as admin:
        admin.create([SegmentTopic(name, 1)], KAFKA_S_MAX)
        try:
            took_s = _taken(connection, name)
        finally:
            admin.delete([name], KAFKA_S_MAX)
            with suppress(AnabranchError):  # that it is none, or may not be asked for, is told
                admin.delete_groups([name], KAFKA_S_MAX)
    return f"a record came through a share group in {took_s:.1f} s"


def _taken(connection: KafkaConnection, name: str) -> float:
    """In how many seconds a record came back."""
    began, last = clock.now(), ""
    admin, producer = connection.admin(), connection.producer()
    consumer = connection.share_consumer(group_id=name)
    try:
        consumer.subscribe([name])
        while clock.now() < began + KAFKA_S_MAX:
            # Again and again: until the group has begun, it begins behind what is there.
            producer.produce(name, b"from anabranch doctor")
            producer.poll(0)
            for message in consumer.poll(_POLL_S):
                error = message.error()
                if error is None:
                    return clock.now() - began
                last = _noted(error, connection, name)
        is_missing = share_state.is_missing(admin)
    except KafkaException as error:
        _noted(error.args[0], connection, name)
        raise connection.explained(error, f"{_DOING} {name}") from None
    finally:
        consumer.close()
        producer.purge()
        producer.close()
    raise NotWellError(
        share_state.NOT_BEGUN
        if is_missing
        else f"share group {name} gave out no record in {KAFKA_S_MAX:g} s{last}: look for "
        f"{share_state.STATE_TOPIC} in the logs of Kafka's brokers; queues alone need this"
    )


def _noted(error: KafkaError, connection: KafkaConnection, name: str) -> str:
    """Raises NotWellError, KafkaRefusedError for what trying again does not mend."""
    if error.code() == KafkaError.UNSUPPORTED_VERSION:
        raise NotWellError(share_state.NOT_BEGUN)
    must_pass(error, f"{_DOING} {name}", connection.bootstrap_servers)
    return f"; Kafka said last: {error.str()}"
