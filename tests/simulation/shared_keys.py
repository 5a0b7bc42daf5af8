"""Keys that all producers of a topic write to, each in answer to another's acknowledged message.

What is seen of them is judged at the end by cause and effect alone (`devkit.causality`): when each
message was sent and acknowledged, where it lies, and in which order each group was given it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from anabranch.devkit.causality import Span, turned_round
from simulation.scheduler import ViolationError
from simulation.segment_store import Message

if TYPE_CHECKING:
    from simulation.producers import Producer
    from simulation.topic_world import TopicWorld

ANSWER_S_MAX = 0.1
ANSWERED = 0.8  # else it is the end of a chain
_MARK = "|shared."


def is_shared(key: str) -> bool:
    """Whether a key is one of these. Its messages' numbers tell them apart, and nothing more."""
    return _MARK in key


class SharedKeys:
    """Their messages and what became of them; a producer answers what it may have heard of."""

    def __init__(self, world: TopicWorld) -> None:
        self._world = world
        self._instants = itertools.count()
        self._numbers = itertools.count(1)
        self._spans: dict[Message, Span] = {}
        # By key: segment, a number that grows, message.
        self._stored: dict[str, list[tuple[int, int, Message]]] = defaultdict(list)
        self._delivered: dict[tuple[str, str], dict[Message, None]] = defaultdict(dict)
        self.answers = 0

    def of(self, topic: str) -> list[str]:
        """Those of a topic that is never deleted."""
        count = self._world.plan.shared_keys if topic in self._world.lasting else 0
        return [f"{topic}{_MARK}{each}" for each in range(count)]

    def new(self, key: str) -> Message:
        """A message that is sent at this instant."""
        message = Message(key, next(self._numbers))
        self._spans[message] = Span(next(self._instants))
        return message

    def acked(self, message: Message) -> None:
        """Its producer knows that it is stored; soon another one, or the same, answers it."""
        self._spans[message] = Span(self._spans[message].sent, next(self._instants))
        if self._world.faults_over or not self._world.sched.chance(ANSWERED):
            return
        topic = message.key.partition("|")[0]
        rng = self._world.sched.rng
        others = [each for each in self._world.producers if each.topic == topic]
        answer = partial(self._answer, rng.choice(others), message.key)
        self._world.sched.after(rng.uniform(0.0, ANSWER_S_MAX), answer)

    def _answer(self, producer: Producer, key: str) -> None:
        if producer.answer(key):
            self.answers += 1

    def stored(self, message: Message, segment_id: int) -> None:
        """Kafka has it, after all that it has of that segment. Raises ViolationError."""
        found = self._stored[message.key]
        if any(message == each for *_, each in found):
            raise ViolationError(f"{message} was stored twice")
        found.append((segment_id, len(found), message))

    def delivered(self, group: str, message: Message) -> None:
        """An application of the group is given it, perhaps again."""
        self._delivered[group, message.key].setdefault(message)

    def unread(self, group: str, topic: str) -> list[str]:
        """What the group has still to be given."""
        return [
            f"{group} has not {message}"
            for key in self.of(topic)
            for *_, message in self._stored[key]
            if message not in self._delivered[group, key]
        ]

    def judge(self) -> None:
        """Raises ViolationError when an effect came before its cause anywhere."""
        for key, found in self._stored.items():
            self._judge(f"stored with {key}", [message for *_, message in sorted(found)])
        # Who is put somewhere else may be given later messages first.
        if not self._world.plan.seeks:
            for (group, key), messages in self._delivered.items():
                self._judge(f"delivered to {group} of {key}", list(messages))

    def _judge(self, what: str, order: list[Message]) -> None:
        for turned in turned_round(order, self._spans):
            raise ViolationError(
                f"{what}: {turned.effect} comes before {turned.cause}, which had been acknowledged "
                "when it was sent"
            )
