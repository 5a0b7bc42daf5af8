"""The threads in which a node changes segments' Kafka topics, and the meaning of each task there.

A task that Kafka does not answer costs its thread the whole deadline. One topic's trouble must not
delay others. So a first try gets a short deadline, and a later one a long deadline in a thread of
its own kind. Large tasks, which take Kafka a while, have a third thread. A fourth waits until Kafka
copies segments that take over from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from anabranch.broker.errors import UnavailableError
from anabranch.broker.topics.kafka_threads import KafkaThreads
from anabranch.channel.errors import KafkaRefusedError, KafkaUnreachableError
from anabranch.channel.kafka.connection import KafkaConnection
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.core.entities.segment import SegmentInfo
from anabranch.core.entities.topic import properties_dict, properties_flat
from anabranch.core.names import full_name
from anabranch.core.topics.findings import KafkaTopic
from anabranch.core.topics.kafka_names import kafka_group, kafka_topic
from anabranch.core.topics.tasks import (
    MakeSegments,
    SealSegments,
    Task,
    TaskDone,
    TaskFailed,
)
from anabranch.wire import clock
from anabranch.wire.kafka.described import BrokerViews, TopicDescriber
from anabranch.wire.kafka.protocol import KafkaProtocolError, bootstrap_addresses, can_ask

_T = TypeVar("_T")

_ASK_S_MAX: Final = 2.0
_VIEW_S_MAX: Final = 0.4  # it takes a hundredth of that, and producers wait
_QUEUE_MAX: Final = 10_000
_FIRST_S: Final = 1.5  # Kafka answers within a tenth of it
_AGAIN_S: Final = 5.0
_BOUND_S: Final = 3.0  # each broker has to show two settings of an adopted topic
_LARGE: Final = 512  # partitions of one task
_TROUBLED_MAX: Final = 10_000
_COPIES_S: Final = 2.0  # Kafka needs a good second, where no broker is in trouble
_PARTITIONS_PER_S: Final = 500  # a slow Kafka can be expected to make these
_IDS_MAX: Final = 1_000  # of one record
_IDS_S: Final = 0.5
_STRAYS_MAX: Final = 10_000  # of a segment that are counted


class KafkaSegments(SegmentAdmin):
    """The channel's `SegmentAdmin`, for use by one thread, which looks at topics by fewer bytes.

    If Kafka cannot be asked so (`can_ask`), librdkafka asks it. librdkafka tells all settings of a
    topic, and one setting of a broker only with all its others.
    """

    def __init__(self, connection: KafkaConnection, settings: SegmentSettings) -> None:
        security, asks = connection.security, can_ask(connection.security)
        super().__init__(connection, settings, BrokerViews(security, _VIEW_S_MAX) if asks else None)
        brokers = bootstrap_addresses(connection.bootstrap_servers)
        self._describer = TopicDescriber(brokers, security, _ASK_S_MAX) if asks else None

    def close(self) -> None:
        """Ends the connections, too."""
        if self._describer is not None:
            self._describer.close()
        super().close()

    def look(self, topics: Sequence[str], deadline_s: float) -> dict[str, KafkaTopic | None]:
        deadline = clock.now() + deadline_s
        if self._describer is not None:
            with suppress(OSError, KafkaProtocolError):  # librdkafka tells the fault
                return self._describer.described(topics, self.told)
        return super().look(topics, deadline - clock.now())


class WorkerPool:
    """The workers of a node.

    One does first tries, one large tasks, one tasks in trouble, one waits for copies, and one looks
    at the topics there are.
    """

    def __init__(
        self,
        open_keeper: Callable[[], SegmentAdmin],
        prefix: str,
        copies: int,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._prefix = prefix
        self._copies = copies
        self._now = now
        self._first, self._large, self._again, self._copying, self._looking = self._all = [
            KafkaThreads("changes of Kafka topics", open_keeper, _QUEUE_MAX) for _ in range(5)
        ]
        self._troubled: dict[str, None] = {}  # topics and groups whose last try got no answer

    def task(self, task: Task) -> Future[TaskDone | TaskFailed]:
        """Returns the task's outcome.

        Children count as made once Kafka copies them, or after a while. Nothing waits for them yet,
        but all producers do once their parents refuse. Raises UnavailableError when too many tasks
        wait.
        """
        partitions = sum(part.buckets for part in task.segments)
        slow_s = partitions / _PARTITIONS_PER_S
        if partitions > _LARGE:
            worker, deadline_s = self._large, _AGAIN_S + slow_s
        else:
            worker, deadline_s = self._for(task.topic)
            deadline_s += slow_s
        if isinstance(task, SealSegments) and (
            task.opened is not None or any(part.is_legacy for part in task.segments)
        ):
            deadline_s += _BOUND_S
        future = worker.submit(lambda keeper: carry_out(keeper, task, self._prefix, deadline_s))
        future.add_done_callback(lambda done: self._note(task.topic, _timed_out(done)))
        made = [topic for topic in _topics(task, self._prefix) if not topic.is_legacy]
        if isinstance(task, MakeSegments) and _are_children(task) and made and self._copies > 1:
            return self._copied(future, made)
        return future

    def _copied(
        self, made: Future[TaskDone | TaskFailed], topics: list[SegmentTopic]
    ) -> Future[TaskDone | TaskFailed]:
        """The same outcome, later: the time of each counts from its making, so none adds up."""
        outcome: Future[TaskDone | TaskFailed] = Future()

        def wait(_: object) -> None:
            if made.cancelled() or made.exception() or isinstance(made.result(), TaskFailed):
                _pass_on(made, outcome)
                return
            until = self._now() + _COPIES_S

            def look(keeper: SegmentAdmin) -> None:
                if (left_s := until - self._now()) > 0:
                    keeper.await_copies(topics, left_s)

            try:
                copied = self._copying.submit(look)
            except UnavailableError:  # the node stops, or has no thread to spare
                _pass_on(made, outcome)
            else:
                copied.add_done_callback(lambda done: _pass_on(made, outcome, done))

        made.add_done_callback(wait)
        return outcome

    def start_share_group(self, group: str) -> Future[None]:
        """Lets the group begin at the first message. Raises UnavailableError as `task`."""
        worker, deadline_s = self._for(group)
        future = worker.submit(lambda keeper: keeper.start_share_groups([group], deadline_s))
        future.add_done_callback(lambda done: self._note(group, _timed_out(done)))
        return future

    def look(self, topics: Sequence[str]) -> Future[dict[str, KafkaTopic | None]]:
        """Returns Kafka's entries of these topics. Raises as `task`."""
        return self._looking.submit(lambda keeper: keeper.look(topics, _AGAIN_S))

    def seal_again(self, topic: SegmentTopic) -> Future[dict[str, tuple[int, ...]]]:
        """Makes Kafka refuse every append once more. Raises as `task`."""
        return self._looking.submit(lambda keeper: keeper.seal([topic], _AGAIN_S))

    def strays(self, topic: str, ends: Sequence[int]) -> Future[dict[int, list[int]]]:
        """Returns the messages behind these ends, by partition. Raises as `task`."""
        return self._looking.submit(
            lambda keeper: keeper.strays(topic, ends, _AGAIN_S, _STRAYS_MAX)
        )

    def retain(self, topics: Sequence[str]) -> Future[None]:
        """Has Kafka keep messages of these as the settings say now. Raises as `task`."""
        deadline_s = _AGAIN_S + len(topics) / _PARTITIONS_PER_S
        return self._again.submit(lambda keeper: keeper.retain(topics, deadline_s))

    def delete_group(self, group: str) -> Future[list[str]]:
        """Deletes the group; returns it if it has members yet. No caller waits.

        Raises as `task`.
        """
        return self._again.submit(lambda keeper: keeper.delete_groups([group], _AGAIN_S))

    def close(self) -> None:
        """Ends the threads, and waits for tasks under way; never called in the loop."""
        for worker in self._all:
            worker.abandon()
        for worker in self._all:
            worker.close()

    def _for(self, name: str) -> tuple[KafkaThreads[SegmentAdmin], float]:
        if name in self._troubled:
            return self._again, _AGAIN_S
        return self._first, _FIRST_S

    def _note(self, name: str, troubled: bool) -> None:
        """Called in a worker's thread; each of these steps is one for all threads."""
        self._troubled.pop(name, None)
        if troubled and len(self._troubled) < _TROUBLED_MAX:
            self._troubled[name] = None


