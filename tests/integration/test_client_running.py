"""`run` on a real Kafka: keys in order over splits, moves, failures and a killed process."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
from collections import Counter
from pathlib import Path

from anabranch.client import (
    Backoff,
    Client,
    DeadLetter,
    DeadLetterPolicy,
    DeadLetterReason,
    Message,
    Retry,
    StreamConsumer,
    Work,
)
from anabranch.core.entities.subscription import dead_letter_topic
from support import killing
from support.there import there
from support.topic_cluster import TopicCluster
from support.waiting import WAIT_S, until
from support.working import RETRY, SUBSCRIPTION, Entry, Worker, wrong

KEYS = [f"key-{number}" for number in range(60)]


async def _send(client: Client, topic: str, sent: Counter[str], count: int) -> None:
    """Numbered messages, few keys often and many seldom."""
    rng = random.Random(count)
    async with await client.create_producer(topic) as producer:
        for _ in range(count):
            key = KEYS[min(int(rng.paretovariate(0.7)) - 1, len(KEYS) - 1)]
            await producer.post(str(sent[key]).encode(), key.encode())
            sent[key] += 1
        await producer.flush()


async def test_each_message_is_done_once_and_in_its_keys_order_over_splits_moves_and_failures(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    history: list[Entry] = []
    sent: Counter[str] = Counter()

    async def working(who: str) -> tuple[asyncio.Task[None], StreamConsumer]:
        consumer = await client.subscribe(topic, SUBSCRIPTION, who)
        worker = Worker(who, history.append, 0.05, 0.01)
        return asyncio.create_task(consumer.run(worker, concurrency=40, retry=RETRY)), consumer

    async def send_until_works(who: str) -> None:
        while who not in {entry.who for entry in history}:
            await _send(client, topic, sent, 200)

    first, _ = await working("first")
    await send_until_works("first")
    second, leaving = await working("second")
    await cluster.split_any(topic)
    await send_until_works("second")
    await _send(client, topic, sent, 600)
    await leaving.stop()
    await second
    await cluster.merge_last(topic)
    third, _ = await working("third")
    await send_until_works("third")
    await until(lambda: _done(history) >= sent.total(), WAIT_S)
    assert not first.done()
    assert not third.done()
    assert wrong(history, sent) == []


async def test_a_process_that_is_killed_repeats_little_and_loses_and_turns_nothing(
    cluster: TopicCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    sent: Counter[str] = Counter()
    file = tmp_path / "history"
    await (await client.subscribe(topic, SUBSCRIPTION)).close()
    await _send(client, topic, sent, 1_000)
    program = ("-m", "support.working", cluster.url, topic, str(file))

    def history() -> list[Entry]:
        whole = file.read_text().splitlines() if file.exists() else []
        return [Entry.of(line) for line in whole]

    for least in (150, 450):
        process = await asyncio.create_subprocess_exec(sys.executable, *program, cwd="tests")
        await until(lambda: _done(history()) >= least, WAIT_S)  # noqa: B023 - it ends here
        process.kill()
        await process.wait()
    process = await asyncio.create_subprocess_exec(sys.executable, *program, cwd="tests")
    try:
        await until(lambda: len({e.id for e in history() if e.what == "done"}) >= 1_000, WAIT_S)
    finally:
        process.kill()
        await process.wait()
    # What ran, and what ended within a commit's interval and its way to Kafka.
    assert wrong(history(), sent, repeats_max=2 * (50 + 300)) == []


async def test_poison_is_put_aside_with_its_history_and_its_key_goes_on(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    """Another consumer goes on after a while: a letter is no reason to have a message again."""
    handled: list[tuple[str, str]] = []

    async def handle(message: Message, work: Work) -> None:
        key, value = message.key.decode(), message.value.decode()
        if value in ("3", "6"):
            raise ValueError(f"no {value}")
        handled.append((key, value))

    async def run(who: str) -> StreamConsumer:
        consumer = await client.subscribe(topic, SUBSCRIPTION, who, dead_letter=DeadLetterPolicy())
        running.append(asyncio.create_task(consumer.run(handle, retry=retry)))
        return consumer

    running: list[asyncio.Task[None]] = []
    retry = Retry(attempts_max=2, delay_s=Backoff(first=0.01, most=0.01), then="dead_letter")
    keys = ("a", "b", "c")
    async with await client.create_producer(topic) as producer:
        for values in (range(5), range(5, 9)):
            consumer = await run("first" if 0 in values else "second")
            for value, key in itertools.product(values, keys):
                await producer.send(str(value).encode(), key.encode())
            wanted = [str(value) for value in range(values[-1] + 1) if value not in (3, 6)]
            await until(lambda: len(handled) >= len(keys) * len(wanted), WAIT_S)  # noqa: B023
            assert consumer.dead_letter is not None
            where = consumer.dead_letter.topic
            await consumer.stop()
    await asyncio.gather(*running)
    for key in keys:
        assert [value for each, value in handled if each == key] == wanted
    async with await client.subscribe(where, "look") as aside:
        letters = [await aside.receive(WAIT_S) for _ in range(6)]
    found = [(each.key.decode(), DeadLetter.of(each)) for each in letters]
    for key in keys:
        errors = [there(letter).error for each, letter in found if each == key]
        assert errors == ["ValueError: no 3", "ValueError: no 6"]
    assert {there(letter).reason for _, letter in found} == {DeadLetterReason.ATTEMPTS}


async def test_a_message_that_kills_three_processes_is_put_aside_by_the_fourth(
    cluster: TopicCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "history"
    program = ("-m", "support.killing", cluster.url, topic, str(file))
    await (await client.subscribe(topic, killing.SUBSCRIPTION)).close()
    keys = [b"key-%d" % number for number in range(30)]
    async with await client.create_producer(topic) as producer:
        for key in (*keys[:15], killing.KILLER, *keys[15:]):
            await producer.send(b"", key)

    def done() -> set[bytes]:
        return set(file.read_bytes().split()) if file.exists() else set()

    for _ in range(3):
        process = await asyncio.create_subprocess_exec(sys.executable, *program, cwd="tests")
        assert await asyncio.wait_for(process.wait(), WAIT_S) == -signal.SIGKILL
    process = await asyncio.create_subprocess_exec(sys.executable, *program, cwd="tests")
    try:
        where = dead_letter_topic(topic, killing.SUBSCRIPTION)
        async with await client.subscribe(where, "look") as aside:
            letter = await aside.receive(WAIT_S)
        await until(lambda: process.returncode is not None or done() >= set(keys), WAIT_S)
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert letter.key == killing.KILLER
    assert there(DeadLetter.of(letter)).reason is DeadLetterReason.KILLED


def _done(history: list[Entry]) -> int:
    return sum(entry.what == "done" for entry in history)


async def test_the_fence_of_a_bucket_grows_with_each_owner_also_under_other_controllers(
    cluster: TopicCluster, client: Client, topic: str
) -> None:
    """The topic's controller moves, too, and Kafka's queue of the same topic has none."""
    fences: list[int] = []

    async def handle(_message: Message, work: Work) -> None:
        fences.append(work.fence)

    async with await client.create_producer(topic) as producer:
        for turn in range(4):
            consumer = await client.subscribe(topic, SUBSCRIPTION, f"consumer-{turn}")
            running = asyncio.create_task(consumer.run(handle))
            await producer.send(b"v", b"key")
            await until(lambda: len(fences) > turn, WAIT_S)  # noqa: B023 - it ends here
            if turn == 1:
                await cluster.unload()
                await producer.send(b"v", b"key")
                await until(lambda: len(fences) == 3, WAIT_S)
                assert fences.pop() >= fences[-1]
            await consumer.stop()
            await running
    assert fences == sorted(set(fences))
    queue = await client.subscribe_queue(topic, "jobs")
    running = asyncio.create_task(queue.run(handle))
    await until(lambda: 0 in fences, WAIT_S)
    await queue.stop()
    await running
