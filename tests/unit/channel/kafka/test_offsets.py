"""Whom Kafka tells of which partition, and why not: its leaders are doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from anabranch.channel.kafka.brokers import living
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.offsets import LATEST, Answers, PartitionOffset, PartitionOffsets
from support.told_offsets import NO_LEADER, Leaders
from support.waiting import WAIT_S

TIMEOUT_S = 0.2
TOLD = PartitionOffset(5, 7)


def kafka_of(topics: Mapping[str, Sequence[int]], *silent: int) -> tuple[Leaders, PartitionOffsets]:
    leaders = Leaders(topics, frozenset(silent))
    return leaders, PartitionOffsets(cast(KafkaConnection, leaders))


def codes(answers: Answers) -> dict[tuple[str, int], int | PartitionOffset]:
    return {
        place: each.code() if isinstance(each, KafkaError) else each
        for place, each in answers.items()
    }


def test_each_partition_is_told_of_or_why_not() -> None:
    _, asker = kafka_of({"a": [1, NO_LEADER]})
    assert codes(asker.ask([("a", 0), ("a", 1), ("a", 2), ("gone", 0)], LATEST, WAIT_S)) == {
        ("a", 0): TOLD,
        ("a", 1): KafkaError.LEADER_NOT_AVAILABLE,
        ("a", 2): KafkaError._UNKNOWN_PARTITION,
        ("gone", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


def test_where_nobody_leads_anything_each_is_told_why_though_librdkafka_says_it_of_all() -> None:
    kafka, asker = kafka_of({"a": [NO_LEADER], "secret": [1], "b": [1]})
    kafka.refused["secret"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert codes(asker.ask([("a", 0), ("gone", 0), ("secret", 0), ("b", 1)], LATEST, WAIT_S)) == {
        ("a", 0): KafkaError.LEADER_NOT_AVAILABLE,
        ("gone", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
        ("secret", 0): KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ("b", 1): KafkaError._UNKNOWN_PARTITION,
    }


def test_what_was_once_not_there_is_looked_for_anew() -> None:
    kafka, asker = kafka_of({"a": [1]})
    asked = [("a", 0), ("new", 0)]
    assert codes(asker.ask(asked, LATEST, WAIT_S))["new", 0] == KafkaError.UNKNOWN_TOPIC_OR_PART
    kafka.topics["new"] = [1]
    assert asker.ask(asked, LATEST, WAIT_S) == {("a", 0): TOLD, ("new", 0): TOLD}


def test_a_leader_that_is_silent_keeps_all_back_or_nobody_else_as_one_asks() -> None:
    kafka, asker = kafka_of({"a": [1, 2], "b": [3, 2]}, 2)
    places = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    silent = KafkaError._TIMED_OUT
    assert codes(asker.ask(places, LATEST, TIMEOUT_S)) == dict.fromkeys(places, silent)
    each = {("a", 0): TOLD, ("a", 1): silent, ("b", 0): TOLD, ("b", 1): silent}
    assert codes(asker.ask_each(places, LATEST, TIMEOUT_S)) == each
    kafka.requests.clear()  # now it knows, and asks nobody together with it
    assert codes(asker.ask_each(places, LATEST, TIMEOUT_S)) == each
    assert sorted(kafka.requests) == [[("a", 0)], [("a", 1), ("b", 1)], [("b", 0)]]
    kafka.silent = frozenset()
    for _ in range(2):
        kafka.requests.clear()
        assert asker.ask_each(places, LATEST, WAIT_S) == dict.fromkeys(places, TOLD)
    assert kafka.requests == [places]


def test_many_partitions_go_in_few_requests_and_all_are_told_of() -> None:
    kafka, asker = kafka_of({f"t{number}": [1] * 5 for number in range(1_000)})
    places = [(topic, number) for topic in kafka.topics for number in range(5)]
    assert asker.ask(places, LATEST, WAIT_S) == dict.fromkeys(places, TOLD)
    assert list(map(len, kafka.requests)) == [2_000, 2_000, 1_000]
    assert asker.ask_each(places, LATEST, WAIT_S) == dict.fromkeys(places, TOLD)
    assert asker.ask([], LATEST, WAIT_S) == {}


def test_open_transactions_do_not_count_and_the_client_ends_with_its_owner() -> None:
    kafka, asker = kafka_of({"a": [1]})
    assert kafka.settings == {"isolation_level": "read_uncommitted"}
    soon = asker.soon([("a", 0)], LATEST, WAIT_S)
    asker.close()
    assert soon.cancelled() or soon.result(WAIT_S) == {("a", 0): TOLD}
    assert kafka.is_closed


# --- which of Kafka's brokers live ----------------------------------------------------------------


class Brokers:
    """As an administrator sees them."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def list_topics(self, _name: str, timeout: float) -> SimpleNamespace:
        brokers = {each: SimpleNamespace(host=f"b{each}", port=9092) for each in self.numbers}
        return SimpleNamespace(brokers=brokers)


def test_who_lives_is_told_with_an_address() -> None:
    assert living(cast(AdminClient, Brokers(1, 3)), "t", WAIT_S) == {
        1: ("b1", 9092),
        3: ("b3", 9092),
    }
    assert living(cast(AdminClient, Brokers()), "t", WAIT_S) == {}