def _timed_out(future: Future[Any]) -> bool:
    """Returns whether Kafka gave no answer, which takes time; refusals come at once."""
    if future.cancelled():
        return False
    error = future.exception()
    if error is not None:
        return isinstance(error, KafkaUnreachableError)
    result = future.result()
    return isinstance(result, TaskFailed) and not result.for_good


def carry_out(
    keeper: SegmentAdmin,
    task: Task,
    prefix: str,
    deadline_s: float,
) -> TaskDone | TaskFailed:
    """Does the task in Kafka; `prefix` begins the names of all Kafka topics."""
    topics = _topics(task, prefix)
    try:
        if isinstance(task, SealSegments):
            ids: list[str] = []

            def ask_ids() -> None:
                ids.extend(_topic_ids(keeper, task, task.children, prefix))

            ends = keeper.seal(topics, deadline_s, ask_ids)
            if (opened := task.opened) is not None:  # from here on others write to it again
                own = properties_dict(task.own_settings)
                keeper.open_again(opened.legacy_topic, own, deadline_s)
            found = tuple(end for topic in topics for end in ends[topic.name])
            return TaskDone(found, tuple(ids))
        if isinstance(task, MakeSegments):
            adopted = [part for part in (*task.segments, *task.legacy) if part.is_legacy]
            must_be_as_adopted(keeper, adopted)
            if (opened := task.opened) is not None:  # once all is sealed it is too late to refuse
                own = properties_dict(task.own_settings)
                keeper.must_open(opened.legacy_topic, own, deadline_s)
            topics = [topic for topic in topics if not topic.is_legacy]
            keeper.create(topics, deadline_s)
            if not _are_children(task):  # a new topic is used at once
                keeper.await_leaders(topics, deadline_s)
                return TaskDone(topic_ids=_topic_ids(keeper, task, task.segments, prefix))
            if task.legacy:
                own = keeper.own_settings(task.legacy[0].legacy_topic, deadline_s)
                return TaskDone(own_settings=properties_flat(own))
        else:
            keeper.delete([topic.name for topic in topics], deadline_s)
            groups = [kafka_group(prefix, task.topic, *named) for named in task.subscriptions]
            if groups:
                keeper.delete_groups(groups, deadline_s)
    except KafkaRefusedError as error:
        return TaskFailed(str(error), for_good=True)
    except KafkaUnreachableError as error:
        return TaskFailed(str(error))
    except KafkaException as error:  # an answer of Kafka's client, so no fault of this node
        return TaskFailed(
            f"Kafka's client failed for the segments of {full_name(task.topic)}: {error}"
        )
    return TaskDone()


