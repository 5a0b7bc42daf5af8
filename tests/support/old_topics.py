"""A Kafka topic that others have made and use, and that a namespace adopts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from support import channel
from support.quiet import QUIET
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S

PARTITIONS = 12
KEYS = [b"key-%d" % number for number in range(240)]
ADOPTABLE: Final = "public/default=old-*"  # what the namespace of tests may adopt
# Those of a node whose Kafka has several brokers.
SETTINGS: Final = {"adoptableTopics": ADOPTABLE, "replicationFactor": 2, "minInsyncReplicas": 1}
Sent = dict[bytes, list[bytes]]
_numbers = itertools.count()


def new_name() -> str:
    """A name that the namespace may adopt."""
    return f"old-{next(_numbers)}"


def make(servers: str, name: str, copies: int, **config: str) -> None:
    """A Kafka topic that others have made; `config`: with `_` for each dot."""
    admin = AdminClient({**QUIET, "bootstrap.servers": servers})
    named = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, PARTITIONS, copies, config=named)])[name].result(WAIT_S)


def write(servers: str, topic: str, count: int = 4 * len(KEYS)) -> Sent:
    """Numbered values of many keys by librdkafka; fails if Kafka refuses one."""
    settings = {**QUIET, "bootstrap.servers": servers, "partitioner": "murmur2_random"}
    settings["max.in.flight"] = 1  # else what is sent again may come behind what followed it
    producer, sent = Producer(settings), defaultdict(list)
    refused: list[KafkaError] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for number in range(count):
        key = KEYS[number % len(KEYS)]
        producer.produce(topic, b"%d" % number, key, on_delivery=answered)
        sent[key].append(b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    assert refused == []
    return dict(sent)


async def adopted(cluster: TopicCluster, old: str) -> str:
    """The scalable topic that is made of the Kafka topic."""
    topic = f"public/default/{old}"
    params = {"kafkaTopic": old, "partitioner": "auto"}
    await cluster.call("POST", f"{topic}/adopt", params=params)
    return topic


def settings_of(kafka: str, topic: str) -> dict[str, tuple[str, int]]:
    """Each setting with where it comes from."""
    admin = AdminClient({**QUIET, "bootstrap.servers": kafka})
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: dict[str, Any] = {}

    def is_told() -> bool:
        """A broker hears of a new topic at a time of its own."""
        try:
            found.update(admin.describe_configs([asked])[asked].result(WAIT_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return bool(found)

    channel.until(is_told, "the settings are told")
    return {name: (str(each.value), int(each.source)) for name, each in found.items()}


@contextmanager
def group_of(kafka: str, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A member of a group of others."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": kafka,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def given(consumer: Consumer, count: int) -> dict[tuple[int, int], Message]:
    """So many messages by their places, each once.

    A member that was missed for a moment begins anew, so it may be given some again.
    """
    found: dict[tuple[int, int], Message] = {}
    while len(found) < count:
        for message in consumer.consume(count, 1.0):
            assert message.error() is None
            found[message.partition() or 0, message.offset() or 0] = message
    return found


def read_some(consumer: Consumer, count: int) -> Sent:
    """What the group has come behind with its commit, once it was given so many messages."""
    found = given(consumer, count)
    consumer.commit(asynchronous=False)
    at = {each.partition: each.offset for each in consumer.committed(consumer.assignment())}
    read: Sent = defaultdict(list)
    for (partition, offset), message in sorted(found.items(), key=lambda each: each[0]):
        if offset < at.get(partition, 0):
            read[message.key() or b""].append(message.value() or b"")
    return read
