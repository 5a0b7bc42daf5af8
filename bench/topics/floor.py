"""The floor of a split: the calls of Kafka that it consists of, in its order, by bare clients.

The protocol needs all of them: three records written down and read back, the children's topics
before the seal, the seal before its end, and a refusal by every partition, because Kafka answers a
change of settings before its brokers obey. What a split takes longer is what our code costs.

Where there are copies, the seal waits until they follow the children's leaders, and a second
setting follows it. Nodes also ask each broker until it shows the second one. librdkafka has no
call for that, so a floor leaves the asking out, or asks by connections of our own (`asks`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.deletion import delete_nothing
from anabranch.wire.kafka.described import BrokerViews
from bench.clients.bare import BareKafka

_ANSWER_S: Final = 30.0
_VALUE: Final = b"x" * 300  # a record of a layout
_PROBE_MS: Final = 1 << 55
_TAKES: Final = {"message.timestamp.after.max.ms": "3600000"}  # so that a probe is never stored
_AGAIN_S: Final = 0.001
_LIMIT: Final = "max.message.bytes"
_STAMP: Final = "1"

Answers = Mapping[Any, Future[Any]]


class BareSteps:
    """Its topics split and merge in turn, beginning with one. Ends its clients with `close`."""

    def __init__(self, kafka: BareKafka, partitions: int, *, asks: bool = False) -> None:
        self._kafka = kafka
        self._partitions = partitions
        self._views = BrokerViews({}, _ANSWER_S) if asks else None
        self._writer = kafka.producer(**{"linger.ms": 0})
        self._prober = kafka.producer(
            **{"linger.ms": 0, "enable.idempotence": False, "acks": 1, "retries": 0}
        )
        self._log = kafka.topic(1)
        self._reader = kafka.consumer(**{"fetch.wait.max.ms": 100})
        self._reader.assign([TopicPartition(self._log, 0, 1)])
        self._parents = self._create(1)
        settle(kafka)

    def close(self) -> None:
        """Ends the clients that have to be ended."""
        self._reader.close()
        if self._views is not None:
            self._views.close()

    def run(self, children: int) -> tuple[float, float]:
        """One operation. Returns milliseconds: of all, and from the record that seals to the last.

        The wait for copies counts for neither. A follower rests for a second now and then, which
        would hide everything else.
        """
        began = time.perf_counter()
        self._write_down()
        made = self._create(children)
        created = time.perf_counter()
        if self._kafka.copies > 1:
            self._await_copies(made)
        copied = time.perf_counter()
        self._write_down()
        sealing = time.perf_counter()
        changed = ask_to_change(self._kafka, self._parents, "0")
        for name in self._parents:
            self._prober.list_topics(name, _ANSWER_S)  # else it finds the leaders in its own time
        all_of(changed)
        if self._kafka.copies > 1:
            all_of(ask_to_change(self._kafka, self._parents, _STAMP))
            self._await_shown()
        places = [(name, number) for name in self._parents for number in range(self._partitions)]
        self._await_refusals(places[:1])
        self._await_refusals(places[1:])
        latest(self._kafka, places)
        self._write_down()
        self._parents = made
        ended = time.perf_counter()
        return 1000 * (ended - copied + created - began), 1000 * (ended - sealing)

    def _write_down(self) -> None:
        self._writer.produce(self._log, _VALUE, b"topic", 0)
        deadline = time.perf_counter() + _ANSWER_S
        while (message := self._reader.poll(_ANSWER_S)) is None or message.error():
            if time.perf_counter() > deadline:
                raise RuntimeError("Kafka does not answer")
        self._writer.poll(0)

    def _create(self, count: int) -> list[str]:
        return create(self._kafka, count, self._partitions, _TAKES)

    def _await_copies(self, names: Sequence[str]) -> None:
        """Has no record deleted, as nodes do: followers have fetched once when that is answered."""
        for name in names:
            await_led(self._kafka, name)
        places = [(name, number) for name in names for number in range(self._partitions)]
        deadline = Deadline(self._kafka.connection, _ANSWER_S, lambda: None)
        delete_nothing(self._kafka.admin, places, set(), deadline, f"to copy topic {names[0]}")

    def _await_shown(self) -> None:
        """Every broker shows the second setting when this returns, if `asks`."""
        if self._views is None:
            return
        brokers = self._prober.list_topics(timeout=_ANSWER_S).brokers.values()
        left = {(str(broker.host), broker.port) for broker in brokers}
        deadline = time.perf_counter() + _ANSWER_S
        while left:
            told = self._views.settings(left, self._parents, (_LIMIT,))
            left -= {
                broker
                for broker, topics in told.items()
                if all(topics.get(name, {}).get(_LIMIT) == _STAMP for name in self._parents)
            }
            if time.perf_counter() > deadline:
                raise RuntimeError(f"these brokers do not show the second setting: {left}")

    def _await_refusals(self, places: Sequence[tuple[str, int]]) -> None:
        left = set(places)

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                left.discard((message.topic() or "", message.partition() or 0))

        deadline = time.perf_counter() + _ANSWER_S
        while left:
            for name, number in sorted(left):
                self._prober.produce(
                    name, b"", partition=number, timestamp=_PROBE_MS, on_delivery=answered
                )
            self._prober.flush(_ANSWER_S)
            if left:
                if time.perf_counter() > deadline:
                    raise RuntimeError(f"Kafka still takes what it was told to refuse: {left}")
                time.sleep(_AGAIN_S)


def create(
    kafka: BareKafka, count: int, partitions: int, settings: Mapping[str, str] | None = None
) -> list[str]:
    """Makes that many topics by one request; their names."""
    names = [kafka.new_name() for _ in range(count)]
    new = [kafka.new_topic(name, partitions, **(settings or {})) for name in names]
    all_of(kafka.admin.create_topics(new))
    return names


def ask_to_change(kafka: BareKafka, names: Sequence[str], bytes_max: str) -> Answers:
    """Changes one setting of the topics by one request, which is not waited for."""
    entry = ConfigEntry(_LIMIT, bytes_max, incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        for name in names
    ]
    return kafka.admin.incremental_alter_configs(resources)


def latest(kafka: BareKafka, places: Sequence[tuple[str, int]]) -> None:
    """Asks for the partitions' ends. Raises KafkaException when one is not led."""
    asked = [TopicPartition(*place, OFFSET_END) for place in places]
    for answer in kafka.asker.offsets_for_times(asked, timeout=_ANSWER_S):
        if answer.error is not None:
            raise KafkaException(answer.error)


def settle(kafka: BareKafka) -> None:
    """Returns when Kafka has made all topics that it was asked for: what is measured next does not
    wait for them. It answers who makes a topic before it has made the logs, one after another.
    """
    (last,) = create(kafka, 1, 1)
    await_led(kafka, last)


def await_led(kafka: BareKafka, name: str) -> None:
    """Returns when all partitions of a new topic are led."""
    deadline = time.perf_counter() + _ANSWER_S
    while True:
        # librdkafka would remember for long that it once was told of no leader.
        led = kafka.asker.list_topics(name, _ANSWER_S).topics[name].partitions
        try:
            if led:
                latest(kafka, [(name, number) for number in led])
                return
        except KafkaException:  # it is not led yet
            pass
        if time.perf_counter() > deadline:
            raise RuntimeError(f"Kafka does not make topic {name}")
        time.sleep(_AGAIN_S)


def all_of(futures: Answers) -> None:
    """Waits for Kafka's answers. Raises KafkaException for a refusal."""
    for future in futures.values():
        future.result(_ANSWER_S)
