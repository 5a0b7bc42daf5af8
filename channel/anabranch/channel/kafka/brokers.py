"""Kafka's present brokers.

Tried and dropped: the administrator's `describe_cluster`. If Kafka names no broker, an assertion of
librdkafka 2.16 ends the process. A Kafka of a single broker that was too slow for its controller
names none.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient


def living(admin: AdminClient, name: str, timeout_s: float) -> dict[int, tuple[str, int]]:
    """Hosts and ports of the brokers that live, by id; empty if Kafka names none.

    `name`: any name that a topic of ours might have. Without one librdkafka asks for all topics
    that there are. Another name fills Kafka's log with refusals, because we have no right to it.
    Raises KafkaException.
    """
    brokers = admin.list_topics(name, timeout=timeout_s).brokers
    return {number: (str(each.host), each.port) for number, each in brokers.items()}
