"""The last process of a run: waits until what was sent was received, and reads Kafka itself.

It asks the product only where the segments are. What Kafka has is read by a consumer that knows
nothing of subscriptions.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from anabranch.client import Client
from faults.history import Follower, History
from faults.parts import CHECKPOINTED, QUEUE
from faults.sink import Sink

DRAIN_S: Final = float(os.environ.get("DRAIN_S", "240"))
AGAIN_S: Final = 0.5
READ_S: Final = 60.0

Message = tuple[str, int]  # key and number


async def drained(folder: Path, history: History) -> None:
    """Waits, for a while, until each subscription has received all that was acknowledged; of a
    queue, has finished it.
    """
    follower = Follower(folder)
    acknowledged: set[Message] = set()
    received: defaultdict[str, set[Message]] = defaultdict(set)
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        for line in follower.more():
            if line["what"] == "acknowledged":
                acknowledged.add((line["key"], line["number"]))
            elif line["what"] == "finished" or (
                line["what"] == "received" and line["subscription"] != QUEUE
            ):
                received[line["subscription"]].add((line["key"], line["number"]))
        if all(acknowledged <= each for each in received.values()):
            break
        await asyncio.sleep(AGAIN_S)
    missing = {name: len(acknowledged - each) for name, each in received.items()}
    history.say("drained", acknowledged=len(acknowledged), missing=missing)


def read_sink(folder: Path, history: History) -> None:
    """Says of each effect when it was stored."""
    for stored in Sink(folder).read():
        for key, number, offset in stored.effects:
            history.say(
                "applied",
                subscription=CHECKPOINTED,
                key=key,
                number=number,
                place=[stored.segment_id, stored.bucket, offset],
                stored_at=stored.at,
            )


async def read_kafka(client: Client, topic: str, history: History) -> None:
    """Says of each record of the topic where it is stored."""
    watch = await client.watch(topic)
    layout = watch.layout
    places = [
        (part.kafka_topic, bucket)
        for part in layout.segments.values()
        for bucket in range(part.info.buckets)
    ]
    await asyncio.to_thread(_read, layout.bootstrap_servers, places, history)


def _read(kafka: str, places: list[tuple[str, int]], history: History) -> None:
    reader = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "of-nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    ends: dict[tuple[str, int], int] = {}
    begins = []
    for place in places:
        first, end = reader.get_watermark_offsets(TopicPartition(*place), READ_S)
        if first < end:
            ends[place] = end
            begins.append(TopicPartition(*place, first))
    reader.assign(begins)
    deadline = time.monotonic() + READ_S
    while ends and time.monotonic() < deadline:
        for message in reader.consume(1_000, 0.1):
            place = message.topic() or "", message.partition() or 0
            if message.error() is not None:
                history.say("unread", place=place, why=str(message.error()))
                continue
            offset = message.offset() or 0  # only errors have none
            history.say(
                "stored",
                place=[*place, offset],
                key=(message.key() or b"").decode(),
                number=int(message.value() or b"-1"),
            )
            if offset + 1 >= ends.get(place, 0):
                ends.pop(place, None)
    for place, end in ends.items():
        history.say("unread", place=place, why=f"not up to {end} in time")
    reader.close()
