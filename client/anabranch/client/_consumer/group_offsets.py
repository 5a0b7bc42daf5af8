"""`GroupOffsets`: the committed offsets of a group, and Kafka's ranges of buckets. It reads no
messages.

It has a client and a thread of its own. It waits for Kafka, which must not hold up the polling
thread. A commit that waits does not end while another thread polls the same client (librdkafka
2.16).

A late commit would overwrite its successor's. So a commit does not begin when the consumer's
session is nearly over, even after a long wait in the queue of the thread. librdkafka's patience is
a small part of the session, with a missing group coordinator (`session.timeout.ms`) and with an
answer. It checks once a second if its patience with the coordinator is over.
`ConsumerCore.commits_until` leaves enough time: a commit ends a tenth of a session before another
consumer can have the bucket.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from anabranch.client._consumer.assignment import Partition
from anabranch.client._kafka_options import CONSUMER, made
from anabranch.core.subscriptions.known_positions import parts_of
from anabranch.wire import clock

_T = TypeVar("_T")

_ASK_S_MAX: Final = 3.0
_REQUEST_BYTES_MAX: Final = 400_000  # of maps; Kafka's own topic takes batches of 1 MB
_PATIENCE: Final = 0.15  # with the coordinator, and with an answer, in session times


class Position(NamedTuple):
    """A position to commit, or a committed one; `map`: of what is done above it (`gaps`)."""

    offset: int
    map: str = ""


class Answers(NamedTuple, Generic[_T]):
    """Kafka's answer for each partition: the value found, or the error of a refusal."""

    found: dict[Partition, _T]
    refused: dict[Partition, KafkaError]


def patience_s(session_s: float) -> float:
    """Returns the seconds that a commit may wait, once for the group's coordinator and once for its
    answer.
    """
    return _PATIENCE * session_s


class GroupOffsets:
    """Make it and use it on one event loop. `session_s` is the length of the consumer's session.

    Each commit carries `mark`. Offsets with another mark are not believed
    (`anabranch.core.subscriptions.known_positions`).
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        session_s: float,
        mark: str,
        now: Callable[[], float] = clock.now,
    ) -> None:
        patience_ms = int(1_000 * patience_s(session_s))
        patience = {
            "session.timeout.ms": patience_ms,
            "heartbeat.interval.ms": patience_ms // 3,
            "socket.timeout.ms": patience_ms,
        }
        self._properties = {**CONSUMER, **patience, **kafka}
        self._mark = mark
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "anabranch-offsets")

    async def committed(self, partitions: Iterable[Partition]) -> Answers[Position]:
        """Returns the group's committed positions of this mark. Raises KafkaException."""
        asked = [TopicPartition(*partition) for partition in partitions]
        told = await self._ask(lambda: self._client.committed(asked, timeout=_ASK_S_MAX))
        return known_of(told, self._mark)

    async def ranges(self, partitions: Iterable[Partition]) -> Answers[tuple[int, int]]:
        """Returns the first offset that Kafka still has, and the exclusive end of what it returns.

        That end is the start of the first open transaction, if there is one. Raises KafkaException.
        """
        asked = list(partitions)
        if not asked:
            return Answers({}, {})
        return await self._ask(lambda: ranges_by(self._client, asked, _ASK_S_MAX))

    async def at(self, partitions: Iterable[Partition], timestamp_ms: int) -> Answers[int]:
        """Returns the offsets of the first messages of that time or later, -1 for none.
        Raises KafkaException.
        """
        asked = [TopicPartition(*partition, timestamp_ms) for partition in partitions]
        told = await self._ask(lambda: self._client.offsets_for_times(asked, timeout=_ASK_S_MAX))
        return answers_of(told)

    async def commit(self, positions: Mapping[Partition, Position], until: float) -> Answers[int]:
        """Commits the positions. A commit that could not begin before `until` is neither found nor
        refused.

        Raises KafkaException after which some of them may be committed.
        """

        async def commit(some: Mapping[Partition, Position]) -> Answers[int]:
            given = marked(some, self._mark)
            return await self._ask(lambda: commit_now(given))

        def commit_now(given: list[TopicPartition]) -> Answers[int]:
            if self._now() > until:
                return Answers({}, {})
            return answers_of(self._client.commit(offsets=given, asynchronous=False) or ())

        return await committed_in_portions(positions, commit)

    def close(self) -> None:
        """Waits for questions that are under way."""
        self._thread.shutdown(wait=True)
        if "_client" in vars(self):
            self._client.close()

    @functools.cached_property
    def _client(self) -> Consumer:
        """The client, which the thread makes for the first question."""
        return made(Consumer, self._properties)

    async def _ask(self, question: Callable[[], _T]) -> _T:
        return await self._loop.run_in_executor(self._thread, question)


