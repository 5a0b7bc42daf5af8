"""Records are deleted only where the same client has just heard who leads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.channel.kafka.deletion import delete_records, led
from support.told_offsets import NO_LEADER, Leaders
from support.waiting import WAIT_S


class Kafka(Leaders):
    """As an administrator sees it: the leader of each partition, by topic."""

    def __init__(self, **topics: Sequence[int]) -> None:
        super().__init__(topics, frozenset())
        self.heard: list[str | None] = []
        self.deleted: list[TopicPartition] = []

    def list_topics(self, name: str | None = None, timeout: float = 0.0) -> SimpleNamespace:
        self.heard.append(name)
        return super().list_topics(name, timeout)

    def delete_records(self, asked: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
        assert asked, "librdkafka refuses to delete nothing"
        self.deleted += asked
        return {place: Future() for place in asked}


def test_what_nobody_leads_is_not_asked_for_and_each_topic_is_heard_of_by_itself() -> None:
    kafka = Kafka(a=[1, NO_LEADER], b=[2])
    admin = cast(AdminClient, kafka)
    leading = led(admin, ["a", "b", "gone"], WAIT_S)
    assert leading == {("a", 0), ("b", 0)}
    assert kafka.heard == ["a", "b", "gone"]  # of all together, librdkafka remembers nothing
    up_to = {("a", 0): 5, ("a", 1): 6, ("b", 0): 7, ("gone", 0): 8}
    assert set(delete_records(admin, up_to, leading)) == leading
    assert {(each.topic, each.partition, each.offset) for each in kafka.deleted} == {
        ("a", 0, 5),
        ("b", 0, 7),
    }
    assert delete_records(admin, {("a", 1): 6}, leading) == {}
