"""`anabranch doctor --probe`: what a Kafka does with topics like those of segments.

All is tried on scratch topics, and on groups of their names. They are deleted at the end. Those of
a doctor that died are deleted by the next.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic

from anabranch.broker.node.startup import segment_settings
from anabranch.broker.settings import Settings
from anabranch.channel.kafka.connection import KAFKA_S_MAX, KafkaConnection
from anabranch.channel.kafka.deadline import must_pass
from anabranch.channel.kafka.deletion import delete_records, led
from anabranch.channel.kafka.makes import Make
from anabranch.channel.kafka.offsets import LATEST
from anabranch.channel.kafka.propagation import values_of
from anabranch.channel.segments.admin import SegmentAdmin, SegmentSettings, new_topic
from anabranch.channel.segments.positions import GroupPositions
from anabranch.channel.segments.sealing import SegmentTopic
from anabranch.cli.node import judgement
from anabranch.cli.node.findings import Finding, NotWellError, checked
from anabranch.cli.topics.words import count_of
from anabranch.client import share_state
from anabranch.core.errors import AnabranchError
from anabranch.wire import clock

_POLL_S: Final = 0.5
_KEPT_S: Final = 5.0  # within which each broker knows the topic and shows settings that it keeps
_APPEND_S: Final = 10.0
_PROBE_MS: Final = 1 << 55
_TOPICS: Final = 10
_RANDOM_BYTES: Final = 6  # of each name
_MARK: Final = "doctor"
_DOING: Final = "to join share group"


class _Scratch(msgspec.Struct, frozen=True):
    """The clients, and the name of what they try things on."""

    name: str
    make: Make
    wanted: SegmentSettings
    connection: KafkaConnection
    segments: SegmentAdmin
    admin: AdminClient

    @property
    def queue(self) -> str:
        """Its topic, and its group."""
        return f"{self.name}.queue"

    @property
    def more(self) -> list[str]:
        """Topics that are made in a row."""
        return [f"{self.name}.{number}" for number in range(_TOPICS)]


def probed(
    settings: Settings, connection: KafkaConnection, make: Make, *, has_queues: bool
) -> Iterator[Finding]:
    """Yields a finding for each step.

    `has_queues`: False where Kafka's calls tell already that queues will not work.
    """
    head, wanted = f"{settings.topic_prefix}doctor.", segment_settings(settings)
    with contextlib.closing(SegmentAdmin(connection, wanted)) as segments:
        name, admin = f"{head}{secrets.token_hex(_RANDOM_BYTES)}", connection.admin()
        at = _Scratch(name, make, wanted, connection, segments, admin)
        before = _judged(at, "leftovers", lambda: _clear(at, scratch_names(head)))
        yield before
        if not before.ok:
            return
        try:
            yield from _steps(at, settings.auto_scale_policy.entry_bucket_budget, has_queues)
        finally:
            after = _judged(at, "leftovers", lambda: _clear(at, _names(re.escape(name))))
        if not after.ok:
            yield after


def scratch_names(head: str) -> re.Pattern[str]:
    """Returns the expression that matches, as a whole, what doctors make under this head.

    Others may have names that only begin so: an own topic, or a cluster with a longer prefix.

    >>> names = scratch_names("eu.doctor.")
    >>> [bool(names.fullmatch(f"eu.doctor.{each}")) for each in ("0a1b2c3d4e5f.queue", "visits")]
    [True, False]
    """
    return _names(rf"{re.escape(head)}[0-9a-f]{{{2 * _RANDOM_BYTES}}}")


def _names(name: str) -> re.Pattern[str]:
    return re.compile(rf"{name}(\.(queue|placed|\d+))?")


def _clear(at: _Scratch, names: re.Pattern[str]) -> Finding:
    """Deletes the topics and groups whose whole names match."""
    there = at.admin.list_topics(timeout=KAFKA_S_MAX).topics
    found = set(filter(names.fullmatch, there))
    made = {at.name, at.queue, *at.more}  # a broker may not know of the newest yet
    at.segments.delete(found | made, KAFKA_S_MAX)
    with contextlib.suppress(AnabranchError):  # it may have no groups, or give no right to them
        with contextlib.closing(GroupPositions(at.connection)) as groups:
            left = filter(names.fullmatch, groups.unused_groups("", KAFKA_S_MAX))
        at.segments.delete_groups({at.name, at.queue, *left}, KAFKA_S_MAX)
    told = f"{count_of(len(found), 'topic')} of a doctor that died, deleted" if found else "none"
    return Finding("leftovers", ok=True, found=told)


def _steps(at: _Scratch, buckets: int, has_queues: bool) -> Iterator[Finding]:
    found, made_s = _settings(at)
    yield found
    if made_s is None:  # there is nothing to try more on
        return
    looks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("placement", lambda: _placement(at)),
        ("idempotence", lambda: _idempotence(at)),
        ("time bound", lambda: judgement.judge_bound(_appended(at, _PROBE_MS))),
        ("groups", lambda: _groups(at)),
    )
    for check, look in looks:
        yield _judged(at, check, look)
    if has_queues:
        take = partial(take_record, at.connection, at.segments, at.queue)
        yield checked("share groups", take)
    began = clock.now()
    yield from _sealed(at)
    split_s = made_s + clock.now() - began
    yield _judged(at, "pace", lambda: _pace(at, split_s))
    yield _judged(at, "room", lambda: _room(at, buckets))


def _judged(at: _Scratch, check: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except AnabranchError as error:
        return Finding(check, ok=False, found=str(error))
    except KafkaException as error:
        told = at.connection.explained(error, f"to try {check} on topic {at.name}")
        return Finding(check, ok=False, found=str(told))


def _settings(at: _Scratch) -> tuple[Finding, float | None]:
    """In how many seconds the topic was there and led; None if there is none."""
    new = new_topic(at.wanted, at.name, 1)
    wanted: Mapping[str, str] = new.config or {}
    try:
        at.admin.create_topics([new], validate_only=True)[at.name].result(KAFKA_S_MAX)
        began = clock.now()
        at.segments.create([SegmentTopic(at.name, 1)], KAFKA_S_MAX)
        at.segments.await_leaders([SegmentTopic(at.name, 1)], KAFKA_S_MAX)
        made_s = clock.now() - began
    except KafkaException as error:
        return judgement.judge_settings(wanted, {}, error.args[0].str()), None
    except AnabranchError as error:
        return judgement.judge_settings(wanted, {}, str(error)), None
    return _kept(at, wanted), made_s


def _kept(at: _Scratch, wanted: Mapping[str, str]) -> Finding:
    end = clock.now() + _KEPT_S
    while True:
        found = _judged(
            at, "segment settings", lambda: judgement.judge_settings(wanted, _shown(at))
        )
        if found.ok or clock.now() >= end:
            return found
        time.sleep(_POLL_S)


def _shown(at: _Scratch) -> dict[str, str]:
    topic = ConfigResource(ConfigResource.Type.TOPIC, at.name)
    return values_of(at.admin.describe_configs([topic])[topic].result(KAFKA_S_MAX))


def _placement(at: _Scratch) -> Finding:
    brokers = sorted(at.admin.list_topics(at.name, timeout=KAFKA_S_MAX).brokers)
    name = f"{at.name}.placed"
    new = NewTopic(name, 1, replica_assignment=[brokers[: at.wanted.replication_factor]])
    try:
        at.admin.create_topics([new], validate_only=True)[name].result(KAFKA_S_MAX)
    except KafkaException as error:
        return judgement.judge_placement(error.args[0].str())
    return judgement.judge_placement("")


def _idempotence(at: _Scratch) -> Finding:
    producer, offsets, refused = at.connection.producer(), list[int](), list[str]()

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset() or 0)
        else:
            refused.append(error.str())

    try:
        for _ in range(2):
            producer.produce(at.name, b"from anabranch doctor", partition=0, on_delivery=answered)
            if producer.flush(_APPEND_S):
                refused.append(f"no answer in {_APPEND_S:g} s")
                break
    finally:
        producer.purge()
        producer.close()
    return judgement.judge_sequence(offsets, "; ".join(refused))


def _appended(at: _Scratch, timestamp_ms: int = 0) -> str:
    """The name of the error that the smallest batch is answered with, "" if it is stored."""
    producer: KafkaProducer = at.connection.producer(
        enable_idempotence=False, acks=1, message_send_max_retries=0
    )
    answers: list[str] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        answers.append("" if error is None else str(error.name()))

    try:
        producer.produce(
            at.name, b"", partition=0, timestamp=timestamp_ms, on_delivery=answered
        )  # 0 is now
        producer.flush(_APPEND_S)
    finally:
        producer.purge()
        producer.close()
    return answers[0] if answers else "nothing"


def _groups(at: _Scratch) -> Finding:
    place = (at.name, 0)
    with contextlib.closing(GroupPositions(at.connection)) as groups:
        groups.commit(at.name, {place: 1}, _MARK, KAFKA_S_MAX)
        told = groups.committed(at.name, [place], KAFKA_S_MAX).get(place)
    at.segments.delete_groups([at.name], KAFKA_S_MAX)
    return judgement.judge_group(told.offset if told is not None else None, 1)


def _sealed(at: _Scratch) -> Iterator[Finding]:
    try:
        ends = at.segments.seal([SegmentTopic(at.name, 1)], KAFKA_S_MAX)
    except AnabranchError as error:
        found = _judged(at, "seal", lambda: judgement.judge_seal(at.make, {}, _appended(at)))
        yield Finding("seal", ok=False, found=str(error)) if found.ok else found
        return
    yield _judged(at, "seal", lambda: judgement.judge_seal(at.make, _shown(at), _appended(at)))
    yield _judged(at, "end", lambda: _end(at, ends[at.name][0]))


def _end(at: _Scratch, sealed_at: int) -> Finding:
    place, refused = (at.name, 0), ""
    leading = led(at.admin, [at.name], KAFKA_S_MAX)
    try:
        for future in delete_records(at.admin, {place: 0}, leading).values():
            future.result(KAFKA_S_MAX)
    except KafkaException as error:
        refused = error.args[0].str()
    with contextlib.closing(GroupPositions(at.connection)) as asked:
        later = [asked.offsets([place], LATEST, KAFKA_S_MAX)[place] for _ in range(2)]
    return judgement.judge_end(at.make, judgement.Ends(sealed_at, later), refused)


def _pace(at: _Scratch, split_s: float) -> Finding:
    throttled, began = False, clock.now()
    for name in at.more:
        asked = at.admin.create_topics([new_topic(at.wanted, name, 1)])[name]
        try:
            asked.result(KAFKA_S_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.THROTTLING_QUOTA_EXCEEDED:
                raise
            throttled = True
    return judgement.judge_pace(split_s, (clock.now() - began) / _TOPICS, throttled)


def _room(at: _Scratch, buckets: int) -> Finding:
    topics = at.admin.list_topics(timeout=KAFKA_S_MAX).topics.values()
    return judgement.judge_room(at.make, sum(len(each.partitions) for each in topics), buckets)


# --- share groups -----------------------------------------------------------------------


def take_record(connection: KafkaConnection, segments: SegmentAdmin, name: str) -> str:
    """Makes the topic, and says how long a record took through a share group of its name.

    Raises NotWellError, or as the channel.
    """
    segments.create([SegmentTopic(name, 1)], KAFKA_S_MAX)
    try:
        took_s = _taken(connection, name)
    finally:
        with contextlib.suppress(AnabranchError):  # that it is none, or is not allowed, is told
            segments.delete_groups([name], KAFKA_S_MAX)
    return f"a record came through a share group in {took_s:.1f} s"


def _taken(connection: KafkaConnection, name: str) -> float:
    """In how many seconds a record came back."""
    began, last = clock.now(), ""
    admin, producer = connection.admin(), connection.producer()
    consumer = connection.share_consumer(group_id=name)
    try:
        consumer.subscribe([name])
        while clock.now() < began + KAFKA_S_MAX:
            # Again and again: until the group has begun, it begins behind what is there.
            producer.produce(name, b"from anabranch doctor")
            producer.poll(0)
            for message in consumer.poll(_POLL_S):
                error = message.error()
                if error is None:
                    return clock.now() - began
                last = _noted(error, connection, name)
        is_missing = share_state.is_missing(admin)
    except KafkaException as error:
        _noted(error.args[0], connection, name)
        raise connection.explained(error, f"{_DOING} {name}") from None
    finally:
        consumer.close()
        producer.purge()
        producer.close()
    raise NotWellError(
        share_state.NOT_BEGUN
        if is_missing
        else f"share group {name} gave out no record in {KAFKA_S_MAX:g} s{last}: look for "
        f"{share_state.STATE_TOPIC} in the logs of Kafka's brokers; queues alone need this"
    )


def _noted(error: KafkaError, connection: KafkaConnection, name: str) -> str:
    """Raises NotWellError, KafkaRefusedError for what trying again does not mend."""
    if error.code() == KafkaError.UNSUPPORTED_VERSION:
        raise NotWellError(share_state.NOT_BEGUN)
    must_pass(error, f"{_DOING} {name}", connection.bootstrap_servers)
    return f"; Kafka said last: {error.str()}"
