"""Kafka's present state of segments' topics, and the messages behind the ends of sealed ones.

Blocking calls, to be made by one thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.channel.kafka.connection import KafkaConnection, is_passing
from anabranch.core.topics.findings import KafkaTopic

_QUIET_S: Final = 0.1
_AS_KAFKA: Final = str.maketrans("+/", "-_")  # Kafka's tools write an id so, librdkafka does not
_UNKNOWN: Final = KafkaError.UNKNOWN_TOPIC_OR_PART


def look(
    admin: AdminClient, names: Sequence[str], settings: frozenset[str], timeout_s: float
) -> dict[str, KafkaTopic | None]:
    """Kafka's state of the topics; None for one that it does not have. The answer lacks a topic
    that Kafka does not describe.

    `settings`: the ones to tell.
    """
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    told = admin.describe_configs(asked, request_timeout=timeout_s)
    described = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
    found: dict[str, KafkaTopic | None] = {}
    until = time.monotonic() + timeout_s
    for resource, future in told.items():
        entries = _answer(future, until)
        topic = _answer(described[resource.name], until)
        if _UNKNOWN == entries == topic:
            found[resource.name] = None
        elif not isinstance(entries, int) and not isinstance(topic, int):
            found[resource.name] = KafkaTopic(
                str(topic.topic_id).translate(_AS_KAFKA),
                len(topic.partitions),
                {name: str(entries[name].value) for name in settings if name in entries},
            )
    return found


def _answer(future: Any, until: float) -> Any:
    """Kafka's answer, or the number of its error."""
    try:
        return future.result(max(0.0, until - time.monotonic()))
    except KafkaException as error:
        return error.args[0].code()
    except TimeoutError:
        return KafkaError._TIMED_OUT


def strays(
    connection: KafkaConnection, topic: str, ends: Sequence[int], timeout_s: float, most: int
) -> list[Message]:
    """Messages of a topic at or behind `ends`, one end for each partition; `most` of them at most.

    Ends of transactions are no messages, and aborted ones are none. Raises KafkaUnreachableError
    and KafkaRefusedError.
    """
    consumer = connection.consumer(isolation_level="read_committed", enable_partition_eof=True)
    doing = f"to read what lies behind the ends of topic {topic}"
    until = time.monotonic() + timeout_s
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
        left = set(range(len(ends)))
        while left and len(found) < most:
            if time.monotonic() > until:
                raise connection.unreachable(doing)
            for message in consumer.consume(most, _QUIET_S):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                    left.discard(message.partition())
                elif error.code() == _UNKNOWN or not is_passing(error):
                    raise connection.explained(KafkaException(error), doing)
    finally:
        consumer.close()
    return found[:most]
