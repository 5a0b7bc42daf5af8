"""Waiting until Kafka's brokers know of a setting: each reads it at a time of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource

from anabranch.channel.kafka.deadline import Deadline

_BROKER_S: Final = 1.0  # one that does not answer is asked again, unless Kafka misses it too

Known = Callable[[int, str, Mapping[str, str]], bool]  # broker, name, its settings


def await_known(
    admin: AdminClient,
    asked: Sequence[ConfigResource],
    known: Known,
    brokers: Callable[[], Collection[int] | None],
    deadline: Deadline,
    doing: str,
) -> None:
    """Returns once `known` holds for each broker's answer about the settings of each of `asked`.

    `brokers`: the brokers that have to know, None while that cannot be told. A broker that is gone
    is soon not named. Raises KafkaUnreachableError, KafkaRefusedError.
    """
    knowing: set[int] = set()
    while True:
        expected = brokers()
        if expected is not None:
            answers = {each: ask_broker(admin, each, asked) for each in set(expected) - knowing}
            for broker, futures in answers.items():
                found = {name: deadline.answer(future, doing) for name, future in futures.items()}
                if all(
                    not isinstance(told, KafkaError) and known(broker, name, values_of(told))
                    for name, told in found.items()
                ):
                    knowing.add(broker)
            if knowing.issuperset(expected):
                return
        deadline.pause(doing)


def values_of(settings: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """The settings' values, "" for one that is not set or not shown, without librdkafka's other
    facts about them.
    """
    return {name: entry.value or "" for name, entry in settings.items()}


def ask_broker(
    admin: AdminClient, broker: int, resources: Sequence[ConfigResource]
) -> dict[str, Future[Any]]:
    """Asks one broker: with a question of its own settings the request goes to that one."""
    own = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    asked = admin.describe_configs([own, *resources], request_timeout=_BROKER_S)
    return {resource.name: asked[resource] for resource in resources}
