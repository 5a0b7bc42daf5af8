"""The seal of an adopted Kafka topic is lifted, and the topic has its own settings again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.propagation import await_known
from anabranch.channel.segments.seal_settings import SEALED, STAMP, change, changed, is_sealed
from anabranch.core.topics.kafka_names import FUTURE_MS_MAX

_DOING: Final = "to open topic {name} again"
# Neither a seal's nor a likely one of others.
_PASSING_STAMP: Final = str(FUTURE_MS_MAX + 3)


def own_settings(admin: AdminClient, name: str, deadline: Deadline) -> dict[str, str]:
    """Returns the topic's own values of what a seal sets, not those that it has from its broker.

    Nothing for a topic that is gone. Raises KafkaUnreachableError, KafkaRefusedError.
    """
    topic = ConfigResource(ConfigResource.Type.TOPIC, name)
    told = deadline.answer_all(
        [name],
        lambda _: {name: admin.describe_configs([topic])[topic]},
        "to read the settings of topic",
        (KafkaError.UNKNOWN_TOPIC_OR_PART,),
    )[name]
    if isinstance(told, KafkaError):
        return {}
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        setting: str(told[setting].value)
        for setting in sorted(SEALED)
        if setting in told and told[setting].source == own
    }


def must_open(admin: AdminClient, name: str, own: Mapping[str, str], deadline: Deadline) -> None:
    """Asks Kafka whether it would open the topic, and changes nothing.

    Raises KafkaUnreachableError, and KafkaRefusedError if a right or a policy forbids it.
    """
    for settings in _steps(admin, name, own, deadline):
        ask = partial(change, admin, settings, only_asks=True)
        changed(ask([name]), ask, deadline, _DOING)


def open_again(
    admin: AdminClient,
    name: str,
    own: Mapping[str, str],
    brokers: Callable[[], Collection[int] | None],
    deadline: Deadline,
) -> None:
    """Gives a sealed topic its own settings again. Returns once every broker takes appends.

    A broker that shows the second change has put the first one into force. Nothing is to be done
    for a topic that is gone. Raises KafkaUnreachableError, KafkaRefusedError.
    """
    for settings in _steps(admin, name, own, deadline):
        ask = partial(change, admin, settings)
        if changed(ask([name]), ask, deadline, _DOING):
            return

    def is_open(_broker: int, _name: str, found: Mapping[str, str]) -> bool:
        return not is_sealed(found) and found.get(STAMP) != _PASSING_STAMP

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name)]
    await_known(admin, asked, is_open, brokers, deadline, _DOING.format(name=name))


def _steps(
    admin: AdminClient, name: str, own: Mapping[str, str], deadline: Deadline
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    wanted = {each: own.get(each) for each in (*own_settings(admin, name, deadline), *own)}
    return {**wanted, STAMP: _PASSING_STAMP}, {STAMP: own.get(STAMP)}