def ranges_by(
    client: Consumer, partitions: Collection[Partition], timeout_s: float
) -> Answers[tuple[int, int]]:
    """Returns the result of `GroupOffsets.ranges` for any group, through that client.
    Waits for the answers.
    """

    def listed(which: int) -> Answers[int]:
        # One request to each broker, unlike asking for watermarks, which takes a partition a time.
        asked = [TopicPartition(*partition, which) for partition in partitions]
        return answers_of(client.offsets_for_times(asked, timeout=timeout_s))

    first, end = listed(OFFSET_BEGINNING), listed(OFFSET_END)
    found = {
        place: (at, end.found[place]) for place, at in first.found.items() if place in end.found
    }
    return Answers(found, first.refused | end.refused)


def answers_of(told: Iterable[TopicPartition]) -> Answers[int]:
    """Sorts Kafka's answers into values and refusals."""
    answers: Answers[int] = Answers({}, {})
    for each in told:
        if each.error is not None:
            answers.refused[each.topic, each.partition] = each.error
        else:
            answers.found[each.topic, each.partition] = each.offset
    return answers


def known_of(told: Iterable[TopicPartition], mark: str) -> Answers[Position]:
    """Sorts Kafka's answers, without partitions that have no commit with that mark."""
    answers: Answers[Position] = Answers({}, {})
    for each in told:
        theirs, text = parts_of(each.metadata or "")
        if each.error is not None:
            answers.refused[each.topic, each.partition] = each.error
        elif theirs == mark:
            answers.found[each.topic, each.partition] = Position(each.offset, text)
    return answers


def marked(positions: Mapping[Partition, Position], mark: str) -> list[TopicPartition]:
    """Returns the positions in librdkafka's form, each with the mark, and its map behind that."""
    return [
        TopicPartition(*place, at, metadata=f"{mark} {text}" if text else mark)
        for place, (at, text) in positions.items()
    ]


def portions(positions: Mapping[Partition, Position]) -> Iterator[dict[Partition, Position]]:
    """Divides what is too much for one request: Kafka appends each as one batch of its own."""
    part: dict[Partition, Position] = {}
    size = 0
    for place, position in positions.items():
        if part and size + len(position.map) > _REQUEST_BYTES_MAX:
            yield part
            part, size = {}, 0
        part[place] = position
        size += len(position.map)
    yield part


async def committed_in_portions(
    positions: Mapping[Partition, Position],
    commit: Callable[[Mapping[Partition, Position]], Awaitable[Answers[int]]],
) -> Answers[int]:
    """Commits in as few requests as Kafka takes."""
    answers: Answers[int] = Answers({}, {})
    for part in portions(positions):
        found, refused = await _committed_apart(part, commit)
        answers.found.update(found)
        answers.refused.update(refused)
    return answers


async def _committed_apart(
    offsets: Mapping[Partition, Position],
    commit: Callable[[Mapping[Partition, Position]], Awaitable[Answers[int]]],
) -> Answers[int]:
    """Commits all together, or each topic by itself if Kafka lacks the topic of one.

    librdkafka (2.16) does not tell which topic Kafka lacks. The others are committed. Raises
    KafkaException for trouble of all.
    """
    try:
        return await commit(offsets)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            return Answers({}, dict.fromkeys(offsets, error.args[0]))
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        refused = dict.fromkeys(offsets, error.args[0])
    topics: dict[str, dict[Partition, Position]] = {}
    for place, offset in offsets.items():
        topics.setdefault(place[0], {})[place] = offset
    if len(topics) == 1:
        return Answers({}, refused)
    answers: Answers[int] = Answers({}, {})
    for some in topics.values():
        found, refused = await _committed_apart(some, commit)
        answers.found.update(found)
        answers.refused.update(refused)
    return answers
