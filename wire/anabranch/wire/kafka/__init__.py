"""Kafka's own protocol, for the questions that librdkafka has no call for. `protocol` asks one."""
