"""Which racks Kafka's brokers are in, and what is known of those that do not say it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource
from structlog.testing import capture_logs

from anabranch.channel.kafka.brokers import Racks, living
from support.waiting import WAIT_S


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
