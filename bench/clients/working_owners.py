"""What it takes when the buckets of `StreamConsumer.run` get another owner: a kill, and moves."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import TopicPartition

from anabranch.client import Client, Message, Work
from bench.clients.bare import BareKafka
from bench.clients.load import KEYS, VALUE
from bench.clients.working import DEADLINE_S
from bench.clients.working_gaps import Committed
from bench.figure import Measured, spread
from bench.place import Place
from bench.topics.topic_under_test import TopicUnderTest
from support.working import SUBSCRIPTION, Entry, wrong

_LOOK_S: Final = 0.01

# --- a process that is killed ---------------------------------------------------------------

_ROUNDS: Final = 10
_WIDE: Final = 1_000
_KEYS_OF_KILLS: Final = 5_000
_OF_ROUND: Final = 30_000  # messages that are sent before a process begins
_BEFORE_KILL: Final = 20_000  # of them are done
_COMMIT_S: Final = 0.1


class _Round(NamedTuple):
    """`per_s`: messages that the process did a second. `again`: begun before its end, and once more
    after it.
    """

    per_s: float
    again: int
    again_that_ran: int  # of them; the others were done
    mapped: int  # messages that Kafka's maps name after the kill

    @property
    def allowed(self) -> float:
        return _WIDE + self.per_s * _COMMIT_S


class _History:
    """A file of entries that other processes write, read as it grows."""

    def __init__(self, file: Path) -> None:
        self.entries: list[Entry] = []
        self._file = file.open("rb")
        self._rest = b""
        self.done: set[str] = set()
        self.begun: set[str] = set()

    def read(self) -> list[Entry]:
        """What is new."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        new = [Entry.of(line.decode()) for line in lines]
        self.entries += new
        self.done.update(each.id for each in new if each.what == "done")
        self.begun.update(each.id for each in new if each.what == "begin")
        return new

    def close(self) -> None:
        self._file.close()


def kill(place: Place) -> Measured:
    """SIGKILL in the middle of a backlog, and the same consumer in a new process, some rounds.

    Raises RuntimeError if a message is lost, a key is out of order, or a message begins again that
    a map in Kafka named when the process was dead.
    """
    rounds = 2 if place.quick else _ROUNDS
    with TopicUnderTest(place, 4) as topic, BareKafka(place) as kafka:
        found = asyncio.run(_kills(place, topic, kafka, rounds))
        commit_s = _commit_s(kafka)
    worst = max(found, key=lambda each: each.again / each.allowed)
    return Measured(
        worst.again,
        "messages",
        worst.again / worst.allowed,
        1.0,
        limit=worst.allowed,
        limit_what="what may run, and what is done in 0.1 s at the pace of that round",
        details={
            "rounds": [each._asdict() for each in found],
            "concurrency": _WIDE,
            "keys": _KEYS_OF_KILLS,
            "handler_ms": "0 to 20",
            "commit_ms": 1000 * commit_s,
            "lost": 0,
            "out_of_order": 0,
            "named_by_a_map_and_begun_again": 0,
        },
    )


async def _kills(
    place: Place, topic: TopicUnderTest, kafka: BareKafka, rounds: int
) -> list[_Round]:
    file = place.folder / f"history-{place.number()}"
    file.touch()
    sent, found = Counter[str](), list[_Round]()
    history, url = _History(file), place.service_urls()
    async with Client(url) as client, asyncio.timeout(DEADLINE_S + 30 * rounds):
        await (await client.subscribe(topic.name, SUBSCRIPTION, "worker")).close()
        committed = await asyncio.to_thread(Committed, kafka, topic, SUBSCRIPTION)
        producer = await client.create_producer(topic.name)
        try:
            mapped: set[str] = set()
            for number in range(rounds + 1):
                await producer.send_many(_numbered(sent))
                await producer.flush()
                is_last = number == rounds
                least = sent.total() if is_last else len(history.done) + _BEFORE_KILL
                begun, done = set(history.begun), set(history.done)
                at = len(history.entries)
                async with _worker(url, topic.name, file) as process:
                    per_s = await _until_done(history, least, process)
                history.read()
                new = {each.id for each in history.entries[at:] if each.what == "begin"}
                if new & mapped:
                    raise RuntimeError(f"{len(new & mapped)} messages of a map began again")
                if found:
                    again = new & begun
                    found[-1] = found[-1]._replace(
                        again=len(again), again_that_ran=len(again - done)
                    )
                if not is_last:
                    mapped = _ids(await asyncio.to_thread(committed.done), history.begun)
                    found.append(_Round(per_s, 0, 0, len(mapped)))
            # In place of the last one, so that the topic may be deleted.
            await (await client.subscribe(topic.name, SUBSCRIPTION, "worker")).close()
        finally:
            committed.close()
            history.close()
    said = wrong(history.entries, sent, repeats_max=len(history.entries))
    if said:
        raise RuntimeError(f"{len(said)} broken promises: {'; '.join(said[:3])}")
    return found


def _numbered(sent: Counter[str]) -> Iterator[tuple[bytes, bytes]]:
    for number in range(_OF_ROUND):
        key = f"key-{number % _KEYS_OF_KILLS}"
        yield key.encode(), str(sent[key]).encode()
        sent[key] += 1


def _ids(done: dict[tuple[int, int], set[int]], begun: set[str]) -> set[str]:
    """The ids of those messages, which begin with the incarnation of the topic."""
    incarnation = next(iter(begun)).partition("/")[0]
    return {
        f"{incarnation}/{segment}/{bucket}@{offset}"
        for (segment, bucket), offsets in done.items()
        for offset in offsets
    }


