"""Whether every broker that has a copy of a sealed segment obeys the seal, or will when it leads.

A broker reads metadata in rounds. What it has read it shows at once, and then puts into force:
first who leads, last the settings. The next round begins when that is done. So one that has read in
one round of the seal and that it leads now leads for a while without refusing; of what a later
round says it leads, it refuses everything from the first moment on.

So each is asked whether it has read of the seal, and *after that* who leads. Whatever it does not
show then it reads in a later round. Once all of them show the same leaders under the same epochs,
those leaders alone may not have put the seal into force. They are who is to be probed (`sealing`):
a former leader, which has not put into force that it leads no more, may refuse as well, and proves
nothing. Where somebody else has come to lead before all have read of the seal, they disagree, and
are asked again. Both questions are answered from what a broker has read, whole (Kafka 4.3.1,
`KRaftMetadataCache`), and neither is sent on to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from anabranch.channel.kafka.deadline import Deadline

Address = tuple[str, int]
Leaders = Mapping[str, Mapping[int, tuple[int, int]]]  # by topic and partition: broker, epoch

_NOBODY: Final[Mapping[str, str]] = {}


class Views(Protocol):
    """What each broker has read of topics. None: it cannot be asked."""

    def settings(
        self, broker: Address, topics: Sequence[str], names: Collection[str]
    ) -> Mapping[str, Mapping[str, str]] | None: ...
    def leaders(self, broker: Address, topics: Sequence[str]) -> Leaders | None: ...
    def close(self) -> None: ...


def await_seal_read(
    views: Views,
    topics: Sequence[str],
    seal: Mapping[str, str],
    brokers: Callable[[], Mapping[int, Address] | None],
    deadline: Deadline,
    doing: str,
) -> Leaders | None:
    """Returns who leads once nobody else can take an append, now or later; None: nobody can tell.

    `brokers`: those that live and have one of several copies, None while that cannot be told.
    Raises KafkaUnreachableError.
    """
    shown: dict[int, Leaders] = {}
    while True:
        there = brokers()
        if there is not None:
            for number in there.keys() - shown.keys():
                told = views.settings(there[number], topics, tuple(seal))
                if told is None:
                    return None
                if any(seal.items() - told.get(topic, _NOBODY).items() for topic in topics):
                    continue
                leaders = views.leaders(there[number], topics)
                if leaders is None:
                    return None
                shown[number] = leaders
            if shown.keys() >= there.keys():
                first, *others = [shown[number] for number in there] or [{}]
                if all(each == first for each in others):
                    return first
                shown.clear()
        deadline.pause(doing)
