"""How far an archive of the log is, as its group on Kafka says."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicPartition

from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection, close_consumer
from anabranch.channel.kafka.topics import Topics


def archive_mark(
    connection: KafkaConnection, topics: Topics, archive: str, timeout_s: float = KAFKA_S_MAX
) -> int | None:
    """The first WAL offset that the archive does not hold yet; None when it has said nothing.

    Raises KafkaUnreachableError or KafkaRefusedError.
    """
    # Not through the admin client: librdkafka 2.16 crashes when one asks this of a coordinator
    # that has just changed.
    reader = connection.consumer(group_id=topics.archive_group(archive))
    try:
        committed = reader.committed([TopicPartition(topics.wal, 0)], timeout_s)
    except KafkaException as error:
        raise connection.explained(error, f"to tell how far archive {archive} is") from None
    finally:
        close_consumer(reader)
    offset: int = committed[0].offset
    return offset if offset >= 0 else None
