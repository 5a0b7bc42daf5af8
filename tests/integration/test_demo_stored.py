"""The demo's last check reads what Kafka has, and must not overlook or misplace a message."""

import msgspec

from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.devkit.demo.judge import TraceMessage
from anabranch.devkit.demo.stored import stored
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.waiting import WAIT_S


def test_all_messages_of_all_segments_are_found_parents_first(
    kafka: EmbeddedKafka, topic_prefix: str
) -> None:
    connection = KafkaConnection(kafka.bootstrap_servers)
    topics = [SegmentTopic(f"{topic_prefix}segment-{number}", 2) for number in (2, 10, 11)]
    admin = SegmentAdmin(connection, SegmentSettings())
    admin.create(topics, WAIT_S)
    admin.close()
    producer = connection.producer()
    messages = [TraceMessage(number, "k", number) for number in range(6)]
    for message in reversed(messages):
        topic = topics[message.number // 2]
        body = msgspec.json.encode(message)
        producer.produce(topic.name, body, partition=message.number % 2)
    assert producer.flush(WAIT_S) == 0
    found = stored(
        connection, {int(topic.name.rpartition("-")[2]): (topic.name, 2) for topic in topics}
    )
    assert [one.message for one in found] == messages
    assert [(one.segment_id, one.bucket, one.offset) for one in found] == [
        *((2, 0, 0), (2, 1, 0), (10, 0, 0), (10, 1, 0), (11, 0, 0), (11, 1, 0))
    ]
    assert stored(connection, {}) == []
