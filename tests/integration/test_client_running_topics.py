"""`run` over many topics on a real Kafka: each keeps its order, and all share slots and bounds."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from anabranch import client as sdk
from anabranch.client import sync
from anabranch.core.entities.subscription import dead_letter_topic
from support.there import there
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until
from support.working import RETRY, SUBSCRIPTION, Entry, Worker, keyed, wrong

KEYS = [f"key-{number}" for number in range(40)]
_rounds = itertools.count()


@pytest.fixture
def prefix() -> str:
    """Names begin with it that no other test has."""
    return f"work-{next(_rounds)}-"


def selected(prefix: str) -> sdk.TopicSelection:
    return sdk.TopicSelection("public/default", pattern=f"{prefix}.*")


async def made(cluster: TopicCluster, names: list[str]) -> list[str]:
    """Makes topics, some at once."""
    turn = asyncio.Semaphore(8)

    async def make(name: str) -> str:
        async with turn:
            await cluster.create(f"public/default/{name}")
        return f"public/default/{name}"

    return list(await asyncio.gather(*map(make, names)))


async def send(client: sdk.Client, topic: str, sent: Counter[str], count: int) -> None:
    """Numbered messages, few keys often and many seldom; all topics have the same keys."""
    rng = random.Random(f"{topic} {sent.total()}")
    async with await client.create_producer(topic) as producer:
        for _ in range(count):
            key = KEYS[min(int(rng.paretovariate(0.7)) - 1, len(KEYS) - 1)]
            await producer.post(str(sent[keyed(topic, key)]).encode(), key.encode())
            sent[keyed(topic, key)] += 1
        await producer.flush()


def done_of(history: list[Entry], topic: str) -> int:
    return sum(entry.what == "done" and entry.key.startswith(keyed(topic, "")) for entry in history)


async def test_topics_split_merge_come_and_go_while_handlers_run_and_each_keeps_its_order(
    cluster: TopicCluster, client: sdk.Client, prefix: str
) -> None:
    """Two consumers share all topics. One topic is deleted while its handlers run: it is handed to
    nobody any more, and what runs of it ends.
    """
    names = [f"{prefix}{each}" for each in ("a", "b", "gone")]
    topics = await made(cluster, names)
    gone = topics[-1]
    history: list[Entry] = []
    sent: Counter[str] = Counter()
    running = []
    for who in ("first", "second"):
        consumer = await client.subscribe_topics(selected(prefix), SUBSCRIPTION, who)
        worker = Worker(who, history.append, 0.05, 0.01, has_topics=True)
        running.append(asyncio.create_task(consumer.run(worker, concurrency=30, retry=RETRY)))
    for topic in topics:
        await send(client, topic, sent, 400)
    await asyncio.gather(*(cluster.split_any(topic) for topic in topics[:2]))
    await send(client, gone, Counter(sent), 400)
    await until(lambda: done_of(history, gone) > 0, WAIT_S)
    await cluster.call("DELETE", f"{gone}?force=true")
    for topic in topics[:2]:
        await send(client, topic, sent, 400)
    (late,) = await made(cluster, [f"{prefix}late"])
    await send(client, late, sent, 200)
    await asyncio.gather(*(cluster.merge_last(topic) for topic in topics[:2]))
    for topic in (*topics[:2], late):
        await send(client, topic, sent, 200)
    lasting = {key: count for key, count in sent.items() if not key.startswith(keyed(gone, ""))}
    await until(
        lambda: (
            sum(done_of(history, each) for each in (*topics[:2], late)) >= sum(lasting.values())
        ),
        WAIT_S,
    )
    assert not any(task.done() for task in running)
    kept = [entry for entry in history if not entry.key.startswith(keyed(gone, ""))]
    assert wrong(kept, lasting) == []
    assert {entry.who for entry in kept} == {"first", "second"}
    begun = Counter(entry.what for entry in history if entry.key.startswith(keyed(gone, "")))
    await until(lambda: begun["begin"] == begun["done"] + begun["failed"], WAIT_S)


async def test_a_killed_process_of_many_topics_repeats_little_and_loses_and_turns_nothing(
    cluster: TopicCluster, client: sdk.Client, prefix: str, tmp_path: Path
) -> None:
    topics = await made(cluster, [f"{prefix}{each}" for each in "abcd"])
    sent: Counter[str] = Counter()
    file = tmp_path / "history"
    await (await client.subscribe_topics(selected(prefix), SUBSCRIPTION)).close()
    for topic in topics:
        await send(client, topic, sent, 300)
    program = ("-m", "support.working", cluster.url, f"{prefix}.*", str(file))

    def done() -> list[Entry]:
        whole = file.read_text().splitlines() if file.exists() else []
        return [entry for entry in map(Entry.of, whole) if entry.what == "done"]

    for least in (200, 600, 0):
        process = await asyncio.create_subprocess_exec(sys.executable, *program, cwd="tests")
        try:
            if least:
                await until(lambda: len(done()) >= least, WAIT_S)  # noqa: B023 - it ends here
            else:
                await until(lambda: len({entry.id for entry in done()}) >= 1_200, WAIT_S)
        finally:
            process.kill()
            await process.wait()
    history = list(map(Entry.of, file.read_text().splitlines()))
    # What ran, and what ended within a commit's interval and its way to Kafka.
    assert wrong(history, sent, repeats_max=2 * (50 + 300)) == []


async def test_each_topic_has_the_letters_of_its_own_messages(
    cluster: TopicCluster, client: sdk.Client, prefix: str
) -> None:
    topics = await made(cluster, [f"{prefix}{each}" for each in "ab"])
    handled: dict[str, list[str]] = defaultdict(list)

    async def handle(message: sdk.Message, work: sdk.Work) -> None:
        if message.value in (b"1", b"3"):
            raise sdk.Reject
        handled[message.topic].append(message.value.decode())

    consumer = await client.subscribe_topics(
        selected(prefix), SUBSCRIPTION, dead_letter=sdk.DeadLetterPolicy()
    )
    run = asyncio.create_task(consumer.run(handle, retry=sdk.Retry(then="dead_letter")))
    for topic in topics:
        async with await client.create_producer(topic) as producer:
            for number in range(5):
                await producer.send(str(number).encode(), "key")
    await until(lambda: sum(map(len, handled.values())) == 6, WAIT_S)
    for topic in topics:
        assert handled[topic] == ["0", "2", "4"]
        async with await client.subscribe(dead_letter_topic(topic, SUBSCRIPTION), "look") as aside:
            letters = [await aside.receive(WAIT_S) for _ in range(2)]
        assert [each.value for each in letters] == [b"1", b"3"]
        assert {there(sdk.DeadLetter.of(each)).topic for each in letters} == {f"topic://{topic}"}
    assert there(consumer.stats()).put_aside == 4
    await consumer.stop()
    await run


@pytest.mark.long
async def test_hundreds_of_topics_are_worked_on_at_once_within_one_width_and_one_bound(
    cluster: TopicCluster, client: sdk.Client, prefix: str
) -> None:
    """Each has a message that does not end for now, and others behind it."""
    topics = await made(cluster, [f"{prefix}{number:03}" for number in range(200)])
    go_on = asyncio.Event()
    done: dict[str, list[int]] = defaultdict(list)
    slow: set[str] = set()

    async def handle(message: sdk.Message, work: sdk.Work) -> None:
        if message.key == b"slow":
            slow.add(message.topic)
            await go_on.wait()
        done[message.topic].append(int(message.value))

    turn = asyncio.Semaphore(20)

    async def fill(topic: str) -> None:
        async with turn, await client.create_producer(topic) as producer:
            for number in range(20):
                await producer.post(str(number).encode(), ("slow", "a")[number > 0])
            await producer.flush()

    await asyncio.gather(*map(fill, topics))
    consumer = await client.subscribe_topics(selected(prefix), SUBSCRIPTION, start="earliest")
    run = asyncio.create_task(consumer.run(handle, concurrency=250, queued_max=1_000))
    most = 0

    def look() -> int:
        nonlocal most
        now = there(consumer.stats())
        most = max(most, now.queued)
        assert now.running <= 250
        return now.done

    await until(lambda: consumer.stats() is not None and look() >= 19 * 200, WAIT_S)
    assert len(slow) == 200, "each topic's slow key has a slot"
    assert most <= 1_000 + 20, "one more read at most, of one bucket"
    assert len({bucket.topic for bucket in there(consumer.stats()).buckets}) == 200
    go_on.set()
    await until(lambda: look() >= 20 * 200, WAIT_S)
    for numbers in done.values():
        assert numbers == [*range(1, 20), 0]
    await consumer.stop()
    await run

    async def delete(topic: str) -> None:
        async with turn:
            await cluster.call("DELETE", topic)

    await asyncio.gather(*map(delete, topics))  # others share the cluster


def test_a_plain_handler_works_on_many_topics_without_asyncio(
    cluster: TopicCluster, prefix: str
) -> None:
    topics = asyncio.run(made(cluster, [f"{prefix}{each}" for each in "ab"]))
    got: list[tuple[str, bytes]] = []

    with sync.Client(cluster.url) as client:
        consumer = client.subscribe_topics(selected(prefix), SUBSCRIPTION)

        def handle(message: sdk.Message, work: sdk.Work) -> None:
            got.append((message.topic, message.value))
            if len(got) == 6:
                consumer.stop()

        for topic in topics:
            with client.create_producer(topic) as producer:
                producer.send_many([("k", b"%d" % number) for number in range(3)])
        consumer.run(handle, concurrency=4)
        assert consumer.blocked() == []
        assert there(consumer.stats()).done == 6
    for topic in topics:
        assert [value for each, value in got if each == topic] == [b"0", b"1", b"2"]