@contextlib.asynccontextmanager
async def _worker(url: str, topic: str, file: Path) -> Any:
    """A process that works, killed at the end."""
    program = ("-m", "support.working", url, topic, str(file), "worker", str(_WIDE))
    process = await asyncio.create_subprocess_exec(sys.executable, *program)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_done(history: _History, least: int, process: asyncio.subprocess.Process) -> float:
    """Until so many messages are done in all. Returns how many were done a second."""
    before, began = len(history.done), 0.0
    while True:
        now = time.perf_counter()
        history.read()
        count = len(history.done)
        if count > before and not began:
            before, began = count, now
        if count >= least:
            return (count - before) / (now - began)
        if process.returncode is not None:
            raise RuntimeError(f"the worker has ended with {process.returncode}")
        await asyncio.sleep(_LOOK_S)


# --- moves ----------------------------------------------------------------------------------

_MOVES: Final = 50  # to and fro
_BUCKETS: Final = 4  # of a new topic's only segment
_HANDLER_S: Final = 0.05
_SLOTS: Final = 100
_AHEAD: Final = 20_000  # messages that wait to be worked on, at least
_CHUNK: Final = 10_000
_HOLD_S: Final = 0.2
_COMMITS: Final = 50
_MOVE_S: Final = 15.0  # at most


class _Moves:
    """Handlers of several consumers, and who has which bucket."""

    def __init__(self) -> None:
        self.begun = 0
        self.took_s: list[float] = []  # from a bucket's last start at one owner to its next one's
        self.owners: dict[int, str] = {}
        self._last: dict[int, float] = {}

    def handler(self, who: str) -> Any:
        async def handle(message: Message, _: Work) -> None:
            now, bucket = time.perf_counter(), message.bucket
            if self.owners.get(bucket, who) != who:
                self.took_s.append(now - self._last[bucket])
            self.owners[bucket], self._last[bucket] = who, now
            self.begun += 1
            await asyncio.sleep(_HANDLER_S)

        return handle

    async def until_share(self, who: str, buckets: int) -> None:
        """Until it has begun something in so many buckets that nobody else has."""
        async with asyncio.timeout(_MOVE_S):
            while True:
                if list(self.owners.values()).count(who) >= buckets:
                    return
                await asyncio.sleep(0.001)


def move(place: Place) -> Measured:
    """A second consumer subscribes and stops, while a backlog keeps all slots of both busy.

    Timed is each bucket: from the last handler that begins at its old owner to the first one at the
    new owner. It waits for what runs, for a commit, and for the new owner's first read.
    """
    count = 5 if place.quick else _MOVES
    with TopicUnderTest(place) as topic, BareKafka(place) as kafka:
        took, calls = asyncio.run(_moved(place, topic, count))
        commit_s = _commit_s(kafka)
    each = spread(took)
    return Measured(
        each["p99"],
        "s",
        each["p99"],
        0.3,
        floor=_HANDLER_S + commit_s,
        floor_what="a handler, and a bare commit to Kafka (p50)",
        details={
            "each": each,
            "moves": 2 * count,
            "buckets": _BUCKETS,
            "concurrency": _SLOTS,
            "handler_ms": 1000 * _HANDLER_S,
            "commit_ms": 1000 * commit_s,
            **{what: spread(found) for what, found in calls.items()},
        },
    )


async def _moved(
    place: Place, topic: TopicUnderTest, count: int
) -> tuple[list[float], dict[str, list[float]]]:
    moves = _Moves()
    calls: dict[str, list[float]] = {"subscribe_until_served_s": [], "stop_until_served_s": []}
    async with Client(place.service_urls()) as client, asyncio.timeout(DEADLINE_S + 2 * count):
        feeding = asyncio.create_task(_feed(client, topic, moves))
        staying = await client.subscribe(topic.name, SUBSCRIPTION, "staying")
        working = [asyncio.create_task(staying.run(moves.handler("staying"), concurrency=_SLOTS))]
        try:
            await moves.until_share("staying", _BUCKETS)
            for number in range(count):
                who = f"new-{number}"
                began = time.perf_counter()
                newcomer = await client.subscribe(topic.name, SUBSCRIPTION, who)
                run = newcomer.run(moves.handler(who), concurrency=_SLOTS)
                working.append(asyncio.create_task(run))
                await moves.until_share(who, _BUCKETS // 2)
                calls["subscribe_until_served_s"].append(time.perf_counter() - began)
                await asyncio.sleep(_HOLD_S)
                began = time.perf_counter()
                await newcomer.stop()
                await moves.until_share("staying", _BUCKETS)
                calls["stop_until_served_s"].append(time.perf_counter() - began)
                await working.pop()
                await asyncio.sleep(_HOLD_S)
        finally:
            feeding.cancel()
            await staying.close()
        await asyncio.gather(*working)
    return moves.took_s, calls


async def _feed(client: Client, topic: TopicUnderTest, moves: _Moves) -> None:
    """Keeps a backlog, until it is cancelled."""
    producer = await client.create_producer(topic.name)
    sent = 0
    while True:
        if sent - moves.begun < _AHEAD:
            sent += await producer.send_many((key, VALUE) for key in KEYS[:_CHUNK])
        await asyncio.sleep(_LOOK_S)


def _commit_s(kafka: BareKafka) -> float:
    """A bare client's commit of four partitions, p50."""
    topic = kafka.topic(_BUCKETS)
    consumer = kafka.consumer(**{"group.id": f"{topic}-group"})
    took = []
    for number in range(_COMMITS):
        places = [TopicPartition(topic, each, number) for each in range(_BUCKETS)]
        began = time.perf_counter()
        consumer.commit(offsets=places, asynchronous=False)
        took.append(time.perf_counter() - began)
    consumer.close()
    return statistics.median(took)
