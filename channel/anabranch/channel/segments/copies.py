"""The knowledge of each broker that has a copy of a segment, asked by connections of our own.

librdkafka asks one broker for a topic's setting only together with all settings of that broker,
which are some 300. That takes ten times as long, while producers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.kafka.propagation import Known

Address = tuple[str, int]


class Views(Protocol):
    """Asks brokers at the same time. A broker that does not answer is left out."""

    def settings(
        self, brokers: Iterable[Address], topics: Sequence[str], names: Collection[str]
    ) -> Mapping[Address, Mapping[str, Mapping[str, str]]]: ...
    def epochs(
        self, brokers: Iterable[Address], topics: Sequence[str]
    ) -> Mapping[Address, Mapping[Place, int]]: ...
    def close(self) -> None: ...


def await_shown(
    views: Views,
    topics: Sequence[str],
    settings: Collection[str],
    known: Known,
    brokers: Callable[[], Mapping[int, Address] | None],
    deadline: Deadline,
    doing: str,
) -> bool:
    """Returns True once `known` holds of the settings of each topic, as all brokers show them.

    False: a broker does not tell, so librdkafka has to ask. `brokers`: numbers and addresses of the
    brokers that have to know; None while nobody can tell. Raises KafkaUnreachableError.
    """
    knowing: set[int] = set()
    while True:
        there = brokers()
        if there is not None:
            left = {number: there[number] for number in there.keys() - knowing}
            told = views.settings(left.values(), topics, settings)
            for number, address in left.items():
                shown = told.get(address, {})
                if not shown.keys() >= set(topics):
                    return False
                if all(known(number, topic, shown[topic]) for topic in topics):
                    knowing.add(number)
            if knowing.issuperset(there):
                return True
        deadline.pause(doing)


def newest_epochs(
    views: Views, topics: Sequence[str], brokers: Mapping[int, Address]
) -> dict[Place, int]:
    """The newest epoch under which each partition is led, as far as these brokers have read."""
    newest: dict[Place, int] = {}
    for epochs in views.epochs(brokers.values(), topics).values():
        for place, epoch in epochs.items():
            newest[place] = max(epoch, newest.get(place, -1))
    return newest