def _topics(task: Task, prefix: str) -> list[SegmentTopic]:
    return [
        SegmentTopic(
            kafka_topic(prefix, task.topic, task.incarnation, part), part.buckets, part.is_legacy
        )
        for part in task.segments
    ]


def must_be_as_adopted(keeper: SegmentAdmin, parts: Sequence[SegmentInfo]) -> None:
    """Raises KafkaRefusedError unless these Kafka topics have their ids and partitions yet."""
    found = keeper.look([part.legacy_topic for part in parts], _IDS_S) if parts else {}
    for part in parts:
        there = found.get(part.legacy_topic)
        if there is None:
            if part.legacy_topic not in found:
                raise KafkaUnreachableError(f"Kafka did not describe topic {part.legacy_topic}")
            raise KafkaRefusedError(f"Kafka has no topic {part.legacy_topic} any more")
        if part.topic_id and there.topic_id != part.topic_id:
            raise KafkaRefusedError(
                f"Kafka topic {part.legacy_topic} was deleted and made anew since its adoption, "
                f"with id {there.topic_id} and not {part.topic_id}"
            )
        if there.partitions != part.buckets:
            remedy = "release it and adopt it again"
            if part.start_offsets:
                remedy = "it cannot be given back; delete its scalable topic, and it stays sealed"
            raise KafkaRefusedError(
                f"Kafka topic {part.legacy_topic} had {part.buckets} partitions at its adoption "
                f"and has {there.partitions}: {remedy}"
            )


def _are_children(task: MakeSegments) -> bool:
    return any(part.parent_ids for part in task.segments)


def _pass_on(made: Future[_T], outcome: Future[_T], then: Future[None] | None = None) -> None:
    """Sets `made`'s outcome, or the fault of the step after it."""
    fault = None if then is None or then.cancelled() else then.exception()
    if made.cancelled():
        outcome.cancel()
    elif (error := made.exception() or fault) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(made.result())


def _topic_ids(
    keeper: SegmentAdmin, task: Task, parts: Sequence[SegmentInfo], prefix: str
) -> tuple[str, ...]:
    """Returns Kafka's ids of new segments' topics; "" for a topic that it does not tell yet.

    Nothing waits for the ids. A missing one is known to one controller at a time, from its looks.
    """
    names = [kafka_topic(prefix, task.topic, task.incarnation, part) for part in parts]
    if not 0 < len(names) <= _IDS_MAX:
        return ()
    found = keeper.look(names, _IDS_S)
    return tuple(there.topic_id if (there := found.get(name)) else "" for name in names)
