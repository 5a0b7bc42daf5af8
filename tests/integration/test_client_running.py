"""`run` on a real Kafka: keys in order over splits, moves, failures and a killed process."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

from anabranch.client import Client, StreamConsumer
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


def _done(history: list[Entry]) -> int:
    return sum(entry.what == "done" for entry in history)
