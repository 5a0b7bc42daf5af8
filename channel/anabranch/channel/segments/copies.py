"""The knowledge of each broker that has a copy of a segment, asked by connections of our own.

librdkafka asks one broker for a topic's setting only together with all settings of that broker,
which are some 300. That takes ten times as long, while producers wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, ConfigResource

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.kafka.propagation import ask_broker, values_of
from anabranch.channel.segments.seal_settings import STAMP, is_sealed

Address = tuple[str, int]
Shown = Mapping[int, Mapping[str, Mapping[str, str]]]  # settings by broker and topic


class Views(Protocol):
    """Asks brokers at the same time. A broker that does not answer is left out."""

    def settings(
        self, brokers: Iterable[Address], topics: Sequence[str], names: Collection[str]
    ) -> Mapping[Address, Mapping[str, Mapping[str, str]]]: ...
    def epochs(
        self, brokers: Iterable[Address], topics: Sequence[str]
    ) -> Mapping[Address, Mapping[Place, int]]: ...
    def close(self) -> None: ...


class Obedience:
    """Tells from brokers' settings of topics whether they have put a seal into force. Pure.

    `sealing` says why a stamp tells it.
    """

    def __init__(self) -> None:
        self._newest: str | None = None
        self._first: dict[tuple[int, str], str] = {}  # the stamp that came with the seal
        self._obeying: set[tuple[int, str]] = set()  # brokers and topics

    @property
    def needs_stamp(self) -> bool:
        """True if no stamp on its way can tell of some broker that it obeys."""
        return self._newest is None or any(
            first == self._newest and each not in self._obeying
            for each, first in self._first.items()
        )

    def stamped(self, stamp: int) -> str:
        """Takes note of a stamp that is being written, and returns its text."""
        self._newest = str(stamp)
        return self._newest

    def take(self, shown: Shown) -> bool:
        """Takes note of the settings that brokers show. Tells whether one of them is news."""
        known = len(self._first), len(self._obeying)
        for broker, topics in shown.items():
            for topic, settings in topics.items():
                if not is_sealed(settings):
                    continue
                stamp = settings[STAMP]
                # Another sealer's stamp will do: this broker read it in a round after the seal.
                if self._first.setdefault((broker, topic), stamp) != stamp:
                    self._obeying.add((broker, topic))
        return known != (len(self._first), len(self._obeying))

    def of(self, brokers: Iterable[int], topics: Collection[str]) -> bool:
        """Tells whether all these brokers obey for all these topics."""
        return all((broker, topic) in self._obeying for broker in brokers for topic in topics)


def what_is_shown(
    views: Views | None,
    admin: AdminClient,
    brokers: Mapping[int, Address],
    topics: Sequence[str],
    settings: Collection[str],
    deadline: Deadline,
    doing: str,
) -> Shown:
    """The settings of topics as each of the brokers shows them now, as far as it answers.

    librdkafka asks where `views` gets no answer. Raises KafkaUnreachableError, KafkaRefusedError.
    """
    shown: dict[int, Mapping[str, Mapping[str, str]]] = {}
    if views is not None:
        told = views.settings(brokers.values(), topics, settings)
        shown = {
            number: told[address]
            for number, address in brokers.items()
            if told.get(address, {}).keys() >= set(topics)
        }
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    futures = {
        number: ask_broker(admin, number, asked) for number in brokers if number not in shown
    }
    return shown | {
        number: {
            name: values_of(answer)
            for name, future in answers.items()
            if not isinstance(answer := deadline.answer(future, doing), KafkaError)
        }
        for number, answers in futures.items()
    }


def newest_epochs(
    views: Views, topics: Sequence[str], brokers: Mapping[int, Address]
) -> dict[Place, int]:
    """The newest epoch under which each partition is led, as far as these brokers have read."""
    newest: dict[Place, int] = {}
    for epochs in views.epochs(brokers.values(), topics).values():
        for place, epoch in epochs.items():
            newest[place] = max(epoch, newest.get(place, -1))
    return newest
