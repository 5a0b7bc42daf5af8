"""Producers with names on a real Kafka: what they have stored is not stored again."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.client import (
    Client,
    DeliveryError,
    DuplicatesUnknownError,
    Producer,
    ProducerBusyError,
    ProducerFencedError,
    sync,
)
from anabranch.core.errors import InvalidInputError
from anabranch.devkit.kafka.embedded import EmbeddedKafka
from support.hand_made_topic import HandMadeTopic
from support.numbering import PADDING, key_of
from support.quiet import QUIET
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until

_NAME = "orders-db"


async def _named(client: Client, topic: HandMadeTopic, *, new_name: bool = False) -> Producer:
    return await client.create_producer(topic.name, name=_NAME, deduplicate=True, new_name=new_name)


async def _send(producer: Producer, first: int, end: int) -> list[bool]:
    """Returns which ones were stored before."""
    return [
        (await producer.send(b"%d" % number, key_of(number), sequence=number)).is_repeat
        for number in range(first, end)
    ]


def _each_once(made: HandMadeTopic, count: int, padding: bytes = b"") -> None:
    found = {
        key: [value.removesuffix(padding) for value in values]
        for key, values in made.by_key().items()
    }
    counts = Counter(int(value) for values in found.values() for value in values)
    assert [number for number in range(count) if counts[number] != 1] == []
    assert counts.total() == count
    assert all(values == sorted(values, key=int) for values in found.values())


async def test_what_is_stored_is_not_stored_again_after_a_restart(made: HandMadeTopic) -> None:
    first = await _named(made.client, made)
    assert first.sequence == -1
    await _send(first, 0, 100)
    assert first.sequence == 99
    await first.close()
    second = await _named(made.client, made)
    assert second.sequence == 99
    assert await _send(second, 0, 150) == [True] * 100 + [False] * 50
    await second.close()
    _each_once(made, 150)


async def test_a_second_one_is_refused_until_the_first_one_has_left(made: HandMadeTopic) -> None:
    async with Client(made.url) as other:
        first = await _named(made.client, made)
        await _send(first, 0, 10)
        with pytest.raises(ProducerBusyError, match="a name of its own"):
            await _named(other, made)
        await _send(first, 10, 20)
        await first.close()
        second = await _named(other, made)
        assert second.sequence == 19


async def test_two_that_begin_at_once_are_not_both_the_producer(made: HandMadeTopic) -> None:
    async with Client(made.url) as one, Client(made.url) as other:
        clients = (one, other)
        begun = await asyncio.gather(
            *(_named(client, made) for client in clients), return_exceptions=True
        )
        there = [each for each in begun if isinstance(each, Producer)]
        refused = [each for each in begun if isinstance(each, ProducerBusyError)]
        assert len(there) + len(refused) == len(begun)
        stored = 0
        for each in there:
            try:
                await _send(each, 0, 10)
                stored += 1
            except ProducerFencedError:
                pass
        assert stored <= 1
    async with await _named(made.client, made) as last:
        await _send(last, 0, 20)
    _each_once(made, 20)


async def test_its_numbers_go_on_over_splits_and_merges(made: HandMadeTopic) -> None:
    for turn in range(3):
        producer = await _named(made.client, made)
        await _send(producer, 0, 40 * turn + 20)
        await made.split(made.layout.active[0].segment_id)
        await _send(producer, 40 * turn + 20, 40 * turn + 30)
        first, second, *_ = sorted(made.layout.active, key=lambda part: part.start)
        await made.merge(first.segment_id, second.segment_id)
        await _send(producer, 40 * turn + 30, 40 * turn + 40)
        await (producer.close() if turn else _leave(producer))
    _each_once(made, 120)


# --- processes that end, or stand still -----------------------------------------------------


@asynccontextmanager
async def _process(made: HandMadeTopic, file: Path, count: int) -> AsyncIterator[Process]:
    where = (made.url, made.name, str(file), str(count), _NAME)
    program = (sys.executable, "-m", "support.numbering", *where)
    process = await asyncio.create_subprocess_exec(*program, stdout=PIPE, cwd="tests")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _noted(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _has(file: Path, count: int) -> bool:
    return _noted(file) > count


async def _finish(made: HandMadeTopic, file: Path, count: int) -> None:
    async with _process(made, file, count) as last:
        assert await asyncio.wait_for(last.wait(), WAIT_S) == 0


@pytest.mark.parametrize("segments", [2])
async def test_one_that_is_killed_over_and_over_amid_changes_stores_each_once(
    made: HandMadeTopic, tmp_path: Path
) -> None:
    count, file = 20_000, tmp_path / "noted"
    for turn in range(3):
        noted = _noted(file)
        async with _process(made, file, count) as process:
            await until(partial(_has, file, noted + 1_500))
            changing = asyncio.create_task(
                made.split(made.layout.active[0].segment_id) if turn % 2 == 0 else _merge(made)
            )
            await until(partial(_has, file, noted + 2_500))
            process.kill()
            await process.wait()
            await changing
    await _finish(made, file, count)
    _each_once(made, count, PADDING)


async def _merge(made: HandMadeTopic) -> None:
    first, second, *_ = sorted(made.layout.active, key=lambda part: part.start)
    await made.merge(first.segment_id, second.segment_id)


async def test_one_that_stands_still_for_longer_than_its_session_stores_nothing_more(
    made: HandMadeTopic, tmp_path: Path
) -> None:
    count, file = 30_000, tmp_path / "noted"
    async with _process(made, file, count) as older:
        await until(lambda: _noted(file) > 3_000)
        older.send_signal(signal.SIGSTOP)
        successor = await _named(made.client, made)  # which writes nowhere before that one goes on
        older.send_signal(signal.SIGCONT)
        assert older.stdout is not None
        said = await asyncio.wait_for(older.stdout.read(), WAIT_S)
        await older.wait()
        for number in range(successor.sequence + 1, count):
            await successor.post(b"%d" % number + PADDING, key_of(number), sequence=number)
        await successor.close()
    assert said.split()[-1:] == [b"ProducerFencedError"]
    _each_once(made, count, PADDING)


async def test_kafka_itself_refuses_what_a_former_process_has_yet_on_its_way(
    made: HandMadeTopic,
) -> None:
    async with Client(made.url) as other:
        older = await _named(other, made)
        await _send(older, 0, 20)
        await _stand_still(older)
        successor = await _named(made.client, made)
        older._named.may_append = lambda _: True  # type: ignore[union-attr, method-assign]
        with pytest.raises(ProducerFencedError, match="by now"):
            await _send(older, 20, 60)
        with pytest.raises(ProducerFencedError, match="by now"):
            await _send(older, 60, 61)
        await _send(successor, 0, 60)
    _each_once(made, 60)


async def test_nothing_is_sent_while_kafka_does_not_say_who_has_the_name(
    made: HandMadeTopic,
) -> None:
    producer = await made.client.create_producer(
        made.name, name=_NAME, deduplicate=True, delivery_timeout_s=1.0
    )
    await _send(producer, 0, 1)
    await _stand_still(producer)
    with pytest.raises(DeliveryError, match="could not be sent"):
        await _send(producer, 1, 2)
    with pytest.raises(DeliveryError, match="create it again"):
        await _send(producer, 2, 3)
    _each_once(made, 1)


async def _leave(producer: Producer) -> None:
    """Ends it as if a message had failed, so that its successor has to look what is stored."""
    assert producer._named is not None
    producer._named.numbers.failed = 0
    await producer.close()


async def _stand_still(producer: Producer) -> None:
    """Has it keep its name no longer."""
    named = producer._named
    assert named is not None
    assert named._task is not None
    named._task.cancel()
    await asyncio.wait([named._task])
    named._until = -1.0


# --- what is not known any more -------------------------------------------------------------


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({**QUIET, "bootstrap.servers": kafka.bootstrap_servers})


def _group(admin: AdminClient, made: HandMadeTopic) -> str:
    groups = admin.list_consumer_groups().result(WAIT_S).valid
    head = made.kafka_topic(made.layout.active[0]).partition("segment.")[0]
    (found,) = [each.group_id for each in groups if each.group_id.startswith(head)]
    return str(found)


async def test_a_lost_milestone_is_made_again_of_a_topic_of_which_nothing_is_gone(
    made: HandMadeTopic, admin: AdminClient
) -> None:
    producer = await _named(made.client, made)
    await _send(producer, 0, 50)
    await producer.close()
    admin.delete_consumer_groups([_group(admin, made)])[_group(admin, made)].result(WAIT_S)
    async with await _named(made.client, made) as producer:
        assert producer.sequence == -1
        assert await _send(producer, 0, 60) == [True] * 50 + [False] * 10
    _each_once(made, 60)


async def test_what_cannot_be_known_is_no_guess(made: HandMadeTopic, admin: AdminClient) -> None:
    producer = await _named(made.client, made)
    await _send(producer, 0, 50)
    await _leave(producer)
    group, topic = _group(admin, made), made.kafka_topic(made.layout.active[0])
    places = [TopicPartition(topic, 0, 1)]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    admin.alter_consumer_group_offsets(asked)[group].result(WAIT_S)
    with pytest.raises(DuplicatesUnknownError, match="begin under a new name"):
        await _named(made.client, made)
    with pytest.raises(DuplicatesUnknownError, match="begin under a new name"):
        await _named(made.client, made, new_name=True)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    for deleted in admin.delete_records(
        [TopicPartition(topic, each, 1) for each in range(4)]
    ).values():
        deleted.result(WAIT_S)
    with pytest.raises(DuplicatesUnknownError, match="new_name=True"):
        await _named(made.client, made)
    async with await _named(made.client, made, new_name=True) as producer:
        assert producer.sequence == -1


async def test_readers_of_real_segments_get_each_once_over_restarts_of_the_producer(
    cluster: TopicCluster, topic: str, client: Client
) -> None:
    """Each restart leaves an end of a transaction in each bucket, also the last one of a parent."""
    for turn in range(3):
        producer = await client.create_producer(topic, name=_NAME, deduplicate=True)
        await _send(producer, 0, 20 * turn + 20)
        if turn < 2:
            await (cluster.split(topic, 0) if turn == 0 else cluster.merge(topic, 1, 2))
        await producer.close()
    consumer = await client.subscribe(topic, "billing")
    seen: dict[bytes, list[int]] = {}
    while sum(map(len, seen.values())) < 60:
        message = await consumer.receive(WAIT_S)
        seen.setdefault(message.key or b"", []).append(int(message.value or b""))
        consumer.acknowledge(message)
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(60))
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_the_sync_face_has_names_too(cluster: TopicCluster, topic: str) -> None:
    for turn in range(2):
        with (
            sync.Client(cluster.url) as client,
            client.create_producer(topic, name=_NAME, deduplicate=True) as producer,
        ):
            assert producer.sequence == (-1, 9)[turn]
            results = [producer.send(b"", b"%d" % each, sequence=each) for each in range(10)]
            assert all(each.is_repeat == bool(turn) for each in results)


async def test_after_a_close_nothing_needs_to_be_there_any_more(
    made: HandMadeTopic, admin: AdminClient
) -> None:
    producer = await _named(made.client, made)
    await _send(producer, 0, 50)
    await producer.close()
    topic = made.kafka_topic(made.layout.active[0])
    plain = made.plain_producer()
    for bucket in range(4):
        plain.produce(topic, b"", partition=bucket)
    plain.flush(WAIT_S)
    old = [TopicPartition(topic, each, -1) for each in range(4)]
    for deleted in admin.delete_records(old).values():
        deleted.result(WAIT_S)
    async with await _named(made.client, made) as producer:
        assert await _send(producer, 49, 51) == [True, False]


async def test_wrong_use_is_refused_with_a_remedy(made: HandMadeTopic) -> None:
    for options in ({"name": "a"}, {"deduplicate": True}, {"new_name": True}):
        with pytest.raises(InvalidInputError, match="name= and deduplicate=True"):
            await made.client.create_producer(made.name, **options)
    plain = await made.client.create_producer(made.name)
    with pytest.raises(InvalidInputError, match="producers with a name"):
        await plain.send(b"", b"", sequence=1)
    named = await _named(made.client, made)
    with pytest.raises(InvalidInputError, match="needs"):
        await named.send(b"", b"")
    with pytest.raises(InvalidInputError, match="use post"):
        await named.send_many([(b"", b"")])
    await named.send(b"", b"", sequence=7)
    with pytest.raises(InvalidInputError, match="from 8"):
        await named.send(b"", b"", sequence=7)
