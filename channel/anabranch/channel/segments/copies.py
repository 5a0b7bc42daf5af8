"""The knowledge of each broker that has a copy of a segment, asked by connections of our own.

librdkafka asks one broker for a topic's setting only together with all settings of that broker,
which are some 300. That takes ten times as long, while producers wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from anabranch.channel.kafka.deadline import Deadline
from anabranch.channel.kafka.offsets import Place
from anabranch.channel.kafka.propagation import Known

Address = tuple[str, int]


class Views(Protocol):
    """Each broker's knowledge of topics. None: it cannot be asked, or does not tell of all."""

    def settings(
        self, broker: Address, topics: Sequence[str], names: Collection[str]
    ) -> Mapping[str, Mapping[str, str]] | None: ...
    def epochs(self, broker: Address, topics: Sequence[str]) -> Mapping[Place, int] | None: ...
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
    """Returns True once `known` holds for each broker's answer on each topic; False: ask otherwise.

    `brokers`: the brokers that have to know, None while that cannot be told. Raises
    KafkaUnreachableError.
    """
    knowing: set[int] = set()
    while True:
        there = brokers()
        if there is not None:
            for number in there.keys() - knowing:
                told = views.settings(there[number], topics, settings)
                if told is None:
                    return False
                if all(known(number, topic, told[topic]) for topic in topics):
                    knowing.add(number)
            if knowing.issuperset(there):
                return True
        deadline.pause(doing)


def newest_epochs(
    views: Views, topics: Sequence[str], brokers: Mapping[int, Address]
) -> dict[Place, int]:
    """The newest epoch under which each partition is led, as far as these brokers have read."""
    newest: dict[Place, int] = {}
    for address in brokers.values():
        for place, epoch in (views.epochs(address, topics) or {}).items():
            newest[place] = max(epoch, newest.get(place, -1))
    return newest
