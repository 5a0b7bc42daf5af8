"""Whom Kafka tells of which partition, and why not: its leaders are doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from structlog.testing import capture_logs

from anabranch.channel.kafka.brokers import Racks, living
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.kafka.deletion import delete_records, led
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


# --- which racks Kafka's brokers are in, and what is known of those that do not say it ------------


class Brokers:
    """As an administrator sees them. `silent` ones do not answer in time."""

    def __init__(self, racks: dict[int, str | None]) -> None:
        self.racks = racks
        self.silent: set[int] = set()
        self.refuses = False
        self.asked: list[int] = []

    def list_topics(self, _name: str, timeout: float) -> SimpleNamespace:
        brokers = {each: SimpleNamespace(host=f"b{each}", port=9092) for each in self.racks}
        return SimpleNamespace(brokers=brokers)

    def describe_configs(
        self, resources: Sequence[ConfigResource], request_timeout: float
    ) -> dict[ConfigResource, Future[Any]]:
        (resource,) = resources  # of several brokers, librdkafka would refuse them
        broker, answer = int(resource.name), Future[Any]()
        self.asked.append(broker)
        if broker in self.silent:
            answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        elif self.refuses:
            code = KafkaError.CLUSTER_AUTHORIZATION_FAILED
            answer.set_exception(KafkaException(KafkaError(code)))
        else:
            answer.set_result({"broker.rack": SimpleNamespace(value=self.racks[broker])})
        return {resource: answer}


def racks_of(kafka: Brokers) -> Racks:
    return Racks(cast(AdminClient, kafka))


def test_who_lives_is_told_with_an_address() -> None:
    kafka = cast(AdminClient, Brokers({1: "a", 3: None}))
    assert living(kafka, "t", WAIT_S) == {1: ("b1", 9092), 3: ("b3", 9092)}
    assert living(cast(AdminClient, Brokers({})), "t", WAIT_S) == {}


def test_all_are_asked_once_and_then_one_in_turn() -> None:
    kafka = Brokers({1: "a", 2: "b", 3: None})
    racks = racks_of(kafka)
    for _ in range(2):
        assert racks.ask(kafka.racks, WAIT_S) == {1: "a", 2: "b", 3: ""}
    kafka.racks[4] = "c"
    assert racks.ask(kafka.racks, WAIT_S) == {1: "a", 2: "b", 3: "", 4: "c"}
    assert sorted(kafka.asked[:3]) == [1, 2, 3]
    assert set(kafka.asked[4:]) == {4, kafka.asked[1]}
    kafka.racks[1] = "z"
    for _ in kafka.racks:
        found = racks.ask(kafka.racks, WAIT_S)
    assert found[1] == "z"


def test_whoever_is_silent_is_where_it_was_or_left_out() -> None:
    kafka = Brokers({1: "a", 2: "b"})
    racks = racks_of(kafka)
    kafka.silent = {2}
    assert racks.ask(kafka.racks, WAIT_S) == {1: "a"}
    kafka.silent = set()
    assert racks.ask(kafka.racks, WAIT_S) == {1: "a", 2: "b"}
    kafka.silent = {1, 2}
    assert racks.ask(kafka.racks, WAIT_S) == {1: "a", 2: "b"}
    assert racks.ask([2], WAIT_S) == {2: "b"}


def test_without_the_right_none_is_in_a_rack_and_that_is_said_once() -> None:
    kafka = Brokers({1: "a", 2: "b"})
    kafka.refuses = True
    racks = racks_of(kafka)
    with capture_logs() as lines:
        for _ in range(3):
            assert racks.ask(kafka.racks, WAIT_S) == {1: "", 2: ""}
    (line,) = lines
    assert line["event"] == "kafka.racks_not_told"
    assert "DescribeConfigs on the cluster" in line["remedy"]


# --- records are deleted only where the same client has just heard who leads ----------------------


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
